"""Columns have the same types in `rows` whether Spark reads the files or this process hands over their rows."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import datetime

import pyarrow as pa
import pytest

import foldhouse as fh

pytestmark = pytest.mark.spark

AT = datetime(2024, 3, 31, 2, 30)
events = fh.stream(
    "t.events",
    schema={"key": "long", "at": "timestamp", "box": "struct<at: timestamp>", "list": "list<timestamp>", "id": "uuid"},
    keys="key",
)
SAID = {
    "type": "typeof(at)",
    "types": "typeof(struct(box, list))",
    "json": "to_json(struct(at, box, list))",
    "csv": "to_csv(struct(at))",
    "id": "hex(id)",
}
said = fh.table(
    "t.said",
    source=events,
    rows=lambda events: events.selectExpr("key", *(f"{text} AS {name}" for name, text in SAID.items())),
    fold=fh.fold(**{name: fh.maximum(name) for name in SAID}),
)


@pytest.mark.parametrize(
    "tuning",
    [fh.Tuning(), fh.Tuning(passed_rows=0), fh.Tuning(in_process_rows=-1)],
    ids=["rows are passed", "Spark reads the files", "in Spark's tasks"],
)
def test_a_timestamp_without_a_zone_and_a_uuid_are_what_they_are(spark_lake: Callable[..., fh.Lake], tuning: fh.Tuning):
    lake = spark_lake(tuning=tuning)
    kinds = pa.schema({"key": pa.int64(), "at": pa.timestamp("us"), "box": pa.struct({"at": pa.timestamp("us")})})
    kinds = kinds.append(pa.field("list", pa.list_(pa.timestamp("us")))).append(pa.field("id", pa.binary(16)))
    row = {"key": 1, "at": AT, "box": {"at": AT}, "list": [AT], "id": uuid.UUID(int=1).bytes}
    lake.append(events, pa.Table.from_pylist([row], kinds))
    lake.refresh(said)
    text = "2024-03-31T02:30:00.000"
    assert lake.to_arrow(said).to_pylist() == [
        {
            "key": 1,
            "type": "timestamp_ntz",
            "types": "struct<box:struct<at:timestamp_ntz>,list:array<timestamp_ntz>>",
            "json": f'{{"at":"{text}","box":{{"at":"{text}"}},"list":["{text}"]}}',
            "csv": text,
            "id": f"{1:032X}",
        }
    ]
