"""Every command has `--json`, and prints the keys that `docs/command-line.md` lists; no JVM is started."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import foldhouse as fh
from foldhouse.cli import main
from foldhouse.cli.main import SUBCOMMANDS

PAGE = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text()
DOCUMENTED = {
    name: re.findall(r"`([^`]+)`", keys.partition("; with")[0])
    for name, keys in re.findall(r"^\| ([a-z-]+) \| [^|]+ \| (.+) \|$", PAGE, re.MULTILINE)
    if name != "command"
}
COLUMNS = {"show": {"key", "n"}, "changes": {"key", "n"}, "diff": {"key", "n"}}
events = fh.stream("h.events", schema={"key": "string", "n": "long"}, keys="key")
sums = fh.table("h.sums", source=events, fold=fh.fold(n=fh.total("n")), checks=[fh.between("n", 0, 100)])
DECLARED = """
import foldhouse as fh
events = fh.stream("h.events", schema={"key": "string", "n": "long"}, keys="key")
sums = fh.table("h.sums", source=events, fold=fh.fold(n=fh.total("n")), checks=[fh.between("n", 0, 100)])
"""


@pytest.fixture
def house(lake: fh.Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> fh.Lake:
    lake.append(events, [{"key": "a", "n": 1}])
    lake.refresh(sums)
    lake.append(events, [{"key": "b", "n": 2}])
    pq.write_table(pa.table({"key": ["c"], "n": [3]}), tmp_path / "one.parquet")
    (tmp_path / "declares_sums.py").write_text(DECLARED)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return lake


def test_every_command_has_json_and_its_keys_are_documented() -> None:
    for name in SUBCOMMANDS:
        command = main.get_command(click.Context(main), name)
        assert command is not None
        assert any("--json" in one.opts for one in command.params), name
    assert list(DOCUMENTED) == list(SUBCOMMANDS)


@pytest.mark.parametrize(
    "words",
    [
        ["init", "newshop"],
        ["status"],
        ["tables"],
        ["show", "h.sums"],
        ["changes", "h.sums", "--after", "0"],
        ["diff", "h.sums", "0"],
        ["history", "h.sums"],
        ["trace", "h.sums", "a"],
        ["plan", "h.sums", "--declared-in", "declares_sums"],
        ["add-files", "h.events", "one.parquet", "--declared-in", "declares_sums"],
        ["refresh", "--declared-in", "declares_sums"],
        ["reconcile", "h.sums", "h.events", "--on", "key", "--column", "n"],
        ["audit", "h.sums", "--declared-in", "declares_sums"],
        ["rollback", "h.sums", "--yes", "--to"],
        ["tag", "h.sums", "closed"],
        ["pause", "h.sums"],
        ["resume", "h.sums"],
        ["rebuild", "h.sums", "--declared-in", "declares_sums"],
        ["compact"],
        ["expire"],
        ["forget", "h.events", "key=a", "--reason", "request 3", "--declared-in", "declares_sums"],
        ["mend-clock", "h.sums"],
        ["publish", "h.sums"],
        ["doctor"],
        ["register"],
    ],
    ids=lambda words: str(words[0]),
)
def test_a_command_prints_the_documented_keys_and_nothing_else(
    house: fh.Lake, tmp_path: Path, words: list[str]
) -> None:
    if words[0] == "publish":
        house.rebuild(sums, publish=False)
    words = [*words, str(house.history(sums)[0].id)] if words[0] == "rollback" else words
    lake = [] if words[0] == "init" else ["--lake", str(tmp_path / "lake")]
    done = CliRunner().invoke(main, [*words, *lake, "--json"])
    assert done.exit_code == 0, done.output
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert found
    wanted = {*DOCUMENTED[words[0]], *COLUMNS.get(words[0], ())}
    assert [set(one) for one in found] == [wanted] * len(found)


def test_the_address_of_the_page_is_printed_before_it_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    from foldhouse.dagster import dev

    monkeypatch.setattr(dev, "serve", lambda port, allow_hosts: None)
    done = CliRunner().invoke(main, ["dev", "--port", "3001", "--json"])
    assert json.loads(done.stdout) == {"address": "http://127.0.0.1:3001", "allowed_hosts": []}
