"""Behaviour of Spark 4.3 that surprises, and the text of its analysed plans, on which pruning depends."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

import foldhouse as fh
from foldhouse.logic.analysed import analysed
from foldhouse.logic.compiled import compile_table
from foldhouse.logic.plan import source_name
from foldhouse.logic.plan_text import analysed_plan, normalised
from foldhouse.logic.shape import Branch, Origin, Shape, origins_of, shape_of
from foldhouse.storage.schema import Layout, schema_of_types

pytestmark = [pytest.mark.spark, pytest.mark.classic]

SOURCE = "a string, b string, at timestamp_ntz, tz timestamp, d date, n int, t string"
NIGHT = datetime(1969, 12, 31, 23, 30)
LATE = datetime(2024, 1, 1, 23, 30, tzinfo=UTC)
ROWS = [
    ("a", "b", NIGHT, LATE, date(2024, 1, 1), 1, "2024-02-29"),
    ("A", "a", datetime(2024, 2, 29, 23, 59), LATE.replace(hour=0), date(1970, 1, 1), 2, "1969-12-31"),
]


@pytest.fixture(scope="module")
def source(spark: SparkSession) -> DataFrame:
    """Rows that carry each of their columns a second time, so that an origin can be checked against the values."""
    again = ", ".join(f"was_{column}" for column in SOURCE.split(", "))
    return spark.createDataFrame([row + row for row in ROWS], f"{SOURCE}, {again}").alias(source_name(0))


PLAIN: dict[str, tuple[Callable[[DataFrame], DataFrame], Origin]] = {
    "as it is": (lambda rows: rows.withColumnRenamed("a", "key"), Origin("a")),
    "renamed by alias": (lambda rows: rows.select("*", F.col("b").alias("key")), Origin("b")),
    "renamed in SQL": (lambda rows: rows.selectExpr("*", "a AS key"), Origin("a")),
    "renamed twice": (lambda r: r.withColumn("between", F.col("b")).withColumn("key", F.col("between")), Origin("b")),
    "a name that changes hands": (
        lambda rows: rows.withColumn("key", F.col("a")).withColumn("a", F.upper("b")),
        Origin("a"),
    ),
    "another column under its name": (
        lambda r: r.withColumn("a", F.col("b")).withColumnRenamed("a", "key"),
        Origin("b"),
    ),
    "filtered": (lambda rows: rows.where("n > 0 AND a <> 'b'").withColumn("key", F.col("a")), Origin("a")),
    "of an aliased frame": (lambda rows: rows.alias("x").select("x.*", F.col("x.a").alias("key")), Origin("a")),
    "to_date": (lambda rows: rows.withColumn("key", F.to_date("at")), Origin("at", is_day=True)),
    "to_date of an instant": (lambda rows: rows.withColumn("key", F.to_date("tz")), Origin("tz", is_day=True)),
    "to_date of a date": (lambda rows: rows.withColumn("key", F.to_date("d")), Origin("d", is_day=True)),
    "cast to a date": (lambda rows: rows.withColumn("key", F.col("at").cast("date")), Origin("at", is_day=True)),
    "date() in SQL": (lambda rows: rows.selectExpr("*", "date(tz) AS key"), Origin("tz", is_day=True)),
    "the day of a renamed column": (
        lambda rows: rows.withColumnRenamed("at", "then").withColumn("key", F.to_date("then")),
        Origin("at", is_day=True),
    ),
    "a day that is renamed": (
        lambda rows: rows.withColumn("day", F.to_date("at")).withColumnRenamed("day", "key"),
        Origin("at", is_day=True),
    ),
}


@pytest.mark.parametrize("form", PLAIN)
def test_a_column_that_is_a_source_column_or_its_day_is_recognised(source: DataFrame, form: str) -> None:
    make, expected = PLAIN[form]
    rows = make(source)
    found = origins_of(analysed(rows.select("key")), ["key"])
    assert {column: Origin(o.column.removeprefix("was_"), o.is_day) for column, o in found.items()} == {"key": expected}
    assert_true(rows, found["key"])


def assert_true(rows: DataFrame, origin: Origin) -> None:
    """Whether the key of every row is what its origin says."""
    for row in rows.collect():
        value = row[f"was_{origin.column.removeprefix('was_')}"]
        assert row["key"] == (value.date() if origin.is_day and isinstance(value, datetime) else value)


UNKNOWN: dict[str, Callable[[DataFrame], DataFrame]] = {
    "computed": lambda rows: rows.withColumn("key", F.upper("a")),
    "computed under the old name": lambda rows: rows.withColumn("a", F.lower("a")).withColumnRenamed("a", "key"),
    "the first that is given": lambda rows: rows.withColumn("key", F.coalesce("a", "b")),
    "a constant": lambda rows: rows.withColumn("key", F.lit("a")),
    "the month": lambda rows: rows.withColumn("key", F.date_trunc("month", "at").cast("date")),
    "the day after": lambda rows: rows.withColumn("key", F.date_add(F.to_date("at"), 1)),
    "the day of a moment later": lambda rows: rows.selectExpr("*", "to_date(at + INTERVAL 1 DAY) AS key"),
    "a day by a format": lambda rows: rows.withColumn("key", F.to_date("t", "yyyy-MM-dd")),
    "exploded": lambda rows: rows.withColumn("key", F.explode(F.split("t", "-"))),
    "of a union": lambda rows: rows.union(rows.withColumn("a", F.col("b"))).withColumn("key", F.col("a")),
    "a struct's field": lambda rows: rows.withColumn("key", F.struct("a", "b").getField("b")),
}


@pytest.mark.parametrize("form", UNKNOWN)
def test_everything_else_counts_as_unknown(source: DataFrame, form: str) -> None:
    assert origins_of(analysed(UNKNOWN[form](source).select("key")), ["key"]) == {}


def test_a_source_that_is_joined_with_itself_counts_as_two(source: DataFrame) -> None:
    """Spark gives the hidden columns of `other` the numbers of those of `source`."""
    other = source.select("n", F.col("b").alias("key"))
    plan = analysed(source.join(other, on="n").select("key", "a"))
    assert shape_of(plan, 1) == Shape(cells=(("n",),), sources=(0, 0))
    assert origins_of(plan, ["key", "a"]) == {"key": Origin("b", place=1), "a": Origin("a")}
    plan = analysed(source.join(other, source["a"] == other["key"]).select("key"))
    branch = Branch(1, ("b",), 0, ("a",))
    assert shape_of(plan, 1) == Shape(branches=(branch,), sources=(0, 0))
    assert origins_of(plan, ["key"]) == {"key": Origin("b", place=1)}


def test_a_column_name_that_looks_like_one_of_the_plan_is_not_taken_for_it(source: DataFrame) -> None:
    for number in range(3):
        name = f"k#{number}"
        found = origins_of(analysed(source.selectExpr(f"t AS `{name}`").select(f"`{name}`")), [name])
        assert found in ({}, {name: Origin("t")})


def test_a_literal_that_looks_like_a_plan_is_not_taken_for_it(source: DataFrame) -> None:
    rows = source.withColumn("key", F.upper("a"))
    plan = analysed_plan(rows)
    made, column = re.search(r"upper\(a#(\d+)\) AS key#(\d+)", plan), "a"
    assert made is not None
    for literal in (
        f"[{column}#{made[1]} AS key#{made[2]}]",
        f" to_date(at#{made[1]}, None, Some(UTC), true) AS key#{made[2]},",
        f"\n   +- LogicalRDD [key#{made[2]}]",
        f"\nProject [key#{made[1]}]",
    ):
        assert origins_of(analysed(rows.withColumn("note", F.lit(literal)).select("key")), ["key"]) == {}, literal


def test_many_columns_do_not_shorten_the_plan(spark: SparkSession) -> None:
    names = [f"c{number}" for number in range(200)]
    rows = spark.createDataFrame([], ", ".join(f"{name} int" for name in names)).alias(source_name(0))
    assert origins_of(analysed(rows.select(*names)), names) == {name: Origin(name) for name in names}


def test_equal_logic_gives_equal_plans_and_other_logic_does_not(source: DataFrame) -> None:
    def plan(limit: int) -> str:
        return normalised(analysed_plan(source.where(f"n > {limit}").withColumn("key", F.upper("a"))))

    assert plan(1) == plan(1)
    assert analysed_plan(source.withColumn("k", F.upper("a"))) != analysed_plan(source.withColumn("k", F.upper("a")))
    assert plan(1) != plan(2)


def test_the_hash_of_a_definition_goes_by_its_logic(spark: SparkSession, tmp_path: Path) -> None:
    schema = schema_of_types({"key": "string", "n": "int"})
    layout = Layout(schema.model_dump_json(), '{"spec-id": 0, "fields": []}', tmp_path.as_uri(), (), ())
    events = fh.stream("shop.events", schema={"key": "string", "n": "int"}, keys="key")

    def hash_of(rows: Callable[[DataFrame], DataFrame], **columns: fh.ColumnFold) -> str:
        table = fh.table("shop.t", source=events, rows=rows, fold=fh.fold(**columns))
        return compile_table(table, [layout], lambda: spark).definition_hash

    def positive(numbers: DataFrame) -> DataFrame:
        limit = 0
        return numbers.where(F.col("n") > limit)

    same = hash_of(lambda events: events.where(F.col("n") > 0), units=fh.total("n"))
    assert hash_of(positive, units=fh.total("n")) == same
    assert hash_of(positive, units=fh.total(lambda: F.col("n"))) != hash_of(
        positive, units=fh.total(lambda: -F.col("n"))
    )
    others = [
        hash_of(lambda events: events.where(F.col("n") > 1), units=fh.total("n")),
        hash_of(positive, units=fh.maximum("n")),
        hash_of(positive, other=fh.total("n")),
        hash_of(positive, units=fh.total("n + 1")),
    ]
    assert len({same, *others}) == 5


def test_parquet_is_read_by_field_id_whatever_its_columns_are_called(spark: SparkSession, tmp_path: Path) -> None:
    ids = [pa.field("old", pa.string(), metadata={"PARQUET:field_id": "1"})]
    pq.write_table(pa.table([["x"]], schema=pa.schema(ids)), tmp_path / "one.parquet")
    wanted = T.StructType(
        [
            T.StructField("new", T.StringType(), True, {"parquet.field.id": 1}),
            T.StructField("old", T.StringType(), True, {"parquet.field.id": 2}),
        ]
    )
    read = spark.read.schema(wanted).parquet(str(tmp_path / "one.parquet"))
    assert [row.asDict() for row in read.collect()] == [{"new": "x", "old": None}]


def _where_it_runs(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import foldhouse.kernel.combine as module

    for _ in batches:
        yield pa.record_batch({"what": [sys.prefix, module.__name__]})


def test_workers_run_in_the_virtual_environment_of_the_driver(spark: SparkSession) -> None:
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    rows = spark.range(1, numPartitions=1).mapInArrow(_where_it_runs, "what string").collect()
    assert [row.what for row in rows] == [sys.prefix, "foldhouse.kernel.combine"]


def run_apart(*lines: str) -> subprocess.CompletedProcess[str]:
    """In a process without a Spark session."""
    return subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False)


def test_a_column_cannot_be_made_before_there_is_a_session() -> None:
    done = run_apart("from pyspark.sql import functions as F", "F.col('a') == 1")
    assert done.returncode != 0
    assert "SESSION_OR_CONTEXT_NOT_EXISTS" in done.stderr or "AssertionError" in done.stderr


def test_a_declaration_can_be_made_before_there_is_a_session() -> None:
    done = run_apart(
        "import foldhouse as fh",
        "from pyspark.sql import SparkSession, functions as F",
        "s = fh.stream('a.s', schema={'n': 'int'}, keys='n')",
        "fold = fh.fold(x=fh.total(lambda: F.col('n')))",
        "fh.table('a.t', source=s, rows=lambda s: s.where(F.col('n') > 0), fold=fold)",
        "assert SparkSession.getActiveSession() is None",
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_days_are_those_of_utc(source: DataFrame) -> None:
    found: list[Any] = [row.day for row in source.select(F.to_date("tz").alias("day")).collect()]
    assert found == [date(2024, 1, 1), date(2024, 1, 1)]


def test_a_data_frame_made_of_arrow_chunks_ends_at_the_first_empty_one(spark) -> None:
    """So every table of ours is one chunk before it becomes a DataFrame: else rows are lost without a word."""
    chunks = [pa.table({"a": [1]}), pa.table({"a": pa.array([], pa.int64())}), pa.table({"a": [2]})]
    assert spark.createDataFrame(pa.concat_tables(chunks)).count() == 1
    assert spark.createDataFrame(pa.concat_tables(chunks).combine_chunks()).count() == 2


def test_small_files_leave_the_large_ones_to_all_tasks_alike(spark: SparkSession, tmp_path: Path) -> None:
    """Spark counts the opening of a file as 4 MB of it: with small files beside them, one task gets most large ones."""
    chance = np.random.default_rng(0)
    for number, rows in enumerate([900_000] * 4 + [10] * 11):
        columns = pa.table({"n": chance.integers(-(2**62), 2**62, rows)})
        pq.write_table(columns, tmp_path / f"{number}.parquet", use_dictionary=False)

    def shares(opening: str) -> list[int]:
        session = spark.newSession()
        session.conf.set("spark.sql.files.openCostInBytes", opening)
        tasks = session.read.parquet(str(tmp_path)).groupBy(F.spark_partition_id()).count().collect()
        return sorted(task[1] for task in tasks)

    assert max(shares(str(4 * 1024 * 1024))) > 3 * 900_000, "Spark's own setting has become harmless"
    assert max(shares(str(spark.conf.get("spark.sql.files.openCostInBytes")))) < 2 * 900_000 + 1_000
