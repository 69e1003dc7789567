"""A full recompute that changes would cost more than is chosen before the rows of the changed keys are read."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import foldhouse as fh
from foldhouse.refresh.rows.logic import Logic

OpenLake = Callable[..., fh.Lake]
readings = fh.stream("counted.readings", schema={"key": "long", "part": "long", "turn": "long"}, keys="key")
greatest = fh.table(
    "counted.greatest",
    source=readings,
    keys="key",
    rows=lambda given: given.groupBy("key", "part").agg(F.max("turn").alias("turn")),
    fold=fh.fold(turn=fh.maximum("turn")),
)


def batch(turn: int) -> pa.Table:
    return pa.table({"key": list(range(40)), "part": [turn % 3] * 40, "turn": [turn] * 40})


def test_rows_of_groups_that_are_taken_back_are_not_read_to_see_that_they_are_too_many(
    spark_lake: OpenLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = spark_lake(tuning=fh.Tuning(full_recompute_least_rows=10))
    lake.append(readings, batch(1))
    lake.append(readings, batch(2))
    lake.refresh(greatest)
    lake.rollback(readings, to=lake.history(readings)[1].id)
    picked, pick = [], Logic.pick
    monkeypatch.setattr(Logic, "pick", lambda *given: picked.append(given[2].file.path) or pick(*given))
    assert lake.refresh(greatest).full_recompute
    assert picked == []
    assert set(lake.to_arrow(greatest)["turn"].to_pylist()) == {1}


def test_files_from_all_over_show_that_the_changed_groups_are_too_many(
    spark_lake: OpenLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = spark_lake(tuning=fh.Tuning(full_recompute_least_rows=10, full_recompute_share=0.1))
    for turn in range(32):
        lake.append(readings, batch(turn))
    lake.refresh(greatest)
    lake.append(readings, batch(99))
    picked, pick = set(), Logic.pick
    monkeypatch.setattr(Logic, "pick", lambda *given: picked.add(given[2].file.path) or pick(*given))
    assert lake.refresh(greatest).full_recompute
    assert 0 < len(picked) < 16, "of the 33 files, every eighth of each state"
    assert set(lake.to_arrow(greatest)["turn"].to_pylist()) == {99}
