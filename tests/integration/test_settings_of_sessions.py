"""Settings of a Spark session, and values of a process, that somebody else changes while a lake is open."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from os import getenv
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import StringType
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import foldhouse as fh
from foldhouse.lake import opened
from foldhouse.logic.compiled import compile_table
from foldhouse.spark.session import WHOLE_PLANS
from foldhouse.storage.catalog import open_local_catalog

pytestmark = pytest.mark.spark

events = fh.stream("s.events", schema={"k": "string", "d": "date", "t": "timestamptz", "s": "string"}, keys="k")
texts = fh.table(
    "s.texts",
    source=events,
    rows=lambda e: e.selectExpr("k", "date_format(d, 'yyyy-MM-dd') AS d", "date_format(t, 'yyyy-MM-dd HH') AS t", "s"),
    keys="k",
    fold=fh.fold(d=fh.maximum("d"), t=fh.maximum("t"), rows=fh.count()),
)
OLD = [date(1, 1, 1), date(1500, 2, 28), date(1582, 10, 4), date(1899, 12, 31)]


@contextmanager
def settings(spark: SparkSession, **given: str) -> Iterator[None]:
    named = {name.replace("__", "."): value for name, value in given.items()}
    for name, value in named.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in named:
            spark.conf.unset(name)


@pytest.mark.parametrize("mode", ["LEGACY", "EXCEPTION"])
def test_old_dates_are_those_of_the_file_whatever_calendar_a_session_reads_with(
    spark: SparkSession, spark_lake, mode: str
) -> None:
    with settings(spark, spark__sql__parquet__datetimeRebaseModeInRead=mode):
        lake = spark_lake(in_process_rows=0)
        moments = [datetime(one.year, one.month, one.day, 7, tzinfo=UTC) for one in OLD]
        given = zip("abcd", OLD, moments, strict=True)
        lake.append(events, [{"k": k, "d": d, "t": t, "s": ""} for k, d, t in given])
        lake.refresh(texts)
        found = sorted((row["k"], row["d"], row["t"]) for row in lake.to_arrow(texts).to_pylist())
        read = sorted((row.k, row.d) for row in lake.read(events).select("k", "d").collect())
    assert found == [(k, str(one), f"{one} 07") for k, one in zip("abcd", OLD, strict=True)]
    assert read == list(zip("abcd", OLD, strict=True))


def test_damage_is_no_reason_to_leave_rows_out_whatever_a_session_ignores(spark: SparkSession, spark_lake) -> None:
    lake = spark_lake(in_process_rows=0)
    lake.append(events, [{"k": "a", "d": None, "t": None, "s": "x" * 5_000}])
    (path,) = lake.load(events).inspect.files()["file_path"].to_pylist()
    lake.append(events, [{"k": "b", "d": None, "t": None, "s": "y"}])
    file = Path(path.removeprefix("file://"))
    contents = bytearray(file.read_bytes())
    contents[8:40] = bytes(32)
    file.write_bytes(contents)
    ignored = {f"spark__sql__files__ignore{what}Files": "true" for what in ("Corrupt", "Missing")}
    with settings(spark, **ignored):
        with pytest.raises(fh.FoldhouseError):
            lake.refresh(texts)
        with pytest.raises(Exception, match=r"(?i)corrupt|damaged|checksum|could not read|FAILED_READ_FILE"):
            lake.read(events).collect()
    assert lake.head(texts) is None or not lake.to_arrow(texts).num_rows


hours = fh.table(
    "s.hours",
    source=events,
    rows=lambda e: e.selectExpr("to_date(t) AS day", "hour(t) AS hour"),
    keys=["day", "hour"],
    fold=fh.fold(rows=fh.count()),
)
days = fh.table(
    "s.days",
    source=events,
    rows=lambda e: e.selectExpr("to_date(t) AS day"),
    keys="day",
    fold=fh.fold(rows=fh.count()),
)
numbers = fh.table(
    "s.numbers",
    source=events,
    rows=lambda e: e.selectExpr("try_cast(s AS int) + 2147483647 AS n", "k"),
    keys="k",
    fold=fh.fold(n=fh.maximum("n")),
)
NIGHT = [{"k": "a", "d": None, "t": datetime(2024, 3, 30, 23, 30, tzinfo=UTC), "s": "0"}]
"""In Berlin, it is half an hour after midnight, in the night that summer time begins."""


@pytest.mark.parametrize("limit", [-1, 0, 1000])
@pytest.mark.parametrize("table", [hours, days], ids=["hours", "days"])
def test_an_open_lake_folds_no_days_of_a_time_zone_that_others_set(
    spark: SparkSession, spark_lake, table: fh.Table, limit: int
) -> None:
    lake = spark_lake(in_process_rows=limit)
    lake.append(events, NIGHT)
    lake.refresh(table)
    lake.append(events, NIGHT)
    with settings(spark, spark__sql__session__timeZone="Europe/Berlin"):
        with pytest.raises(fh.InvalidCall, match="Europe/Berlin"):
            lake.refresh(table)
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        lake.refresh(table)
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    (row,) = lake.to_arrow(table).to_pylist()
    assert row["day"] == date(2024, 3, 30)
    assert set(row.values()) & {2}


def test_an_open_lake_notices_that_a_number_overflows_to_null_now(spark: SparkSession, spark_lake) -> None:
    lake = spark_lake()
    lake.append(events, NIGHT)
    lake.refresh(numbers)
    lake.append(events, [{**NIGHT[0], "s": "1"}])
    with settings(spark, spark__sql__ansi__enabled="false"), pytest.raises(fh.DefinitionChanged):
        lake.refresh(numbers)
    with pytest.raises(fh.InvalidData, match="overflow"):
        lake.refresh(numbers)


def test_a_check_with_a_query_is_not_evaluated_in_another_time_zone(spark: SparkSession, spark_lake) -> None:
    by_day = fh.no_rows("SELECT * FROM {last} WHERE to_date(t) > DATE '2024-03-30'")
    last = fh.table("s.last", source=events, keys="k", fold=fh.fold(t=fh.maximum("t")), checks=[by_day])
    lake = spark_lake()
    lake.append(events, NIGHT)
    zone = settings(spark, spark__sql__session__timeZone="Europe/Berlin")
    with zone, pytest.raises(fh.InvalidCall, match="Europe/Berlin"):
        lake.refresh(last)
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert lake.refresh(last).checks[0].passed


@pytest.mark.parametrize("limit", [-1, 1000])
def test_a_renamed_column_keeps_its_values_in_a_session_that_reads_by_name(
    spark: SparkSession, spark_lake, limit: int
) -> None:
    lake = spark_lake(in_process_rows=limit)
    lake.append(events, NIGHT)
    with lake.load(events).update_schema() as update:
        update.rename_column("s", "was")
    with lake.load(events).update_schema() as update:
        update.add_column("s", StringType())
    renamed = fh.stream(events.name, schema={**dict(events.schema), "was": "string"}, keys="k")
    table = fh.table(
        "s.renamed",
        source=renamed,
        rows=lambda e: e.selectExpr("k", "reverse(was) AS was", "s"),
        keys="k",
        fold=fh.fold(was=fh.maximum("was"), s=fh.maximum("s")),
    )
    with settings(spark, spark__sql__parquet__fieldId__read__enabled="false"):
        read = lake.read(events).select("was", "s").collect()
        spark.conf.set("spark.sql.parquet.fieldId.read.enabled", "false")
        lake.refresh(table)
    spark.conf.set("spark.sql.parquet.fieldId.read.enabled", "true")
    assert [tuple(row) for row in read] == [("0", None)]
    assert lake.to_arrow(table).to_pylist() == [{"k": "a", "was": "0", "s": None}]


@pytest.mark.classic  # a Connect session cannot be copied: docs/limits.md
@pytest.mark.parametrize("deleted", [False, True], ids=["whole files", "files with deleted rows"])
def test_a_held_frame_keeps_its_values_when_its_session_reads_by_name(
    spark: SparkSession, tmp_path: Path, deleted: bool
) -> None:
    """All its columns were null, without an error."""
    session = spark.newSession()
    lake = fh.Lake(open_local_catalog(tmp_path / "lake"), lambda: session)
    lake.append(events, NIGHT)
    if deleted:
        lake.append(events, [{**NIGHT[0], "k": "b"}] * 200)
        lake.load(events).delete("k = 'a'")
    with lake.load(events).update_schema() as update:
        update.rename_column("s", "was")
    renamed = fh.stream(events.name, schema={**dict(events.schema), "was": "string"}, keys="k")
    held = lake.read(renamed).select("k", "was").distinct()
    held.createOrReplaceTempView("held")
    session.conf.set("spark.sql.parquet.fieldId.read.enabled", "false")
    read_later = lake.read(renamed).select("k", "was").distinct()
    viewed = session.sql("SELECT k, was FROM held WHERE was IS NOT NULL")
    key = "b" if deleted else "a"
    assert [[tuple(row) for row in one.collect()] for one in (held, viewed, read_later)] == [[(key, "0")]] * 3
    lake.close()


class Factor:
    def __init__(self) -> None:
        self.value = 2


RATE, FACTOR = 2, Factor()
"""What `rows` multiplies by, as in a notebook in which a cell is run again."""


@pytest.mark.parametrize("limit", [-1, 1000])
@pytest.mark.parametrize("factor", [lambda: RATE, lambda: FACTOR.value], ids=["a global", "an attribute"])
@pytest.mark.parametrize("length", ["octet_length(s)", "1"], ids=["on Spark", "direct"])
def test_a_value_that_changes_while_a_lake_is_open_is_noticed(
    spark_lake, monkeypatch: pytest.MonkeyPatch, factor, limit: int, length: str
) -> None:
    scaled = fh.table(
        "s.scaled",
        source=events,
        rows=lambda e: e.selectExpr("k", f"{factor()} * {length} AS n"),
        keys="k",
        fold=fh.fold(n=fh.total("n")),
    )
    lake = spark_lake(in_process_rows=limit)
    lake.append(events, NIGHT)
    lake.refresh(scaled)
    lake.append(events, NIGHT)
    monkeypatch.setitem(globals(), "RATE", 3)
    monkeypatch.setattr(FACTOR, "value", 3)
    with pytest.raises(fh.DefinitionChanged):
        lake.refresh(scaled)
    assert lake.to_arrow(scaled).to_pylist() == [{"k": "a", "n": 2}]
    lake.rebuild(scaled)
    assert lake.to_arrow(scaled).to_pylist() == [{"k": "a", "n": 6}]


amounts = fh.stream("s.amounts", schema={"k": "string", "n": "long"})


def counted(rows: Callable[[DataFrame], DataFrame]) -> fh.Table:
    return fh.table("s.counted", source=amounts, rows=rows, keys="k", fold=fh.fold(n=fh.count(), x=fh.total("x")))


def halves(rows: DataFrame) -> DataFrame:
    half = F.udf(lambda number: number / 2, "long")  # a float where the type says an integer
    return rows.select("k", half("n").alias("x"))


def shown_bytes(rows: DataFrame) -> DataFrame:
    length = F.udf(lambda given: len(repr(given)), "long")
    return rows.select("k", length(F.col("k").cast("binary")).alias("x"))


def rounded(rows: DataFrame) -> DataFrame:
    raised = F.pandas_udf(lambda numbers: numbers + 0.5, "long")
    return rows.select("k", raised("n").alias("x"))


def large_types(rows: DataFrame) -> DataFrame:
    is_large = F.arrow_udf(lambda keys: pa.repeat(int(pa.types.is_large_string(keys.type)), len(keys)), "long")
    return rows.select("k", is_large("k").alias("x"))


def escaped(rows: DataFrame) -> DataFrame:
    return rows.select(F.expr(r"regexp_replace(k, '\\\\d', 'x')").alias("k"), F.col("n").alias("x"))


def substituted(rows: DataFrame) -> DataFrame:
    return rows.select("k", F.expr("n * ${my.rate}").alias("x"))


def of_duplicates(rows: DataFrame) -> DataFrame:
    twice = """try_parse_json(concat('{"a": 1, "a": ', n, '}'))"""
    return rows.select("k", F.expr(f"coalesce(try_variant_get({twice}, '$.a', 'long'), -1)").alias("x"))


@pytest.mark.classic
@pytest.mark.parametrize(
    ("rows", "setting", "before", "after"),
    [
        (halves, "spark.sql.execution.pythonUDF.arrow.enabled", "true", "false"),
        (shown_bytes, "spark.sql.execution.pyspark.binaryAsBytes", "true", "false"),
        (rounded, "spark.sql.execution.pandas.convertToArrowArraySafely", "false", "true"),
        (large_types, "spark.sql.execution.arrow.useLargeVarTypes", "false", "true"),
        (escaped, "spark.sql.parser.escapedStringLiterals", "false", "true"),
        (substituted, "my.rate", "2", "3"),
        (of_duplicates, "spark.sql.variant.allowDuplicateKeys", "false", "true"),
    ],
    ids=[
        "how Python functions are called",
        "how they get bytes",
        "what they may return",
        "how Arrow has their texts",
        "how texts are parsed",
        "a variable of a text",
        "what JSON may repeat",
    ],
)
def test_a_setting_by_which_rows_are_made_is_refused_once_it_changes(
    spark: SparkSession, spark_lake, rows: Callable[[DataFrame], DataFrame], setting: str, before: str, after: str
) -> None:
    lake, table, name = spark_lake(), counted(rows), setting.replace(".", "__")
    with settings(spark, **{name: before}):
        lake.append(amounts, [{"k": f"k{n}", "n": n} for n in range(4)])
        lake.refresh(table)
        first = sorted(map(str, lake.to_arrow(table).to_pylist()))
    with settings(spark, **{name: after}):
        lake.append(amounts, [{"k": f"k{n}", "n": n} for n in range(4, 8)])
        with pytest.raises(fh.DefinitionChanged):
            lake.refresh(table)
        assert sorted(map(str, lake.to_arrow(table).to_pylist())) == first
    with settings(spark, **{name: before}):
        assert lake.refresh(table).committed
        assert lake.verify(table).wrong == 0


@pytest.mark.parametrize(
    ("setting", "value"), [("spark.sql.debug.maxToStringFields", "25"), ("spark.sql.maxPlanStringLength", "400")]
)
def test_a_plan_is_read_whole_whatever_a_session_prints(
    spark: SparkSession, spark_lake, setting: str, value: str
) -> None:
    names = [f"c{at:02}" for at in range(30)]
    wide = fh.stream("s.wide", schema={"k": "string", **dict.fromkeys(names, "long")}, keys="k", sequence_by="c00")

    def declared(rate: int) -> fh.Table:
        rows = functools.partial(lambda e, rate: e.withColumn("c29", F.col("c29") * rate), rate=rate)
        return fh.table("s.widened", source=wide, rows=rows, fold=fh.latest())

    lake = spark_lake()
    lake.append(wide, [{"k": k, **dict.fromkeys(names, 1)} for k in ("a", "b")])
    with settings(spark, **{setting.replace(".", "__"): value}):
        lake.refresh(declared(2))
        lake.append(wide, [{"k": "a", **dict.fromkeys(names, 2)}])
        with pytest.raises(fh.DefinitionChanged):
            lake.refresh(declared(3))
    spark.conf.set(setting, WHOLE_PLANS[setting])


def opened_and_read(file: Path) -> str:
    with open(file) as opened:
        return opened.read()


@pytest.mark.parametrize("way", ["environ", "getenv", "a file", "open"])
def test_what_rows_reads_outside_of_the_process_is_refused_once_it_changes(
    spark_lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    file = tmp_path / "rate.txt"
    ways = {
        "environ": lambda rows: rows.selectExpr("k", f"n * {os.environ['RATE']} AS x"),
        "getenv": lambda rows: rows.selectExpr("k", f"n * {getenv('RATE')} AS x"),
        "a file": lambda rows: rows.selectExpr("k", f"n * {Path(str(file)).read_text()} AS x"),
        "open": lambda rows: rows.selectExpr("k", f"n * {opened_and_read(file)} AS x"),
    }
    lake, table = spark_lake(), counted(ways[way])
    monkeypatch.setenv("RATE", "2")
    file.write_text("2")
    lake.append(amounts, [{"k": "a", "n": 1}])
    lake.refresh(table)
    monkeypatch.setenv("RATE", "3")
    file.write_text("3")
    lake.append(amounts, [{"k": "a", "n": 10}])
    with pytest.raises(fh.DefinitionChanged):
        lake.refresh(table)


def test_a_declaration_is_compiled_once_while_nothing_changes(spark_lake, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []

    def counting(table: fh.Table, *rest: Any) -> Any:
        compiled.append(table.name)
        return compile_table(table, *rest)

    monkeypatch.setattr(opened, "compile_table", counting)
    lake, table = spark_lake(in_process_rows=0), counted(halves)
    for number in range(3):
        lake.append(amounts, [{"k": "a", "n": number}])
        assert lake.refresh(table).committed
    assert compiled == [table.name]
