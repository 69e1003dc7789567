"""Columns with dots and backticks in their names, which Spark takes for fields of structs and for quotes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

import pytest

import foldhouse as fh

pytestmark = pytest.mark.spark

SCHEMA = {"a.key": "string", "d.ay": "date", "n`m": "int", "s.eq": "int", "e`.`id": "string"}
events = fh.stream("odd.events", schema=SCHEMA, sequence_by="s.eq", event_id="e`.`id")
DAYS = [date(2024, 3, day) for day in (1, 2)]
ROWS: dict[str, Any] = {
    "none": None,
    "a filter": lambda events: events.where("`s.eq` > 0"),
    "what Spark alone computes": lambda events: events.selectExpr("*", "hash(`s.eq`) AS h"),
}
FOLD = fh.fold(total=fh.total("n`m"), last=fh.latest("n`m"), **{"mean.of": fh.average("n`m")})


def event(key: str | None, day: date, n: int, seq: int, id: str) -> dict[str, Any]:
    return dict(zip(SCHEMA, (key, day, n, seq, id), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "in_process_rows"),
    [("none", 200_000), ("none", -1), ("a filter", -1), ("what Spark alone computes", 200_000)],
)
def test_a_table_of_oddly_named_columns(spark_lake: Callable[..., fh.Lake], name: str, in_process_rows: int) -> None:
    lake = spark_lake(tuning=fh.Tuning(in_process_rows=in_process_rows))
    table = fh.table("odd.sums", source=events, rows=ROWS[name], keys=["a.key", "d.ay"], partition_by="d.ay", fold=FOLD)
    lake.append(
        events, [event("x", DAYS[0], 1, 1, "1"), event("x", DAYS[1], 9, 1, "2"), event(None, DAYS[0], 4, 1, "3")]
    )
    lake.backfill(table, DAYS[:1])
    lake.append(events, [event("x", DAYS[0], 5, 2, "1"), event("x", DAYS[0], 7, 1, "4")])
    lake.refresh(table)
    assert [tuple(row.values()) for row in lake.to_arrow(table).to_pylist()] == [("x", DAYS[0], 12, 5, 6.0)]
    for options in ({}, {"share": 0.5}, {"since": lake.history(table)[-1].id}):
        assert lake.verify(table, **options).passed
    assert lake.quarantined(table).num_rows == 1


def test_a_column_is_not_the_field_of_a_struct(spark_lake: Callable[..., fh.Lake]) -> None:
    lake = spark_lake()
    stream = fh.stream("odd.structs", schema={"s": "struct<x: string, n: int>", "x": "string", "n": "int"})
    renamed = lambda rows: rows.withColumnsRenamed({"x": "s.x", "n": "s.n"})  # noqa: E731
    table = fh.table("odd.s", source=stream, rows=renamed, keys="s.x", fold=fh.fold(n=fh.total("s.n")))
    lake.append(stream, [{"s": {"x": "inside", "n": 1}, "x": "outside", "n": 100}])
    lake.refresh(table)
    assert lake.to_arrow(table).to_pylist() == [{"s.x": "outside", "n": 100}]
    assert lake.verify(table).passed


def test_a_frame_of_spark_is_appended(spark_lake: Callable[..., fh.Lake]) -> None:
    lake = spark_lake()
    stream = fh.stream("odd.frames", schema=SCHEMA)
    row = event("x", DAYS[0], 1, 1, "1")
    frame = lake.spark.createDataFrame([tuple(row.values())], "a string, b date, c int, d int, e string").toDF(*SCHEMA)
    lake.append(stream, frame)
    assert lake.to_arrow(stream).to_pylist() == [row]


@pytest.mark.parametrize(
    ("rows", "way"),
    [(None, "choose one of them"), (lambda events: events, "keep it in `rows`, or choose one of them")],
)
def test_a_key_that_is_no_column_is_answered_with_the_columns(
    spark_lake: Callable[..., fh.Lake], rows: Any, way: str
) -> None:
    lake = spark_lake()
    source = fh.stream("odd.typo", schema={"customer": "string", "n": "long"})
    lake.append(source, [{"customer": "a", "n": 1}])
    typo = fh.table("odd.typos", source=source, rows=rows, keys="custmer", fold=fh.fold(n=fh.total("n")))
    with pytest.raises(fh.DefinitionError) as failure:
        lake.refresh(typo)
    said = "odd.typos: the key column 'custmer' is not among the rows to fold (customer, n); "
    assert str(failure.value) == said + way
