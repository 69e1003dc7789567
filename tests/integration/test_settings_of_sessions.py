"""Settings of a Spark session that somebody else chose: they change no row of a file, and hide no damage."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import foldhouse as fh

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
