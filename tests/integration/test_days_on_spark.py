"""Coverages with many gaps, and days of the first millennium, for rows that Spark evaluates; DuckDB is the oracle."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta

import duckdb
import pytest
from pyspark.sql import functions as F

import foldhouse as fh
from foldhouse.spark.covered import is_covered
from foldhouse.values.window import Coverage

pytestmark = pytest.mark.spark

events = fh.stream(
    "dos.events", schema={"day": "date", "k": "string", "n": "long"}, keys="k", event_id="k", partition_by="day"
)
daily = fh.table(
    "dos.daily",
    source=events,
    rows=lambda rows: rows.withColumn("size", F.length(F.soundex("k"))),  # soundex is left to Spark
    keys="day",
    partition_by="day",
    fold=fh.fold(n=fh.total("n"), sizes=fh.total("size")),
)
FIRST = date(1970, 1, 1)
EVERY_OTHER = [FIRST + timedelta(days=2 * number) for number in range(700)]
EARLY = [date(1, 1, 1), date(999, 12, 31), date(1582, 10, 10)]


def days_with_events() -> list[date]:
    return [*EARLY, *EVERY_OTHER[:3], EVERY_OTHER[1] - timedelta(days=1), EVERY_OTHER[-1], date(9999, 12, 31)]


def land(lake: fh.Lake, day: date, n: int) -> None:
    lake.append(events, [{"day": day, "k": f"{day}-{n}", "n": n}])


def expected(lake: fh.Lake, covered: list[date]) -> list[tuple[date, int]]:
    rows = lake.to_arrow(events)  # noqa: F841  DuckDB reads it
    wanted = duckdb.sql("SELECT day, sum(n)::BIGINT FROM rows GROUP BY day ORDER BY day").fetchall()
    return [(day, n) for day, n in wanted if day in set(covered)]


def held(lake: fh.Lake) -> list[tuple[date, int]]:
    return sorted((row["day"], row["n"]) for row in lake.to_arrow(daily).to_pylist())


@pytest.mark.slow
def test_a_table_that_covers_every_other_day_of_years_is_folded_and_proven(spark_lake: Callable[..., fh.Lake]) -> None:
    lake = spark_lake()
    for day in days_with_events():
        land(lake, day, 1)
    lake.backfill(daily, EVERY_OTHER)
    assert held(lake) == expected(lake, EVERY_OTHER)
    for day in days_with_events():
        land(lake, day, 20)
    lake.refresh(daily)
    assert held(lake) == expected(lake, EVERY_OTHER)
    assert len(held(lake)) == 4
    assert lake.verify(daily).passed


def test_days_of_the_first_millennium_are_folded_and_proven(spark_lake: Callable[..., fh.Lake]) -> None:
    lake = spark_lake()
    days = sorted(set(days_with_events()))
    for day in days:
        land(lake, day, 1)
    lake.backfill(daily, days)
    land(lake, date(1, 1, 1), 20)
    lake.refresh(daily)
    assert held(lake) == expected(lake, days)
    assert len(held(lake)) == len(days)
    assert lake.verify(daily).passed


@pytest.mark.parametrize("length", [1, 7, 8, 40])
def test_the_first_and_the_last_day_of_each_range_are_covered_and_those_beside_are_not(spark, length: int) -> None:
    ranges = [FIRST + timedelta(days=(length + 3) * number) for number in range(20)]
    covered = [first + timedelta(days=number) for first in ranges for number in range(length)]
    beside = {day + timedelta(days=step) for day in covered for step in (-1, 1)}
    rows = spark.createDataFrame([(day,) for day in sorted(beside | set(covered))], "day date")
    assert [row.day for row in rows.where(is_covered("day", Coverage.of(covered))).orderBy("day").collect()] == covered
    assert rows.where(is_covered("day", Coverage())).isEmpty()
