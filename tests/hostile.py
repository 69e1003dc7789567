"""Calls that nobody should make, by subject: each must be answered, or refused with an error of ours."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

import foldhouse as fh

# ruff: noqa: E501  (tables of values)
Call = Callable[[fh.Lake], Any]
"""Something a user may do with a lake that holds `h.events` and `h.totals`."""

SCHEMA = {"key": "string", "day": "date", "n": "long"}
events = fh.stream("h.events", schema=SCHEMA, keys="key", sequence_by="n", partition_by="day")
totals = fh.table("h.totals", source=events, keys="key", fold=fh.fold(units=fh.total("n")))
by_day = fh.table("h.by_day", source=events, keys=["day", "key"], partition_by="day", fold=fh.fold(units=fh.total("n")))
ROWS = pa.table(
    {
        "key": pa.array(["a", "b"]),
        "day": pa.array([date(2024, 1, 1), date(2024, 1, 2)]),
        "n": pa.array([1, 2], pa.int64()),
    }
)

ODD: list[Any] = [
    None, True, 0, -1, 2**63, 2**200, 1.5, math.nan, math.inf, b"x", "", " ", "\0", "a\0b", "é", "x" * 10_000, "\ud800",
    "../../evil", "'; DROP TABLE x; --", "a.b.c.d", ".", "..", [], [1], ["a", None], {}, {"a": 1}, (), set(), object(),
    date(1, 1, 1), date.max, datetime(1, 1, 1), datetime.max, datetime.max.replace(tzinfo=UTC), timedelta(days=-1),
    timedelta.max, time(1), Decimal("NaN"), lambda: 1, int, ROWS, events, totals,
]  # fmt: skip

TYPES = [
    "time", "interval", "duration", "variant", "unknown", "timestamp_ns", "timestamptz_ns", "geometry", "uuid",
    "fixed[0]", "fixed[-1]", "fixed[99999999999]", "fixed[16]", "decimal", "decimal(0,0)", "decimal(39,0)",
    "decimal(5,9)", "decimal(-1,2)", "decimal(9,-2)", "decimal(1e3,2)", "list", "list<>", "list<int", "list<list<>>",
    "list<interval>", "map<string>", "map<list<int>,int>", "map<string,time>", "struct<>", "struct<a>", "struct<a:int,a:int>",
    "struct<:int>", "struct<a b:int>", "list<" * 50 + "int" + ">" * 50, "list<" * 3000 + "int" + ">" * 3000, "INT", "int ", "int\0",
    "string;", "long long", "binary", "boolean", "float", "void", "null",
]  # fmt: skip

COLUMNS = [
    "", " ", "\0", "a\0b", "_x", "_state", "a.b", "a`b", 'a"b', "a'b", "a b", "é", "日", "a" * 5_000, "select", "null", "a/b", "a=b",
    "a\nb", "\ud800", "%41", "..", "🦆", "a,b", "a(b)", "1a", "#", "__weight", "__sign", "key.element",
]  # fmt: skip


def _table(**columns: pa.Array) -> pa.Table:
    return pa.table({"key": pa.array(["a"]), "day": pa.array([date(2024, 1, 1)]), "n": pa.array([1]), **columns})


def _with(name: str, values: Any) -> pa.Table:
    return _table(**{name: values})


def odd_tables() -> Iterator[Any]:
    """What is given as events."""
    yield from ODD
    yield ROWS.to_pandas()
    yield ROWS.to_pylist()
    yield ROWS.to_batches()[0]
    yield pa.table({})
    yield pa.table([["a"], ["b"], [1], [1]], names=["key", "key", "day", "n"])
    yield pa.table([["a"], [1]], names=["", "n"])
    yield pa.table([pa.array([1])], names=["\0"])
    yield ROWS.slice(0, 0)
    yield ROWS.rename_columns(["KEY", "day", "n"])
    one = {
        "n": [
            pa.array([2**64 - 1], pa.uint64()), pa.array([1.5]), pa.array([math.nan]), pa.array(["x"]), pa.nulls(1),
            pa.array([Decimal("1e30")]), pa.array([timedelta(1)], pa.duration("us")), pa.array([b"\xff"]),
            pa.array([(1, 2, 3)], pa.month_day_nano_interval()), pa.array([[1]]), pa.array([{"a": 1}]),
            pa.array([True]), pa.array([time(1)], pa.time64("us")), pa.array(["1"]).dictionary_encode(),
            pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array([5])), pa.array([1], pa.int8()),
            pa.array([Decimal("1.50")]), pa.RunEndEncodedArray.from_arrays([1], [7]), pa.array([1.0], pa.float16()),
        ],
        "key": [
            pa.array([b"\xff\xfe"]), pa.array([1]), pa.array(["x" * 100_000]), pa.array(["a\0b"]), pa.array(["x"], pa.large_string()),
            pa.array(["x"], pa.string_view()), pa.array(["x"]).dictionary_encode(), pa.nulls(1), pa.array([["x"]]),
            pa.array([date(2024, 1, 1)]), pa.array([b"0" * 16], pa.uuid()),
            pa.Array.from_buffers(pa.string(), 1, [None, pa.array([0, 2], pa.int32()).buffers()[1], pa.py_buffer(b"\xff\xfe")]),
        ],
        "day": [
            pa.array([2**31 - 1], pa.int32()).cast(pa.date32()), pa.array([-(2**31)], pa.int32()).cast(pa.date32()),
            pa.array(["2024-01-01"]), pa.array(["soon"]), pa.array([1]), pa.nulls(1), pa.array([datetime(2024, 1, 1)]),
            pa.array([2**62], pa.int64()).cast(pa.timestamp("us")), pa.array([0], pa.int64()).cast(pa.date64()), pa.array([time(1)]),
        ],
    }  # fmt: skip
    for name, values in one.items():
        for value in values:
            yield _with(name, value)


def declarations() -> Iterator[Call]:
    """Streams, tables and folds, declared and then used."""
    for name in ODD:
        yield lambda lake, name=name: fh.stream(name, schema=SCHEMA)
        yield lambda lake, name=name: fh.table(name, source=events, keys="key", fold=fh.fold(n=fh.count()))
    for kind in [*TYPES, *ODD]:
        yield lambda lake, kind=kind: _used(lake, {"k": "long", "c": kind}, "c")
    for column in [*COLUMNS, *(one for one in ODD if not isinstance(one, list | dict | set | pa.Table))]:
        yield lambda lake, column=column: _used(lake, {"k": "long", column: "string"}, column)
    yield lambda lake: fh.stream("h.twice", schema={"a": "int", "A": "int"})
    for what, value in itertools.product(
        ("event_time", "event_id", "keys", "sequence_by", "partition_by", "description"), ODD
    ):
        yield lambda lake, what=what, value=value: fh.stream("h.declared", schema=SCHEMA, **{what: value})
    for what, value in itertools.product(
        ("keys", "sequence_by", "partition_by", "buckets", "fold", "source", "rows"), ODD
    ):
        yield lambda lake, what=what, value=value: _declared(lake, what, value)
    for value in ODD:
        yield lambda lake, value=value: fh.stream("h.declared", schema=value)
        for fold in (fh.total, fh.minimum, fh.average, fh.distinct, fh.collect):
            yield lambda lake, fold=fold, value=value: fh.fold(x=fold(value))
        yield lambda lake, value=value: fh.fold(x=value)
        yield lambda lake, value=value: fh.fold(x=fh.collect("n", limit=value))
        yield lambda lake, value=value: fh.fold(x=fh.top(value, by="n"))
        yield lambda lake, value=value: fh.fold(x=fh.top(2, by=value))
        yield lambda lake, value=value: fh.latest(delete_when=value)


def _declared(lake: fh.Lake, what: str, value: Any) -> Any:
    given = {"source": events, "keys": "key", "fold": fh.fold(units=fh.count()), what: value}
    return fh.table("h.declared", **given)


def _used(lake: fh.Lake, schema: dict[Any, Any], column: Any) -> None:
    stream = fh.stream("h.used", schema=schema, keys="k", sequence_by="k")
    lake.append(stream, pa.table({"k": pa.array([], pa.int64()), column: pa.nulls(0)}))
    lake.append(stream, pa.table({"k": pa.array([1]), column: pa.nulls(1)}))
    lake.to_arrow(stream)
    folds = fh.table("h.folds", source=stream, keys="k", fold=fh.fold(x=fh.count(column), y=fh.minimum(column)))
    lake.refresh(folds)
    lake.refresh(fh.table("h.rows", source=stream, fold=fh.latest()))
    lake.to_arrow(folds)
    lake.changes(folds, after=0)


def calls() -> Iterator[Call]:
    """Methods of a lake with odd arguments."""
    for rows in odd_tables():
        yield lambda lake, rows=rows: (lake.append(events, rows), lake.refresh(totals), lake.to_arrow(events))
        yield lambda lake, rows=rows: lake.replace(events, rows, partitions=[date(2024, 1, 1)])
    named = ("read", "to_arrow", "refresh", "rebuild", "publish", "quarantined", "compact", "expire", "history", "head",
             "kind", "count", "schema", "types", "load", "evolve")  # fmt: skip
    for method, value in itertools.product(named, ODD):
        if not isinstance(value, fh.Stream | fh.Table):
            yield lambda lake, method=method, value=value: getattr(lake, method)(value)
    for value in ODD:
        yield lambda lake, value=value: lake.to_arrow(totals, as_of=value)
        yield lambda lake, value=value: lake.changes(totals, after=value)
        yield lambda lake, value=value: lake.changes(totals, after=0, upto=value)
        yield lambda lake, value=value: lake.rollback(totals, to=value)
        yield lambda lake, value=value: lake.append(events, ROWS, batch_id=value)
        yield lambda lake, value=value: lake.append(value, ROWS)
        yield lambda lake, value=value: lake.backfill(by_day, value)
        yield lambda lake, value=value: lake.backfill(by_day, [value])
        yield lambda lake, value=value: lake.replace(events, ROWS, partitions=value)
        yield lambda lake, value=value: lake.replace(events, ROWS, partitions=[value])
        yield lambda lake, value=value: lake.replace(
            events, ROWS, partitions=[date(2024, 1, 1), date(2024, 1, 2)], summary=value
        )
        yield lambda lake, value=value: lake.expire(totals, older_than=value)
        yield lambda lake, value=value: lake.expire(totals, keep_last=value)
        yield lambda lake, value=value: lake.expire(totals, in_use=value)
        yield lambda lake, value=value: lake.compact(totals, target_bytes=value)
        yield lambda lake, value=value: lake.compact(totals, min_files=value)
        yield lambda lake, value=value: lake.evolve(events, rename=value)
        yield lambda lake, value=value: lake.evolve(events, drop=value)
