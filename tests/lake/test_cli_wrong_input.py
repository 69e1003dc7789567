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
    "reconcile wrong.days wrong.sums --on key --on key --column n": "the key column 'key' is given twice",
    "reconcile wrong.days wrong.sums --on key --column n --column n=key": "--column n is given twice",
    "pause wrong.events": "wrong.events is a stream of events; only tables that foldhouse folds can be",
    "resume wrong.events": "wrong.events is a stream of events; only tables",
    "publish wrong.events": "wrong.events is a stream of events; only tables",
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
    declared = (
        []
        if call.startswith(("trace", "reconcile", "pause", "resume", "publish"))
        else ["--declared-in", "declares_wrong"]
    )
    done = CliRunner().invoke(main, [*call.split(), *declared])
    assert (done.exit_code, done.stdout) == (2, "")
    assert WRONG[call] in " ".join(done.stderr.split())
    assert [lake.head(name) for name in lake.tables()] == before


@pytest.mark.parametrize(
    "call",
    [
        "status --watch=NUMBER",
        "metrics --file x --every=NUMBER",
        "follow --every=NUMBER",
        "verify wrong.days --share=NUMBER",
    ],
)
@pytest.mark.parametrize("number", ["nan", "NaN", "inf", "1e999"])
def test_a_number_that_is_not_finite_is_a_wrong_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, call.replace("NUMBER", number).split())
    assert (done.exit_code, done.stdout, list(tmp_path.iterdir())) == (2, "", [])
    assert f"'--{call.split('--')[-1].removesuffix('=NUMBER')}'" in done.stderr, done.stderr


@pytest.mark.parametrize("port", ["99999", "-1", "0", "65536"])
def test_a_port_on_which_no_page_can_be_found_is_a_wrong_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, port: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["dev", "--port", port])
    assert (done.exit_code, done.stdout, list(tmp_path.iterdir())) == (2, "", [])
    assert "is not in the range 1<=x<=65535" in done.stderr
