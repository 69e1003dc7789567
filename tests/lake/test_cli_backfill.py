"""What `foldhouse backfill` says of a run: its own commits, whoever else commits meanwhile; no JVM."""

from __future__ import annotations

import io
import json
from contextlib import closing
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import foldhouse as fh
from foldhouse.cli import main, writing
from foldhouse.cli.progress import Progress, progress_of

events = fh.stream("b.events", schema={"key": "string", "n": "long"}, keys="key")


def test_commits_of_another_run_are_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(job: str, first: date, last: date, run_id: str) -> tuple[Progress, None]:
        with (
            closing(fh.Lake.local(tmp_path / "lake")) as ours,
            closing(fh.Lake.local(tmp_path / "lake")) as theirs,
        ):
            ours.run_id = run_id
            for number, lake in enumerate((ours, theirs, ours, theirs, theirs)):
                lake.append(events, [{"key": "a", "n": number}])
        with progress_of(io.StringIO()) as progress:
            progress.start({"b.events": 1})
            progress.committed("b.events", None)
        return progress, None

    monkeypatch.setattr(writing, "_run", run)
    monkeypatch.setenv("FOLDHOUSE_LAKE", "")  # so that what the command sets is taken back
    words = ["backfill", "b", "--from", "2024-03-04", "--to", "2024-03-04", "--lake", str(tmp_path / "lake"), "--json"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {"table": "b.events", "folded": "done", "days": None, "commits": 2, "rows": 5}


def test_the_code_that_failed_is_named_with_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = tmp_path / "of_the_user.py"
    code.write_text("def payments():\n    return 1 / 0\n")
    made: dict[str, Any] = {}
    exec(compile(code.read_text(), str(code), "exec"), made)
    monkeypatch.setattr("foldhouse.dagster.run_in_foreground", lambda *_, **__: made["payments"]())
    monkeypatch.setenv("FOLDHOUSE_LAKE", "")
    words = ["backfill", "b", "--from", "2024-03-04", "--to", "2024-03-04", "--lake", str(tmp_path / "lake")]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 1
    assert f"the run failed with ZeroDivisionError: division by zero ({code}, line 2); what is committed" in done.stderr
