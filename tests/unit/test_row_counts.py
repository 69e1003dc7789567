"""The rows that footers say are those that Arrow finds in them, whatever the columns are."""

from __future__ import annotations

import io
import random
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foldhouse.storage.row_counts import row_counts

COLUMNS: list[tuple[pa.DataType, Any]] = [
    (pa.int64(), 1),
    (pa.bool_(), True),
    (pa.string(), "x" * 300),
    (pa.decimal128(22, 2), None),
    (pa.timestamp("us", "UTC"), None),
    (pa.list_(pa.float64()), [1.0]),
    (pa.struct([("a", pa.int32()), ("b", pa.map_(pa.string(), pa.date32()))]), None),
    (pa.float16(), None),
]


def footer_of(rows: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows, sink, **options)
    raw = sink.getvalue()
    return raw[-int.from_bytes(raw[-8:-4], "little") - 8 :]


def rows_of(columns: Mapping[str, int], count: int) -> pa.Table:
    fields = [
        pa.field(name, COLUMNS[kind][0], metadata={"PARQUET:field_id": str(place + 1)})
        for place, (name, kind) in enumerate(columns.items())
    ]
    arrays = [pa.array([COLUMNS[kind][1]] * count, COLUMNS[kind][0]) for kind in columns.values()]
    return pa.table(arrays, schema=pa.schema(fields))


@pytest.mark.parametrize("seed", range(30))
def test_the_rows_are_those_that_arrow_finds(seed: int) -> None:
    chance = random.Random(seed)
    columns = {f"c{chance.randrange(10**9)}": chance.randrange(len(COLUMNS)) for _ in range(chance.randrange(1, 40))}
    wanted = [chance.choice([0, 1, 63, 64, 8_191, 8_192, 20_000]) for _ in range(6)]
    options = {"store_schema": chance.random() < 0.5, "version": chance.choice(["1.0", "2.6"])}
    footers = [footer_of(rows_of(columns, count), **options) for count in wanted]
    assert row_counts(footers) == wanted
    assert row_counts([memoryview(one) for one in footers]) == wanted


def test_footers_that_begin_otherwise_are_not_counted() -> None:
    footers = [footer_of(rows_of({"a": 0}, 3)), footer_of(rows_of({"b": 0}, 3))]
    assert row_counts(footers) is None
    assert row_counts(footers[:1]) == [3]


@pytest.mark.parametrize("seed", range(200))
def test_what_is_no_footer_is_not_counted_wrongly(seed: int) -> None:
    chance = random.Random(seed)
    raw = bytearray(footer_of(rows_of({"a": 0, "b": 5}, 100)))
    if seed % 2:
        del raw[chance.randrange(80) :]
    else:
        raw[chance.randrange(80)] = chance.randrange(256)
    found = row_counts([bytes(raw)])
    assert found is None or len(found) == 1  # what was damaged is refused by its digest
