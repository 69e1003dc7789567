"""The text of a row's partition, looked up for many rows and built for few: both are what Iceberg's transforms say."""

from __future__ import annotations

import json
from datetime import date, timedelta

import polars as pl
import pyarrow as pa
import pytest
from pyiceberg.table import Table as IcebergTable

import foldhouse as fh
from foldhouse.kernel.plan import WEIGHT
from foldhouse.refresh.bucket.names import BUCKET, KEY_ONLY, NULL_KEY, NULL_SEQUENCE, with_bucket
from foldhouse.storage.schema import Layout

events = fh.stream(
    "n.events", schema={"key": "long", "day": "date", "at": "long", "units": "long"}, keys="key", sequence_by="at"
)
tables = {
    "hash buckets": fh.table("n.hashed", source=events, buckets=7, fold=fh.fold(last=fh.latest("units"))),
    "days": fh.table(
        "n.daily", source=events, keys=["day", "key"], partition_by="day", fold=fh.fold(last=fh.latest("units"))
    ),
}


def _rows(count: int) -> pl.DataFrame:
    numbers = range(count)
    return pl.DataFrame(
        {
            "key": [None if n % 50 == 49 else n - 5 for n in numbers],
            "day": [None if n % 70 == 69 else date(1969, 12, 30) + timedelta(days=n % 4) for n in numbers],
            "at": [None if n % 30 == 29 else n for n in numbers],
            "units": [n % 3 for n in numbers],
        },
        schema={"key": pl.Int64, "day": pl.Date, "at": pl.Int64, "units": pl.Int64},
    )


def _expected(iceberg: IcebergTable, row: dict[str, object], keys: tuple[str, ...]) -> str:
    if any(row[key] is None for key in keys):
        return NULL_KEY
    if row["at"] is None:
        return NULL_SEQUENCE
    found = []
    for one in iceberg.spec().fields:
        field = iceberg.schema().find_field(one.source_id)
        value = row[field.name]
        if isinstance(value, date):
            value = (value - date(1970, 1, 1)).days
        found.append(one.transform.transform(field.field_type)(value))
    return json.dumps(found, separators=(",", ":"))


@pytest.mark.parametrize("name", tables)
def test_each_row_is_named_as_pyiceberg_places_it(lake: fh.Lake, name: str) -> None:
    lake.append(
        events,
        _rows(200)
        .to_arrow()
        .cast(pa.schema([("key", pa.int64()), ("day", pa.date32()), ("at", pa.int64()), ("units", pa.int64())])),
    )
    table = tables[name]
    lake.refresh(table)
    iceberg = lake.load(table)
    layout = Layout.of_head(iceberg)
    compiled = lake._compile(table, [Layout.of_head(lake.load(events))])
    for count in (1, 2, 29, 30, 400):
        rows = _rows(count)
        signed = rows.rename({"at": "__s0", "units": "__a0"}).with_columns(pl.lit(1, pl.Int64).alias(WEIGHT))
        found = with_bucket(layout, compiled.plan, signed)[BUCKET].to_list()
        assert found == [_expected(iceberg, row, table.keys) for row in rows.iter_rows(named=True)]
        if count > 29:
            marked = with_bucket(layout, compiled.plan, signed.with_columns(pl.lit(True).alias(KEY_ONLY)))
            assert NULL_SEQUENCE not in marked[BUCKET].to_list()
