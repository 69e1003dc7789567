"""Tuning: one value with a reason for each number, checked where it is given, and the lake's from there on."""

from __future__ import annotations

import ast
import inspect
import pickle
import re
from dataclasses import FrozenInstanceError, fields, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import foldhouse as fh
from foldhouse.values import tuning as module

UNITS = ("rows", "bytes", "buckets", "share", "files", "factor", "keys", "snapshots")
events = fh.stream("t.events", schema={"key": "long", "n": "long"}, keys="key", sequence_by="n")
newest = fh.table("t.newest", source=events, fold=fh.latest())


def test_every_number_has_its_unit_in_its_name_and_a_reason_below_it() -> None:
    (declared,) = (one for one in ast.parse(inspect.getsource(module)).body if isinstance(one, ast.ClassDef))
    places = [place for place, one in enumerate(declared.body) if isinstance(one, ast.AnnAssign)]
    assert len(places) == len(fields(fh.Tuning)) > 30
    for place, one in zip(places, fields(fh.Tuning), strict=True):
        assert one.name.rpartition("_")[2] in UNITS
        reason = declared.body[place + 1]
        assert isinstance(reason, ast.Expr), one.name
        assert isinstance(reason.value, ast.Constant), one.name
        assert len(str(reason.value.value)) > 30, one.name


def test_every_number_is_read_somewhere() -> None:
    sources = Path(module.__file__).parent.parent
    read = " ".join(path.read_text() for path in sources.rglob("*.py") if path.name != "tuning.py")
    assert [one.name for one in fields(fh.Tuning) if not re.search(rf"\btuning\.{one.name}\b", read)] == []


@pytest.mark.parametrize("one", fields(fh.Tuning), ids=lambda one: one.name)
@pytest.mark.parametrize("wrong", ["1", None, True, float("nan"), -2, 2**63, 10**400, [3]], ids=repr)
def test_a_number_that_makes_no_sense_is_refused_with_its_name(one: Any, wrong: Any) -> None:
    with pytest.raises(fh.DefinitionError, match=rf"tuning: {one.name} is .* is needed"):
        fh.Tuning(**{one.name: wrong})


def test_a_fraction_of_a_row_is_refused() -> None:
    with pytest.raises(fh.DefinitionError, match=r"chunk_rows is 1\.5; a whole number from 1"):
        fh.Tuning(chunk_rows=1.5)  # type: ignore[arg-type]


def test_it_is_frozen_takes_names_only_and_travels() -> None:
    tuning = fh.Tuning(task_rows=7)
    with pytest.raises(FrozenInstanceError):
        tuning.task_rows = 8  # type: ignore[misc]
    with pytest.raises(TypeError):
        fh.Tuning(7)  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(tuning)) == tuning != fh.Tuning()


def test_what_is_no_tuning_is_refused_by_the_lake(tmp_path: Path) -> None:
    with pytest.raises(fh.DefinitionError, match=r"tuning is \{'task_rows': 7\}; a foldhouse\.Tuning is needed"):
        fh.Lake.local(tmp_path / "lake", tuning={"task_rows": 7})  # type: ignore[arg-type]


def test_in_process_rows_goes_before_the_tuning(tmp_path: Path) -> None:
    tuning = fh.Tuning(in_process_rows=5, task_rows=7)
    lake = fh.Lake.local(tmp_path / "lake", in_process_rows=-1, tuning=tuning)
    assert lake.tuning == replace(tuning, in_process_rows=-1)
    assert lake.in_process_rows == -1
    assert fh.Lake.local(tmp_path / "lake", tuning=tuning).in_process_rows == 5
    assert fh.Lake.local(tmp_path / "lake").in_process_rows == fh.Tuning().in_process_rows == 200_000
    lake.close()


@pytest.mark.parametrize(("files", "left"), [(1_000, 4), (1, 1)])
def test_each_lake_of_a_process_has_its_own(lake: fh.Lake, tmp_path: Path, files: int, left: int) -> None:
    other = fh.Lake.local(tmp_path / "other")
    lake.tuning = fh.Tuning(merged_small_files=files)
    for number in range(4):
        for one in (lake, other):
            one.append(events, pa.table({"key": [number], "n": [number]}))
            one.refresh(newest)
    assert int(lake.history(newest)[0].summary["total-data-files"]) == left
    assert int(other.history(newest)[0].summary["total-data-files"]) == 1
    assert lake.count(newest) == other.count(newest) == 4
    other.close()
