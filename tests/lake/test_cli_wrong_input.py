"""Wrong words of a call: one line that says which, exit code 2, and nothing is written."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import foldhouse as fh
from foldhouse.cli import main

DECLARED = """
import foldhouse as fh
events = fh.stream("wrong.events", schema={"key": "string", "day": "date", "n": "long"}, keys="key", partition_by="day")
days = fh.table("wrong.days", source=events, keys=["day", "key"], fold=fh.fold(n=fh.total("n")), partition_by="day")
sums = fh.table("wrong.sums", source=events, fold=fh.fold(n=fh.total("n")))
"""
WRONG = {
    "restate wrong.days 2024-03-04..": "'2024-03-04..'; give days such as",
    "plan wrong.days --restate 2024-03-04..": "'2024-03-04..'; give days such as",
    "plan wrong.days --backfill ..2024-03-04": "'..2024-03-04'; give days such as",
    "plan wrong.sums --backfill 2024-03-04": "wrong.sums has no `partition_by`, so no days can be added to it",
    "plan wrong.events": "wrong.events is a source, not a declared table of declares_wrong; folded from it: wrong.days",
    "restate wrong.events 2024-03-04": "wrong.events is a source",
    "follow wrong.events": "folded from it: wrong.days, wrong.sums",
    "follow wrong.sum": "declares no table wrong.sum; it declares wrong.days, wrong.sums",
    "trace wrong.sums key=a key=b": "key is given twice",
}


@pytest.mark.parametrize("call", WRONG)
def test_the_wrong_word_is_named_and_nothing_is_written(
    lake: fh.Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "declares_wrong.py").write_text(DECLARED)
    monkeypatch.syspath_prepend(str(tmp_path))
    names: dict[str, Any] = {}
    exec(DECLARED, names)
    lake.append(names["events"], [{"key": "a", "day": date(2024, 3, 4), "n": 1}])
    lake.backfill(names["days"], [date(2024, 3, 4)])
    lake.refresh(names["sums"])
    before = [lake.head(name) for name in lake.tables()]
    declared = [] if call.startswith("trace") else ["--declared-in", "declares_wrong"]
    done = CliRunner().invoke(main, [*call.split(), *declared])
    assert (done.exit_code, done.stdout) == (2, "")
    assert WRONG[call] in " ".join(done.stderr.split())
    assert [lake.head(name) for name in lake.tables()] == before
