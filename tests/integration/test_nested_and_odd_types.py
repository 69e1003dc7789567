"""Nested columns from a stream through tables over tables, and keys of every type that can be one."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime, time
from decimal import Decimal

import pyarrow as pa
import pytest

import foldhouse as fh

NESTED = {
    "id": "long",
    "version": "long",
    "gone": "boolean",
    "address": "struct<city: string, codes: list<int>>",
    "tags": "list<string>",
    "prices": "map<string, decimal(9,2)>",
}
visits = fh.stream("n.visits", schema=NESTED, keys="id", sequence_by="version")
current = fh.table(
    "n.current", source=visits, fold=fh.latest(columns=["address", "tags", "prices"], delete_when="gone")
)
by_city = fh.table(
    "n.by_tags",
    source=current,
    keys="tags_text",
    rows=lambda current: current.selectExpr("array_join(tags, ',') AS tags_text", "address", "id"),
    fold=fh.fold(people=fh.count(), addresses=fh.collect("address", by="id")),
)


def visit(number: int, version: int, city: str | None, tags: list | None, gone: bool = False) -> dict:
    address = None if city is None else {"city": city, "codes": [version, None]}
    prices = [("low", Decimal("1.50")), ("high", None)] if tags else None
    return {"id": number, "version": version, "gone": gone, "address": address, "tags": tags, "prices": prices}


def events(*rows: dict) -> pa.Table:
    kinds = pa.schema(
        [
            ("id", pa.int64()),
            ("version", pa.int64()),
            ("gone", pa.bool_()),
            ("address", pa.struct([("city", pa.string()), ("codes", pa.list_(pa.int32()))])),
            ("tags", pa.list_(pa.string())),
            ("prices", pa.map_(pa.string(), pa.decimal128(9, 2))),
        ]
    )
    return pa.Table.from_pylist(list(rows), kinds)


def published(row: dict) -> dict:
    return {name: row[name] for name in ("id", "address", "tags", "prices")}


def test_nested_columns_are_folded_changed_and_read_as_they_came(lake: fh.Lake) -> None:
    first, other = visit(1, 1, "Rome", ["a", None]), visit(2, 1, None, None)
    lake.append(visits, events(first, other))
    before = lake.refresh(current).snapshot_id
    newer = visit(1, 2, "Oslo", [])
    tie = visit(2, 1, "Bern", ["z"])
    lake.append(visits, events(newer, tie))
    lake.refresh(current)
    found = sorted(lake.to_arrow(current).to_pylist(), key=lambda row: row["id"])
    assert found == [published(newer), published(tie)], "of a tie the greater row, and null is lowest"
    changes = lake.changes(current, after=before)
    assert sorted(changes["_change_type"].to_pylist()) == ["UPDATE_AFTER"] * 2 + ["UPDATE_BEFORE"] * 2
    lake.append(visits, events(visit(1, 3, None, None, gone=True)))
    lake.refresh(current)
    assert lake.to_arrow(current).to_pylist() == [published(tie)]


@pytest.mark.spark
@pytest.mark.parametrize("in_process_rows", [fh.Tuning().in_process_rows, -1], ids=["in process", "in tasks"])
def test_nested_columns_go_through_spark(spark_lake, in_process_rows: int) -> None:
    lake = spark_lake(in_process_rows=in_process_rows)
    lake.append(visits, events(visit(1, 1, "Rome", ["a"]), visit(2, 1, "Oslo", ["a"]), visit(3, 1, "Bern", ["b"])))
    for table in (current, by_city):
        lake.refresh(table)
    lake.append(visits, events(visit(2, 2, None, None, gone=True), visit(3, 2, "Pisa", ["a"])))
    for table in (current, by_city):
        lake.refresh(table)
    pisa, rome = {"city": "Pisa", "codes": [2, None]}, {"city": "Rome", "codes": [1, None]}
    assert lake.to_arrow(by_city).to_pylist() == [{"tags_text": "a", "people": 2, "addresses": [rome, pisa]}]
    read = lake.read(current).orderBy("id").collect()
    assert [row["prices"] for row in read] == [{"low": Decimal("1.50"), "high": None}] * 2


KEYS = {
    "boolean": [True, False],
    "int": [-1, 0, 2**31 - 1],
    "long": [-1, 2**62],
    "float": [0.5, float("nan"), float("-inf")],
    "double": [0.1, float("nan")],
    "decimal(20,3)": [Decimal("1.500"), Decimal("-1.500")],
    "date": [date(1969, 12, 31), date(2024, 2, 29)],
    "time": [time(0), time(23, 59, 59, 999999)],
    "timestamp": [datetime(1969, 12, 31, 23), datetime(2024, 1, 1, 0, 0, 0, 1)],
    "timestamptz": [datetime(2024, 1, 1, tzinfo=UTC), datetime(1960, 1, 1, tzinfo=UTC)],
    "string": ["", "a", "ä", "\U0001f600"],
    "binary": [b"", b"\x00\xff"],
    "fixed[4]": [b"abcd", b"\x00\x00\x00\x01"],
    "uuid": [uuid.UUID(int=1).bytes, uuid.UUID(int=2**127).bytes],
}


UNHASHED = ("boolean", "float", "double")
"""Iceberg has no hash of these, and a declaration with buckets says so."""


@pytest.mark.parametrize(
    ("kind", "buckets"), [(k, b) for k in KEYS for b in (1, 3) if b == 1 or k not in UNHASHED], ids=str
)
def test_a_key_of_any_type_meets_itself_again(lake: fh.Lake, kind: str, buckets: int) -> None:
    stream = fh.stream("n.keyed", schema={"k": kind, "n": "long"})
    table = fh.table(
        "n.by_key", source=stream, keys="k", buckets=buckets, fold=fh.fold(n=fh.total("n"), rows=fh.count())
    )
    arrow = pa.array([*KEYS[kind], None], _arrow(kind))
    for _ in range(2):
        lake.append(stream, pa.table({"k": arrow, "n": pa.array(range(len(arrow)), pa.int64())}))
        refreshed = lake.refresh(table)
    assert refreshed.null_key_rows == 1
    found = {repr(row["k"]): (row["n"], row["rows"]) for row in lake.to_arrow(table).to_pylist()}
    given = pa.array(KEYS[kind], _arrow(kind)).to_pylist()
    assert found == {repr(value): (2 * place, 2) for place, value in enumerate(given)}


def _arrow(kind: str) -> pa.DataType:
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    from foldhouse.storage.schema import schema_of_types

    return schema_to_pyarrow(schema_of_types({"k": kind})).field("k").type


@pytest.mark.parametrize("keys", [["k"], ["k", "j"]], ids=["alone", "with another"])
def test_a_zero_is_one_key_and_a_nan_is_one_key_whatever_came_before(lake: fh.Lake, keys: list[str]) -> None:
    stream = fh.stream("n.floats", schema={"k": "double", "j": "int", "n": "long"})
    table = fh.table("n.by_float", source=stream, keys=keys, fold=fh.fold(n=fh.total("n"), least=fh.minimum("n")))
    batches = ([-0.0, 1.0, float("nan")], [0.0], [-0.0, float("nan")])
    for values in batches:
        columns = {"k": pa.array(values), "j": pa.array([1] * len(values)), "n": pa.array(range(len(values)))}
        lake.append(stream, pa.table(columns))
        lake.refresh(table)
    found = {repr(row["k"]): (row["n"], row["least"]) for row in lake.to_arrow(table).to_pylist()}
    assert found == {"0.0": (0, 0), "1.0": (1, 1), "nan": (3, 1)}
    lake.rollback(stream, to=lake.history(stream)[1].id)
    lake.refresh(table)
    found = {repr(row["k"]): (row["n"], row["least"]) for row in lake.to_arrow(table).to_pylist()}
    assert found == {"0.0": (0, 0), "1.0": (1, 1), "nan": (2, 2)}


def test_columns_called_nearly_as_the_kernel_calls_its_own_are_kept_apart(lake: fh.Lake) -> None:
    names = ["a", "a__held", "held_a", "file", "position", "state_rows"]
    stream = fh.stream(
        "n.odd", schema={"key": "string", "day": "date"} | dict.fromkeys(names, "long"), keys="key", partition_by="day"
    )
    table = fh.table("n.by_odd", source=stream, fold=fh.fold(**{name: fh.maximum(name) for name in names}))
    days = [date(2024, 1, day) for day in (1, 2)]
    for number, day in enumerate(days, start=1):
        values = {name: place * number for place, name in enumerate(names)}
        lake.append(stream, pa.Table.from_pylist([{"key": "k", "day": day} | values]))
        lake.refresh(table)
        assert lake.to_arrow(table).to_pylist() == [{"key": "k"} | values]
    lake.replace(stream, lake.to_arrow(stream).slice(0, 0), partitions=days[1:])
    assert lake.refresh(table).rows_recomputed > 0
    assert lake.to_arrow(table).to_pylist() == [{"key": "k"} | {name: place for place, name in enumerate(names)}]
