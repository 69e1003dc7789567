"""The law for tables over several sources and for logic that is not row by row: random histories against DuckDB."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from laws.amount import HISTORIES, IS_THOROUGH, seeds
from laws.rules import FULLY, WRITTEN, rule_of
from laws.settings import any_tuning
from laws.several_sources import (
    CASES,
    CURRENT_TABLES,
    DAYS,
    PAYMENTS_ONCE,
    STAFF_ONCE,
    STREAMS,
    Case,
    a_batch,
    disturb,
    payments,
    staff,
)
from oracle import assert_same, folded_at_its_position
from pyspark.sql import functions as F

import foldhouse as fh
from foldhouse.logic import compiled
from foldhouse.refresh.run import written
from foldhouse.refresh.run.in_process import Run
from foldhouse.refresh.run.joined import Joined

MANY = range(1000, 1000 + max(1, (HISTORIES - 240) // 12))
"""Seeds, each of which is a history of every table below, under one of the rules: one in CI, 63 of `make laws`."""
MODES = {
    "in this process": fh.Tuning(cancelled_least_rows=0),
    "evaluated by Spark": fh.Tuning(direct_rows=0),
    "evaluated by Spark, which reads the files": fh.Tuning(
        direct_rows=0, passed_rows=0, passed_share=0, picked_by_spark_factor=0
    ),
    "computed again in full by Spark, which reads the files": fh.Tuning(
        direct_rows=0, passed_rows=0, passed_share=0, **FULLY
    ),
    "computed again in full, added up by Spark": fh.Tuning(
        direct_rows=0, passed_rows=0, passed_share=0, summed_key_rows=0, **FULLY
    ),
    "evaluated by Spark, which writes files": fh.Tuning(direct_rows=0, **WRITTEN),
    "in Spark's tasks": fh.Tuning(in_process_rows=-1),
    "computed again in full": fh.Tuning(**FULLY),
    "computed again in full in Spark's tasks": fh.Tuning(in_process_rows=-1, **FULLY),
}


def check(lake: fh.Lake, case: Case) -> None:
    views = {payments: PAYMENTS_ONCE, staff: STAFF_ONCE}
    needed = next((view for stream, view in views.items() if stream in case.table.sources), "")
    expected = folded_at_its_position(lake, case.table, case.expected, needed)
    assert_same(lake.to_arrow(case.table), expected, list(case.table.keys))


def run_histories(lake: fh.Lake, seed: int, cases: list[Case], steps: int, *, draws_settings: bool = False) -> None:
    chance = random.Random(seed)
    for stream in STREAMS:
        lake.append(stream, a_batch(chance, stream))
    for step in range(steps):
        for _ in range(chance.randint(1, 3)):
            disturb(lake, chance)
        for table in CURRENT_TABLES:
            lake.refresh(table)
        for case in cases:
            if draws_settings:
                lake.tuning = any_tuning(chance, has_spark=True)
            lake.refresh(case.table)
            try:
                check(lake, case)
            except AssertionError as failure:
                raise AssertionError(f"seed {seed}, step {step}, {case.table.name}: {failure}") from failure
    for case in cases:
        again = fh.Lake(lake.catalog, lambda: lake.spark).refresh(case.table)
        assert not again.committed
        lake.rebuild(case.table)
        check(lake, case)


@pytest.mark.spark
@pytest.mark.parametrize("seed", range(2 if IS_THOROUGH else 1))
@pytest.mark.parametrize(
    "mode", ["in this process", *(pytest.param(mode, marks=pytest.mark.heavy) for mode in MODES if "Spark" in mode)]
)
def test_a_change_on_any_side_corrects_the_affected_rows(spark_lake, seed: int, mode: str) -> None:
    cases, steps = list(CASES.values()), 3 if IS_THOROUGH else 2
    if "Spark" in mode:  # jobs take their time: each table is folded in half of these ways
        cases, steps = cases[(seed + list(MODES).index(mode)) % 4 :: 4], 2
    run_histories(spark_lake(tuning=MODES[mode]), seed, cases, steps)


@pytest.mark.heavy
@pytest.mark.spark
@pytest.mark.classic
def test_joins_of_this_process_from_which_spark_evaluates_the_rest(spark_lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "direct_of", lambda plan, sources, outputs: None)
    join, joined = written.joined_for_spark, set[str]()

    def noted(run: Run, folder: Path) -> Joined:
        made = join(run, folder)
        if made.frames:
            joined.add(run.name.partition(".")[2])
        return made

    monkeypatch.setattr(written, "joined_for_spark", noted)
    tuning = fh.Tuning(joined_least_rows=0, **WRITTEN, **FULLY)
    run_histories(spark_lake(tuning=tuning), 5, list(CASES.values()), steps=2 if IS_THOROUGH else 1)
    assert len(joined) >= 8


@pytest.mark.heavy
@pytest.mark.spark
@pytest.mark.parametrize("seed", MANY)
def test_the_law_holds_over_many_histories_with_several_sources(spark_lake, seed: int) -> None:
    lake = spark_lake()
    with rule_of(seed, lake):
        run_histories(lake, seed, list(CASES.values()), steps=4)


@pytest.mark.heavy
@pytest.mark.spark
@pytest.mark.parametrize("seed", MANY[::3])
def test_settings_drawn_before_each_refresh_change_no_row(spark_lake, seed: int) -> None:
    run_histories(spark_lake(), seed, list(CASES.values()), steps=4 if IS_THOROUGH else 2, draws_settings=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(3, 6, 20))
def test_an_event_that_is_delivered_again_is_folded_once(lake: fh.Lake, seed: int) -> None:
    run_histories(lake, seed, [CASES["deliveries of the same payment"]], steps=8)


@pytest.mark.spark
@pytest.mark.parametrize("name", CASES)
def test_the_engine_finds_by_itself_how_rows_meet(spark_lake, name: str) -> None:
    lake, case = spark_lake(), CASES[name]
    for stream in STREAMS:
        lake.append(stream, a_batch(random.Random(1), stream))
    for table in CURRENT_TABLES:
        lake.refresh(table)
    lake.refresh(case.table)
    (compiled,) = [one for one in lake._compiled.values() if one.table is case.table]
    shape = compiled.shape
    found = "linear" if shape.is_linear else "cells" if shape.cells else "tree" if shape.branches else "unknown"
    assert found == case.shape


@pytest.mark.spark
@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize("condition", ["a.k = b.k AND a.x = b.k", "a.k = b.k AND a.k = b.y AND a.k = b.k"])
def test_a_column_that_equals_two_columns_of_the_other_side(spark_lake, condition: str, how: str) -> None:
    """Such a table was folded once, and each refresh after a change of the joined source failed."""
    a = fh.stream("many.a", schema={"k": "long", "x": "long", "g": "string"})
    b = fh.stream("many.b", schema={"k": "long", "y": "long"})
    table = fh.table(
        "many.twice",
        source=[a, b],
        rows=lambda a, b: a.alias("a").join(b.alias("b"), F.expr(condition), how).select("a.g", "b.y"),
        keys="g",
        fold=fh.fold(rows=fh.count(), y=fh.total("y")),
    )
    lake = spark_lake()
    lake.append(a, [{"k": k, "x": x, "g": g} for k, x, g in ((1, 1, "p"), (2, 1, "p"), (2, 2, "q"), (None, 1, "r"))])
    lake.append(b, [{"k": 1, "y": 5}, {"k": 1, "y": 1}, {"k": None, "y": 1}])
    joined = f"SELECT a.g, b.y FROM a {how.upper()} JOIN b ON {condition}"
    for stream, row in ((b, {"k": 2, "y": 7}), (a, {"k": 1, "x": 1, "g": "q"}), (b, {"k": 2, "y": 2})):
        lake.refresh(table)
        lake.append(stream, [row])
        lake.refresh(table)
        sql = f"SELECT g, count(*) AS rows, sum(y)::BIGINT AS y FROM ({joined}) GROUP BY g"
        assert_same(lake.to_arrow(table), folded_at_its_position(lake, table, sql), ["g"])


@pytest.mark.spark
def test_a_zero_that_changes_its_sign_is_a_change(spark_lake) -> None:
    numbers = fh.stream("many.numbers", schema={"k": "long", "x": "double", "day": "date"}, partition_by="day")
    names = fh.stream("many.names", schema={"k": "long", "name": "string"})
    table = fh.table(
        "many.signs",
        source=[numbers, names],
        rows=lambda numbers, names: numbers.join(names, "k").selectExpr("name", "CAST(x AS STRING) AS text"),
        keys="name",
        fold=fh.fold(text=fh.maximum("text"), rows=fh.count()),
    )
    lake = spark_lake()
    day = DAYS[0].date()
    lake.append(names, [{"k": k, "name": f"n{k}"} for k in range(3)])
    for zero in (0.0, -0.0, 0.0):
        rows = [{"k": 0, "x": zero, "day": day}, {"k": 1, "x": 7.0, "day": day}, {"k": 2, "x": None, "day": day}]
        lake.replace(numbers, rows, partitions=[day])
        lake.refresh(table)
        assert {row["name"]: row["text"] for row in lake.to_arrow(table).to_pylist()} == {
            "n0": str(zero),
            "n1": "7.0",
            "n2": None,
        }
