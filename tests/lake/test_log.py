"""`FOLDHOUSE_LOG=json`: a line for each commit and each failure, with run and snapshot; nothing without it."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

import foldhouse as fh
from foldhouse.errors import ConfigurationError

events = fh.stream("h.events", schema={"key": "string", "n": "long"}, keys="key")
sums = fh.table("h.sums", source=events, fold=fh.fold(n=fh.total("n")))
PROGRAM = """
import sys
import foldhouse as fh
from tests.lake.test_log import events, sums
lake = fh.Lake.local(sys.argv[1])
lake.append(events, [{"key": "nobody may see this", "n": 1}])
first = lake.refresh(sums).snapshot_id
lake.append(events, [{"key": "b", "n": 2}])
lake.refresh(sums)
lake.tag(sums, "good")
lake.rollback(sums, to=first)
import logging
logging.getLogger("foldhouse").warning("something else")
"""


def run(folder: Path, log: str | None) -> tuple[str, str]:
    environment = {name: text for name, text in os.environ.items() if name != "FOLDHOUSE_LOG"}
    environment |= {} if log is None else {"FOLDHOUSE_LOG": log}
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder)], env=environment, cwd=root, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


@pytest.mark.slow
def test_each_commit_is_a_line_with_its_run_and_snapshot(tmp_path: Path) -> None:
    out, said = run(tmp_path / "lake", "json")
    lines = [json.loads(line) for line in said.splitlines()]
    assert out == ""
    commits = [line for line in lines if line["event"] == "committed"]
    lake = fh.Lake.local(tmp_path / "lake")
    for table in ("h.events", "h.sums"):
        stored = {(str(one.id), one.summary["foldhouse.run-id"]) for one in lake.history(table)}
        told = {(one["snapshot_id"], one["run_id"]) for one in commits if one["table"] == table and "run_id" in one}
        assert stored <= told
        assert len(told) == 2
    lake.close()
    snapshots = [one for one in commits if "snapshot_id" in one]
    assert [(one["rows"], one["rows_read"]) for one in snapshots if one["table"] == "h.sums"] == [(1, 1), (2, 1)]
    alone = [one for one in commits if "snapshot_id" not in one]
    assert [(one["table"], list(one["refs"])) for one in alone] == [("h.sums", ["good"]), ("h.sums", ["main"])]
    assert lines[-1] | {"time": "", "process": 0} == {
        "time": "",
        "level": "WARNING",
        "logger": "foldhouse",
        "process": 0,
        "event": "something else",
    }
    assert "nobody" not in said


@pytest.mark.slow
def test_without_the_variable_commits_print_nothing(tmp_path: Path) -> None:
    assert run(tmp_path / "lake", None) == ("", "something else\n")


def test_a_configuration_of_the_process_gets_the_records_too(tmp_path: Path, caplog) -> None:
    with caplog.at_level(logging.INFO, "foldhouse.events"):
        lake = fh.Lake.local(tmp_path / "lake")
        lake.append(events, [{"key": "a", "n": 1}])
        lake.close()
    assert [(one.getMessage(), one.foldhouse_fields["table"]) for one in caplog.records] == [("committed", "h.events")]


def test_another_value_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOLDHOUSE_LOG", "xml")
    with pytest.raises(ConfigurationError, match="FOLDHOUSE_LOG is 'xml'; set it to json"):
        fh.Lake.local(tmp_path / "lake")


def test_a_command_that_fails_is_a_line_beside_the_one_for_people(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from foldhouse.cli import main; main()", "show", "h.x", "--lake", str(tmp_path)]
    done = subprocess.run(command, env={**os.environ, "FOLDHOUSE_LOG": "json"}, capture_output=True, text=True)
    first, second = done.stderr.splitlines()
    told = json.loads(first)
    assert (told["event"], told["what"], told["command"], told["error"]) == ("failed", "command", "show", "UnknownLake")
    assert second == f"error: {told['message']}"
    assert done.returncode == 3


def test_a_table_that_refresh_leaves_out_is_a_line_too(tmp_path: Path) -> None:
    (tmp_path / "declares_two.py").write_text(
        "import foldhouse as fh\nfrom tests.lake.test_log import events, sums\n"
        "above = fh.table('h.above', source=sums, keys='n', fold=fh.fold(keys=fh.count()))\n"
    )
    fh.Lake.local(tmp_path / "lake").close()
    command = [
        sys.executable,
        "-c",
        "from foldhouse.cli import main; main()",
        "refresh",
        "--declared-in",
        "declares_two",
    ]
    environment = {**os.environ, "FOLDHOUSE_LOG": "json", "PYTHONPATH": os.pathsep.join([*sys.path])}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    told = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    assert [(one["event"], one["command"], one["table"], one["error"]) for one in told] == [
        ("failed", "refresh", "h.sums", "UnknownTable"),
        ("failed", "refresh", "h.above", "FoldhouseError"),
    ]
    assert done.returncode == 2, done.stderr
