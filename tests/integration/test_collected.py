"""Logic that Spark evaluates over files that it reads itself, folded in this process."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from laws.rules import WRITTEN
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import foldhouse as fh
from foldhouse.refresh.rows import evaluate, handed_over

pytestmark = pytest.mark.spark

DAYS = [date(2024, 1, day) for day in range(1, 5)]
events = fh.stream("t.events", schema={"day": "date", "key": "long", "n": "long"}, keys="key", partition_by="day")
HASHED = fh.table(
    "t.hashed",
    source=events,
    rows=lambda events: events.select(F.sha2(F.col("key").cast("string"), 256).alias("who"), "n"),
    keys="who",
    buckets=2,
    fold=fh.fold(most=fh.maximum("n"), total=fh.total("n"), rows=fh.count()),
)
READ_BY_SPARK = fh.Tuning(passed_rows=0, passed_share=0, picked_by_spark_factor=0)
OpenLake = Callable[..., fh.Lake]


def some(day: date, version: int, rows: int = 60) -> pa.Table:
    place = DAYS.index(day)
    numbers = [(n * 7 + place * 11 + version * 5) % 101 for n in range(rows)]
    return pa.table({"day": [day] * rows, "key": [n % 23 for n in numbers], "n": numbers})


def expected(batches: list[pa.Table]) -> list[dict[str, Any]]:
    found: dict[str, list[int]] = defaultdict(list)
    for batch in batches:
        for row in batch.to_pylist():
            found[hashlib.sha256(str(row["key"]).encode()).hexdigest()].append(row["n"])
    return [{"who": w, "most": max(n), "total": sum(n), "rows": len(n)} for w, n in sorted(found.items())]


def stored(lake: fh.Lake) -> list[dict[str, Any]]:
    return list(lake.to_arrow(HASHED).sort_by("who").to_pylist())


@pytest.mark.slow
@pytest.mark.parametrize(
    "tuning",
    [READ_BY_SPARK, fh.Tuning(), fh.Tuning(direct_rows=0, **WRITTEN), fh.Tuning(in_process_rows=-1)],
    ids=["Spark reads the files", "rows are passed", "Spark writes files", "in Spark's tasks"],
)
def test_rows_are_the_same_whoever_reads_them_also_where_keys_are_computed_again(
    spark_lake: OpenLake, tuning: fh.Tuning
) -> None:
    lake = spark_lake(tuning=replace(tuning, full_recompute_share=100, restored_rows_factor=0))
    for day in DAYS[:3]:
        lake.append(events, some(day, 0))
    lake.refresh(HASHED)
    assert stored(lake) == expected([some(day, 0) for day in DAYS[:3]])
    before = lake.head(events)
    lake.append(events, some(DAYS[3], 0))
    lake.refresh(HASHED)
    assert stored(lake) == expected([some(day, 0) for day in DAYS])
    lake.rollback(events, to=before.id)  # greatest numbers are taken away
    assert lake.refresh(HASHED).rows_recomputed > 0
    assert stored(lake) == expected([some(day, 0) for day in DAYS[:3]])
    lake.replace(events, some(DAYS[1], 1, 5), partitions=[DAYS[1]])
    lake.refresh(HASHED)
    assert stored(lake) == expected([some(DAYS[0], 0), some(DAYS[1], 1, 5), some(DAYS[2], 0)])


@pytest.mark.classic  # Spark writes no files for this process over Connect
def test_the_plan_says_who_reads_the_rows(spark_lake: OpenLake) -> None:
    lake = spark_lake(tuning=READ_BY_SPARK)
    lake.append(events, some(DAYS[0], 0))
    assert lake.plan(HASHED).runs == "in this process, from rows that Spark evaluates"
    lake.tuning = fh.Tuning(passed_rows=60)
    assert lake.plan(HASHED).runs == "in this process"
    lake.tuning = fh.Tuning(passed_rows=0, in_process_rows=5)
    assert lake.plan(HASHED).runs == "in this process, from files that Spark writes"
    lake.tuning = fh.Tuning(passed_rows=0, in_process_rows=5, spilled_rows_factor=1)
    assert lake.plan(HASHED).runs == "in Spark's tasks"
    lake.tuning = fh.Tuning(passed_rows=0, collected_bytes=10)
    assert lake.plan(HASHED).runs == "in this process"


BY_KEY = fh.table(
    "t.by_key",
    source=events,
    rows=lambda events: events.select("key", F.regexp_replace(F.col("n").cast("string"), "[0-4]", "x").alias("word")),
    keys="key",
    fold=fh.fold(most=fh.maximum("word")),
)


DIRECT = fh.table(
    "t.direct",
    source=events,
    rows=lambda events: events.where("n >= 0").select("key", "n"),
    keys="key",
    fold=fh.fold(most=fh.maximum("n")),
)


@pytest.mark.classic  # all logic is evaluated by Spark over Connect
def test_a_second_job_of_spark_counts_all_rows_of_the_source(spark_lake: OpenLake) -> None:
    """Rows are taken back from maxima. Without Spark, the rows of a few keys are picked and evaluated again."""
    lake = spark_lake(tuning=fh.Tuning(full_recompute_least_rows=10))
    for day in DAYS[:3]:
        lake.append(events, some(day, 0))
    before = lake.head(events)
    lake.append(events, some(DAYS[3], 0, 20))
    for table in (HASHED, BY_KEY, DIRECT):
        lake.refresh(table)
    lake.rollback(events, to=before.id)
    full = {table.name: lake.refresh(table).full_recompute for table in (HASHED, BY_KEY, DIRECT)}
    assert full == {"t.hashed": True, "t.by_key": True, "t.direct": False}
    assert stored(lake) == expected([some(day, 0) for day in DAYS[:3]])


@pytest.mark.classic  # all logic is evaluated by Spark over Connect
def test_a_day_that_is_replaced_counts_its_removed_rows_if_spark_evaluates(spark_lake: OpenLake) -> None:
    lake = spark_lake()
    for day in DAYS:
        lake.append(events, some(day, 0))
    for table in (HASHED, DIRECT):
        lake.refresh(table)
    lake.replace(events, some(DAYS[1], 1), partitions=[DAYS[1]])
    assert [lake.refresh(table).full_recompute for table in (HASHED, DIRECT)] == [True, False]
    assert stored(lake) == expected([some(DAYS[0], 0), some(DAYS[1], 1), some(DAYS[2], 0), some(DAYS[3], 0)])


def beside_the_greatest(events: DataFrame) -> DataFrame:
    """Of texts, which Spark makes: without these, no job of Spark is needed."""
    below = events.crossJoin(events.agg(F.max("n").alias("greatest"))).selectExpr("key", "greatest - n AS below")
    return below.select("key", F.concat(F.col("below").cast("string"), F.lit("0")).cast("long").alias("below"))


def test_a_change_that_cannot_be_followed_evaluates_all_rows_once_and_not_as_they_were_too(
    spark_lake: OpenLake,
) -> None:
    lake = spark_lake()
    table = fh.table("t.below", source=events, rows=beside_the_greatest, fold=fh.fold(below=fh.total("below")))
    lake.append(events, some(DAYS[0], 0))
    assert not lake.refresh(table).full_recompute, "there is nothing yet that could be compared"
    lake.append(events, pa.table({"day": [DAYS[1]], "key": [1], "n": [500]}))
    done = lake.refresh(table)
    assert (done.full_recompute, done.rows_read, done.rows_written) == (True, 61, 23)
    numbers = some(DAYS[0], 0).to_pylist()
    below = {row["key"]: 0 for row in numbers}
    for row in numbers:
        below[row["key"]] += 10 * (500 - row["n"])
    assert {row["key"]: row["below"] for row in lake.to_arrow(table).to_pylist()} == below


MANY = """
import json, logging, sys
import pyarrow as pa
from pyspark.sql import functions as F
import foldhouse as fh
from foldhouse.spark.session import local_session
logging.basicConfig(level=logging.INFO, format="%(message)s")
session = local_session("local[1]", spark_driver_maxResultSize="1m")
events = fh.stream("t.events", schema={"key": "long"}, keys="key")
table = fh.table(
    "t.many", source=events, keys="word", fold=fh.fold(rows=fh.count()),
    rows=lambda events: events.select(F.explode(F.sequence(F.lit(1), F.lit(3000))).alias("n"), "key")
        .select(F.sha2(F.concat_ws("-", "n", "key"), 256).alias("word")),
)
lake = fh.Lake.local(sys.argv[1], tuning=fh.Tuning(passed_rows=0))
lake.append(events, pa.table({"key": range(20)}))
print(json.dumps([lake.plan(table).runs, lake.refresh(table).rows]))
"""


@pytest.mark.heavy
def test_rows_that_are_too_many_to_hand_over_are_written_to_files(tmp_path: Path) -> None:
    command = [sys.executable, "-c", MANY, str(tmp_path / "lake")]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ}, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["in this process, from rows that Spark evaluates", 60_000]
    assert "too many rows for this process; it is folded in this process, from files that Spark writes" in done.stderr


SPLIT = fh.table(
    "t.split",
    source=events,
    rows=lambda events: events.select(
        F.explode(F.sequence(F.lit(1), F.col("n") % 3 + 1)).alias("part"), F.col("key").alias("who")
    ),
    keys=["who", "part"],
    fold=fh.fold(rows=fh.count()),
)


@pytest.mark.parametrize("most", [50, 1000])
def test_rows_that_become_too_many_are_not_handed_over(
    spark_lake: OpenLake, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """They are not counted before either: that would be a second job, which evaluates everything."""
    monkeypatch.setattr(type(spark_lake("other").spark.range(1)), "count", lambda rows: pytest.fail("rows are counted"))
    lake = spark_lake(tuning=fh.Tuning(passed_rows=0, passed_share=0, picked_by_spark_factor=0, collected_rows=most))
    caplog.set_level("INFO")
    batches = [some(day, 0) for day in DAYS[:2]]
    parts = Counter[tuple[int, int]]()
    for batch in batches:
        lake.append(events, batch)
        lake.refresh(SPLIT)
        parts.update((row["key"], part) for row in batch.to_pylist() for part in range(1, row["n"] % 3 + 2))
        assert {(row["who"], row["part"]): row["rows"] for row in lake.to_arrow(SPLIT).to_pylist()} == parts
    assert ("too many rows for this process" in caplog.text) == (most < sum(some(DAYS[0], 0)["n"].to_numpy() % 3 + 1))


@pytest.mark.slow
@pytest.mark.parametrize("rows_a_key", [0, 16])
@pytest.mark.parametrize("in_process_rows", [200_000, 0])
def test_rows_are_added_up_by_spark_or_here_and_the_table_is_the_same(
    spark_lake: OpenLake, monkeypatch: pytest.MonkeyPatch, rows_a_key: int, in_process_rows: int
) -> None:
    """Of 183 rows of 23 keys, and three without a key; with `in_process_rows=0`, Spark's tasks fold them."""
    handed: list[int] = []
    hand_over = evaluate.handed_over

    def handed_over(*given: Any) -> pl.DataFrame:
        rows = hand_over(*given)
        handed.append(rows.height)
        return rows

    monkeypatch.setattr(evaluate, "handed_over", handed_over)
    tuning = fh.Tuning(passed_rows=0, passed_share=0, summed_key_rows=rows_a_key, in_process_rows=in_process_rows)
    lake = spark_lake(tuning=tuning)
    for day in DAYS[:2]:
        lake.append(events, some(day, 0))
    lake.refresh(HASHED)
    handed.clear()
    lake.tuning = replace(tuning, full_recompute_share=0, full_recompute_least_rows=0)
    lake.append(events, some(DAYS[2], 0))
    lake.append(events, pa.table({"day": [DAYS[2]] * 3, "key": pa.array([None] * 3, pa.int64()), "n": [1, 2, None]}))
    done = lake.refresh(HASHED)
    assert (done.full_recompute, done.null_key_rows, done.rows) == (True, 3, 23)
    assert handed == ([] if not in_process_rows else [24] if rows_a_key == 0 else [183])
    assert stored(lake) == expected([some(day, 0) for day in DAYS[:3]])
    assert lake.verify(HASHED).wrong == 0
    lake.tuning = fh.Tuning()
    lake.append(events, pa.table({"day": [DAYS[3]] * 2, "key": pa.array([None, 1], pa.int64()), "n": [5, 7]}))
    assert lake.refresh(HASHED).null_key_rows == 1
    assert lake.verify(HASHED).wrong == 0


PARTS = fh.table(
    "t.parts",
    source=events,
    rows=lambda events: events.groupBy("key", "day").agg(
        F.max("n").alias("n"), F.max(F.regexp_replace(F.col("n").cast("string"), "[0-4]", "x")).alias("word")
    ),
    keys="key",
    fold=fh.fold(most=fh.maximum("n"), word=fh.maximum("word")),
)


def greatest(batches: list[pa.Table]) -> dict[int, int]:
    rows = [row for batch in batches for row in batch.to_pylist()]
    return {row["key"]: max(one["n"] for one in rows if one["key"] == row["key"]) for row in rows}


def test_groups_that_lose_their_extremes_are_computed_again_at_once(spark_lake: OpenLake) -> None:
    """Following the change would be one job of Spark for the removed groups, and a second for the keys of them."""
    lake = spark_lake()
    for day in DAYS:
        lake.append(events, some(day, 0))
    lake.refresh(PARTS)
    lake.replace(events, some(DAYS[1], 0, 0), partitions=[DAYS[1]])
    done = lake.refresh(PARTS)
    assert (done.full_recompute, done.rows_recomputed) == (True, 0)
    left = [some(day, 0) for day in DAYS if day != DAYS[1]]
    assert {row["key"]: row["most"] for row in lake.to_arrow(PARTS).to_pylist()} == greatest(left)
    lake.append(events, pa.table({"day": [DAYS[0]], "key": [1], "n": [1000]}))
    assert not lake.refresh(PARTS).full_recompute, "one group gets a greater number"


IN_GROUPS = fh.table(
    "t.in_groups",
    source=events,
    rows=lambda events: events.groupBy("key", "day").agg(F.sum("n").alias("n")),
    keys="key",
    fold=fh.fold(most=fh.maximum("n"), days=fh.count()),
)


@pytest.mark.classic  # a Connect server prints no aggregates, so that Spark evaluates them there
def test_groups_of_exact_aggregates_need_no_job_of_spark(spark_lake: OpenLake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = spark_lake()
    batches = [some(day, 0) for day in DAYS]
    lake.append(events, batches[0])
    lake.refresh(IN_GROUPS)
    monkeypatch.setattr(type(lake.spark.range(1)), "toArrow", lambda rows: pytest.fail("Spark evaluates"))
    for batch in batches[1:]:
        lake.append(events, batch)
        lake.refresh(IN_GROUPS)
    lake.replace(events, some(DAYS[0], 0, 0), partitions=[DAYS[0]])
    lake.refresh(IN_GROUPS)
    sums: dict[int, dict[date, int]] = defaultdict(lambda: defaultdict(int))
    for batch in batches[1:]:
        for row in batch.to_pylist():
            sums[row["key"]][row["day"]] += row["n"]
    assert {row["key"]: (row["most"], row["days"]) for row in lake.to_arrow(IN_GROUPS).to_pylist()} == {
        key: (max(days.values()), len(days)) for key, days in sums.items()
    }


@pytest.mark.classic
def test_groups_that_are_taken_back_count_what_is_read_again(spark_lake: OpenLake) -> None:
    """A total subtracts the groups; a maximum may need all rows of their keys."""
    lake = spark_lake(tuning=fh.Tuning(full_recompute_least_rows=10))
    sums = replace(IN_GROUPS, name="t.sums", fold=fh.fold(n=fh.total("n"), days=fh.count()))
    for day in DAYS[:3]:
        lake.append(events, some(day, 0))
    before = lake.head(events)
    lake.append(events, some(DAYS[3], 0))
    for table in (IN_GROUPS, sums):
        lake.refresh(table)
    lake.rollback(events, to=before.id)
    assert [lake.refresh(table).full_recompute for table in (IN_GROUPS, sums)] == [True, False]
    for table in (IN_GROUPS, sums):
        assert lake.verify(table).wrong == 0
    lake.append(events, some(DAYS[3], 0, 2))
    lake.rollback(events, to=before.id)
    assert not lake.refresh(IN_GROUPS).full_recompute, "nothing was lost since"


EVERYBODY = fh.table(
    "t.everybody",
    source=events,
    rows=lambda events: events.select(F.lit("all").alias("who")),
    keys="who",
    fold=fh.fold(rows=fh.count()),
)
"""No value of a column counts here, but the number of rows does."""


@pytest.mark.parametrize("tuning", [fh.Tuning(), fh.Tuning(direct_rows=0), READ_BY_SPARK])
def test_rows_of_which_no_column_is_used_are_counted(spark_lake: OpenLake, tuning: fh.Tuning) -> None:
    lake = spark_lake(tuning=tuning)
    for count, day in enumerate(DAYS[:3], 1):
        lake.append(events, some(day, 0))
        lake.refresh(EVERYBODY)
        assert lake.to_arrow(EVERYBODY).to_pylist() == [{"who": "all", "rows": 60 * count}]
    lake.replace(events, some(DAYS[0], 0, 7), partitions=[DAYS[0]])
    lake.refresh(EVERYBODY)
    assert lake.to_arrow(EVERYBODY).to_pylist() == [{"who": "all", "rows": 127}]


@pytest.mark.parametrize(
    ("changed", "factor", "is_full"),
    [(6, 8, False), (12, 8, True), (12, 0, False)],
    ids=["rows are passed", "Spark would pick them", "that counts no more"],
)
def test_many_rows_that_spark_would_pick_for_a_join_are_computed_again(
    spark_lake: OpenLake, changed: int, factor: int, is_full: bool
) -> None:
    tuning = fh.Tuning(direct_rows=0, passed_rows=0, picked_by_spark_factor=factor, restored_rows_factor=0)
    lake = spark_lake(tuning=tuning)
    one = fh.stream("t.one", schema={"key": "long", "n": "long"}, keys="key")
    two = fh.stream("t.two", schema={"key": "long", "label": "string"}, keys="key")
    table = fh.table(
        "t.joined",
        source=[one, two],
        rows=lambda one, two: one.join(two, "key").withColumn("label", F.regexp_replace("label", "a", "b")),
        fold=fh.fold(n=fh.total("n"), label=fh.maximum("label")),
    )
    lake.append(one, pa.table({"key": range(100), "n": range(100)}))
    lake.append(two, pa.table({"key": range(100), "label": ["a"] * 100}))
    lake.refresh(table)
    lake.append(one, pa.table({"key": range(changed), "n": [1000] * changed}))
    assert lake.refresh(table).full_recompute is is_full
    found = lake.to_arrow(table).sort_by("key").to_pylist()
    assert found == [{"key": n, "n": n + 1000 * (n < changed), "label": "b"} for n in range(100)]


@pytest.mark.classic
def test_few_rows_are_shuffled_into_one_part_and_the_session_keeps_its_settings(
    spark, spark_lake: OpenLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    doubled = F.udf(lambda text: text + text, "string")
    grouped = fh.table(
        "t.grouped",
        source=events,
        rows=lambda events: events.groupBy("key", doubled(F.sha2(F.col("day").cast("string"), 256)).alias("who")).agg(
            F.sum("n").alias("n")
        ),
        fold=fh.fold(total=fh.total("n"), rows=fh.count()),
        keys="who",
    )
    parts, plan = [], handed_over.planned_with

    def noted(rows: DataFrame, further: dict[str, str]) -> DataFrame:
        planned = plan(rows, further)
        parts.append(planned._jdf.queryExecution().toRdd().getNumPartitions())
        return planned

    monkeypatch.setattr(handed_over, "planned_with", noted)
    before = spark.conf.get("spark.sql.shuffle.partitions")
    for least in (1_000, 100):
        lake = spark_lake(f"lake{least}", tuning=fh.Tuning(passed_rows=least))
        for day in DAYS[:2]:  # then, two evaluations are subtracted
            lake.append(events, some(day, 0, 300))
            lake.refresh(grouped)
        assert set(parts) == ({1} if least == 1_000 else set())
        parts.clear()
        assert sum(lake.to_arrow(grouped)["total"].to_pylist()) == sum(
            sum(some(d, 0, 300)["n"].to_pylist()) for d in DAYS[:2]
        )
    assert spark.conf.get("spark.sql.shuffle.partitions") == before
