"""The law where rows meet in windows, and where rows come of no rows: random histories against DuckDB."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

import pyarrow as pa
import pytest
from laws.amount import HISTORIES, IS_THOROUGH
from laws.rules import FULLY
from laws.settings import any_tuning
from oracle import assert_same, folded_at_its_position
from pyspark.sql import functions as F

import foldhouse as fh

SEEDS = range(1, 1 + max(1, HISTORIES // 40))
DAYS = [date(2024, 1, day) for day in (1, 2, 3)]
events = fh.stream(
    "odd.events",
    schema={"k": "string", "day": "date", "t": "int", "n": "int", "word": "string"},
    keys="k",
    partition_by="day",
)
others = fh.stream("odd.others", schema={"name": "string", "n": "int", "day": "date"}, keys="name", partition_by="day")
RISEN = "CASE WHEN n > lag(n) OVER (PARTITION BY k ORDER BY t NULLS FIRST, n NULLS FIRST) THEN 1 ELSE 0 END"
RANKED = "rank() OVER (PARTITION BY k, day ORDER BY n DESC NULLS LAST)"
BEFORE = "lag(n) OVER (PARTITION BY word, k ORDER BY t NULLS FIRST, n NULLS FIRST, day)"


@dataclass(frozen=True)
class Case:
    """A table, what DuckDB says it holds, and whether its logic is evaluated in parts."""

    table: fh.Table
    expected: str
    is_known: bool


def _case(name: str, expected: str, is_known: bool, source: Any = events, **declared: Any) -> Case:
    return Case(fh.table(f"odd.{name}", source=source, **declared), expected, is_known)


CASES = [
    _case(
        "risen",
        f"SELECT k, sum(w)::BIGINT AS risen FROM (SELECT k, {RISEN} AS w FROM events) WHERE k IS NOT NULL GROUP BY k",
        True,
        fold=fh.fold(risen=fh.total(RISEN)),
    ),
    _case(
        "ranked",
        f"SELECT day, count(*) AS c, sum(r)::BIGINT AS r FROM (SELECT day, {RANKED} AS r FROM events) "
        "WHERE day IS NOT NULL GROUP BY day",
        True,
        keys="day",
        partition_by="day",
        rows=lambda e: e.selectExpr("day", f"{RANKED} AS r"),
        fold=fh.fold(c=fh.count(), r=fh.total("r")),
    ),
    _case(
        "steps",
        f"SELECT word, min(n - b) AS least, count(b) AS c FROM (SELECT word, n, {BEFORE} AS b FROM events) "
        "WHERE word IS NOT NULL GROUP BY word",
        True,
        keys="word",
        rows=lambda e: e.selectExpr("*", f"{BEFORE} AS b"),
        fold=fh.fold(least=fh.minimum("n - b"), c=fh.count("b")),
    ),
    _case(
        "two_windows",
        "SELECT word, max(a) AS a, sum(b)::BIGINT AS b FROM (SELECT word, max(n) OVER (PARTITION BY k) AS a, "
        "count(*) OVER (PARTITION BY day) AS b FROM events) WHERE word IS NOT NULL GROUP BY word",
        False,
        keys="word",
        rows=lambda e: e.selectExpr(
            "word", "max(n) OVER (PARTITION BY k) AS a", "count(*) OVER (PARTITION BY day) AS b"
        ),
        fold=fh.fold(a=fh.maximum("a"), b=fh.total("b")),
    ),
    _case(
        "everything",
        "SELECT 'all' AS k, count(*) AS c, sum(n)::BIGINT AS n FROM events",
        False,
        rows=lambda e: e.agg(F.lit("all").alias("k"), F.count("*").alias("c"), F.sum("n").alias("n")),
        fold=fh.fold(c=fh.maximum("c"), n=fh.minimum("n")),
    ),
    _case(
        "with_a_row",
        "SELECT k, count(*) AS c FROM (SELECT k FROM events UNION ALL SELECT 'a' UNION ALL SELECT 'z') "
        "WHERE k IS NOT NULL GROUP BY k",
        False,
        rows=lambda e: e.select("k").union(e.sparkSession.createDataFrame([("a",), ("z",)], "k string")),
        fold=fh.fold(c=fh.count()),
    ),
    _case(
        "compared",
        "SELECT 'both' AS k, (SELECT count(*) FROM events) AS e, (SELECT count(*) FROM others) AS o",
        False,
        source=[events, others],
        keys="k",
        rows=lambda e, o: (
            e.agg(F.count("*").alias("e")).crossJoin(o.agg(F.count("*").alias("o"))).withColumn("k", F.lit("both"))
        ),
        fold=fh.fold(e=fh.maximum("e"), o=fh.maximum("o")),
    ),
]
STREAMS = {
    events: pa.schema({"k": pa.string(), "day": pa.date32(), "t": pa.int32(), "n": pa.int32(), "word": pa.string()}),
    others: pa.schema({"name": pa.string(), "n": pa.int32(), "day": pa.date32()}),
}


def a_batch(chance: random.Random, stream: fh.Stream, day: date | None = None, rows: int | None = None) -> pa.Table:
    values: dict[str, Callable[[], Any]] = {
        "k": lambda: chance.choice(["a", "b", "c", None]),
        "day": lambda: day or chance.choice(DAYS),
        "t": lambda: chance.choice([None, *range(4)]),
        "n": lambda: chance.choice([None, *range(5)]),
        "word": lambda: chance.choice(["x", "y", None]),
        "name": lambda: chance.choice(["a", "b"]),
    }
    schema = STREAMS[stream]
    wanted = chance.choice([0, 1, 5, 9]) if rows is None else rows
    made = [{name: values[name]() for name in schema.names} for _ in range(wanted)]
    return pa.Table.from_pylist(made, schema=schema)


def disturb(lake: fh.Lake, chance: random.Random) -> None:
    stream = chance.choice([events, events, others])
    history = lake.history(stream)
    kind = chance.choice(["append", "append", "restate", "empty", "roll back"])
    if kind == "restate":
        day = chance.choice(DAYS)
        lake.replace(stream, a_batch(chance, stream, day), partitions=[day])
    elif kind == "empty":
        lake.replace(stream, a_batch(chance, stream, rows=0), partitions=DAYS)
    elif kind == "roll back" and len(history) > 1:
        lake.tuning = replace(lake.tuning, restored_rows_factor=chance.choice([0, 10]))
        lake.rollback(stream, to=chance.choice(history[1:]).id)
    else:
        lake.append(stream, a_batch(chance, stream))


def check(lake: fh.Lake, case: Case) -> None:
    expected = folded_at_its_position(lake, case.table, case.expected)
    assert_same(lake.to_arrow(case.table), expected, list(case.table.keys))


def run_history(lake: fh.Lake, seed: int, steps: int, *, draws_settings: bool = False) -> None:
    chance = random.Random(seed)
    for stream in STREAMS:
        lake.append(stream, a_batch(chance, stream, rows=0 if seed % 2 == 0 else 5))
    for step in range(steps):
        for case in CASES:
            if draws_settings:
                lake.tuning = any_tuning(chance, has_spark=True)
            lake.refresh(case.table)
            try:
                check(lake, case)
            except AssertionError as failure:
                raise AssertionError(f"seed {seed}, step {step}, {case.table.name}: {failure}") from failure
        for _ in range(chance.randint(1, 2)):
            disturb(lake, chance)
    for case in CASES:
        assert lake.refresh(case.table).rows == lake.to_arrow(case.table).num_rows
        check(lake, case)
        lake.rebuild(case.table)
        check(lake, case)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.heavy) for n in SEEDS)])
def test_windows_and_rows_of_nothing_hold_the_law(spark_lake, seed: int) -> None:
    forced = {**({"in_process_rows": -1} if seed % 4 == 1 else {}), **(FULLY if seed % 3 == 2 else {})}
    run_history(
        spark_lake(tuning=fh.Tuning(**forced)), seed, steps=3 if IS_THOROUGH or "in_process_rows" not in forced else 2
    )


@pytest.mark.heavy
@pytest.mark.spark
@pytest.mark.parametrize("seed", SEEDS)
def test_settings_drawn_before_each_refresh_change_no_row(spark_lake, seed: int) -> None:
    run_history(spark_lake(), seed, steps=3, draws_settings=True)


@pytest.mark.spark
def test_windows_are_kept_by_the_columns_they_partition_by(spark_lake) -> None:
    lake = spark_lake()
    for stream in STREAMS:
        lake.append(stream, a_batch(random.Random(1), stream, rows=3))
    for case in CASES:
        lake.refresh(case.table)
        (compiled,) = [one for one in lake._compiled.values() if one.table is case.table]
        assert compiled.shape.is_known is case.is_known, case.table.name
