"""A stream of a key, a sequence and whatever columns, and three tables over it, for tests of columns that change."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa

import foldhouse as fh

Row = dict[str, Any]

WIDENED = [
    ("int", "long", 7, 2**40),
    ("float", "double", 0.5, 2.0**40 + 0.5),
    ("decimal(5,2)", "decimal(12,2)", Decimal("123.45"), Decimal("1234567890.12")),
]
"""A type, a wider one, a value of the former, and one that only the latter holds."""


def stream(**columns: str) -> fh.Stream:
    """`shop.events` of a key, a sequence, and these columns."""
    return fh.stream("shop.events", schema={"k": "string", **columns, "t": "int"}, keys="k", sequence_by="t")


def append(lake: fh.Lake, declared: fh.Stream, *rows: Row) -> int:
    """Append rows, columns they do not name as null."""
    names = {name for name, _ in declared.schema} | {name for row in rows for name in row}
    full = [{name: row.get(name) for name in names} for row in rows]
    types = {name: pa.null() for name in names if all(row[name] is None for row in full)}
    columns = {name: pa.array([row[name] for row in full], types.get(name)) for name in names}
    snapshot_id = lake.append(declared, pa.table(columns)).snapshot_id
    assert snapshot_id is not None
    return snapshot_id


def rows_of(lake: fh.Lake, table: fh.Stream | fh.Table, as_of: int | None = None) -> list[Row]:
    return ordered(lake.to_arrow(table, as_of=as_of).to_pylist())


def ordered(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (str(row["k"]), row.get("t") or 0, repr(row)))


def whole(source: fh.Stream | fh.Table, name: str = "shop.whole") -> fh.Table:
    return fh.table(name, source=source, keys="k", sequence_by="t", fold=fh.latest())


def counted(source: fh.Stream | fh.Table, name: str = "shop.counted") -> fh.Table:
    return fh.table(name, source=source, keys="k", fold=fh.fold(events=fh.count(), last=fh.maximum("t")))


def summed(source: fh.Stream | fh.Table, name: str = "shop.summed") -> fh.Table:
    fold = fh.fold(total=fh.total("a"), least=fh.minimum("a"), different=fh.distinct_exact("a"))
    return fh.table(name, source=source, keys="k", fold=fold)
