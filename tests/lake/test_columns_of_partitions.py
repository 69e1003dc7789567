"""Files of another tool without the columns that they are partitioned by, as Hive writes them.

By Iceberg's specification, such a column has the value of the file's partition. It was read as null.
"""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

import foldhouse as fh

events = fh.stream("h.events", schema={"k": "string", "n": "long", "day": "date"}, partition_by="day")
daily = fh.table(
    "h.daily",
    source=events,
    keys=["day", "k"],
    partition_by="day",
    fold=fh.fold(n=fh.total("n"), least=fh.minimum("n"), events=fh.count()),
)
newest = fh.table("h.newest", source=events, keys="k", fold=fh.fold(day=fh.maximum("day"), n=fh.total("n")))
TYPES = pa.schema([("k", pa.string()), ("n", pa.int64()), ("day", pa.date32())])
DAYS = [date(2024, 3, 4), date(2024, 3, 5)]
_EPOCH = date(1970, 1, 1)


def add(lake: fh.Lake, name: str, rows: pa.Table, value: Any, folder: str = "theirs", **options: Any) -> Path:
    """Add a file without field ids to a partition, as Spark's `add_files` adds files of Hive."""
    iceberg = lake.load(name)
    path = Path(iceberg.location().removeprefix("file://")) / "data" / folder
    path.mkdir(parents=True, exist_ok=True)
    path /= f"{iceberg.metadata.last_sequence_number}.parquet"
    pq.write_table(rows, path, **options)
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"file://{path}",
        file_format=FileFormat.PARQUET,
        partition=Record(value),
        record_count=rows.num_rows,
        file_size_in_bytes=path.stat().st_size,
    )
    file.spec_id = iceberg.spec().spec_id
    with iceberg.transaction() as change, change.update_snapshot().fast_append() as append:
        append.append_data_file(file)
    return path


@pytest.fixture
def hive(lake: fh.Lake) -> fh.Lake:
    """A stream with two events of ours, and files of Hive's for the same two days."""
    lake.append(events, pa.table({"k": ["a", "b"], "n": [1, 2], "day": DAYS}, TYPES))
    lake.add_files(events, [])  # gives the stream a name mapping
    for place, day in enumerate(DAYS * 2):
        rows = pa.table({"k": ["a", "b", "c"], "n": [10 * place + n for n in range(3)]})
        add(lake, events.name, rows, (day - _EPOCH).days, f"hive/day={day}", row_group_size=1 + place)
    return lake


def folded(lake: fh.Lake, where: str = "true") -> None:
    """The tables are what DuckDB makes of the files, whose folders say the days."""
    data = Path(lake.load(events).location().removeprefix("file://")) / "data" / "hive"
    duckdb.sql(f"CREATE OR REPLACE VIEW theirs AS FROM read_parquet('{data}/*/*.parquet', hive_partitioning = true)")
    ours = pa.table({"k": ["a", "b"], "n": [1, 2], "day": DAYS}, TYPES)
    assert ours.num_rows == 2
    held = f"FROM (SELECT k, n, day::DATE AS day FROM theirs UNION ALL SELECT k, n, day FROM ours) WHERE {where}"
    for table, query in (
        (daily, f"SELECT day, k, sum(n)::BIGINT, min(n), count(*) {held} GROUP BY ALL"),
        (newest, f"SELECT k, max(day), sum(n)::BIGINT {held} GROUP BY ALL"),
    ):
        lake.refresh(table)
        found = [tuple(row.values()) for row in lake.to_arrow(table).to_pylist()]
        assert sorted(found) == sorted(duckdb.sql(query).fetchall())


def test_their_events_are_those_of_the_days_of_their_partitions(hive: fh.Lake) -> None:
    folded(hive)
    found = hive.to_arrow(events)
    assert found["day"].null_count == 0
    assert sorted(map(str, found.to_pylist())) == sorted(
        map(str, hive.load(events).scan().to_arrow().select(found.column_names).to_pylist())
    )
    hive.load(events).delete("n = 1")  # the least of a day, so that its key is computed again
    folded(hive, "n <> 1")
    changes = hive.changes(events, after=0, net=True)
    assert (changes.num_rows, changes["day"].null_count) == (12, 0)


def test_a_compaction_writes_the_column(hive: fh.Lake) -> None:
    folded(hive)
    assert hive.compact(events, min_files=2).committed
    assert not hive.refresh(daily).rows_written
    hive.rebuild(daily)
    folded(hive)


def test_a_day_is_replaced_and_forgotten_with_their_files(hive: fh.Lake) -> None:
    folded(hive)
    assert hive.forget(events, {"k": "c", "day": DAYS[0]}, reason="1", tables=[daily, newest]).rows == 2
    hive.replace(events, TYPES.empty_table(), partitions=[DAYS[1]])
    folded(hive, f"day <> '{DAYS[1]}'")


def test_a_file_in_the_partition_of_no_value_has_nulls(hive: fh.Lake) -> None:
    add(hive, events.name, pa.table({"k": ["a"], "n": [7]}), None)
    assert hive.to_arrow(events)["day"].null_count == 1
    hive.refresh(daily)
    assert sum(hive.to_arrow(daily)["events"].to_pylist()) == 14


KINDS: dict[PrimitiveType, Any] = {
    IntegerType(): 5,
    LongType(): 2**40,
    BooleanType(): False,
    FloatType(): 1.5,
    DoubleType(): 2.5,
    DecimalType(9, 2): Decimal("1.25"),
    DateType(): 19_787,
    TimeType(): 3_600_000_000,
    TimestampType(): 1_700_000_000_000_001,
    TimestamptzType(): 1_700_000_000_000_001,
    StringType(): "x",
    UUIDType(): UUID(int=5),
    FixedType(2): b"ab",
    BinaryType(): b"q",
}


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_value_of_any_type_is_read_as_pyiceberg_reads_it(lake: fh.Lake, kind: PrimitiveType) -> None:
    lake.catalog.create_namespace("h")
    schema = Schema(NestedField(1, "n", LongType()), NestedField(2, "of", kind))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "of"))
    lake.catalog.create_table("h.theirs", schema, partition_spec=spec)
    with lake.load("h.theirs").transaction() as change:
        change.set_properties({"schema.name-mapping.default": schema.name_mapping.model_dump_json()})
    for n in range(2):
        add(lake, "h.theirs", pa.table({"n": [n]}), KINDS[kind])
    found = lake.to_arrow("h.theirs")["of"].to_pylist()
    assert found == lake.load("h.theirs").scan().to_arrow()["of"].to_pylist()
    assert None not in found


def test_a_field_of_a_struct_is_read_as_pyiceberg_reads_it(lake: fh.Lake) -> None:
    lake.catalog.create_namespace("h")
    box = StructType(NestedField(2, "x", LongType()), NestedField(3, "of", StringType()))
    schema = Schema(NestedField(1, "box", box))
    spec = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "of"))
    iceberg = lake.catalog.create_table("h.theirs", schema, partition_spec=spec)
    with iceberg.transaction() as change:
        change.set_properties({"schema.name-mapping.default": schema.name_mapping.model_dump_json()})
    for n in range(2):
        add(lake, "h.theirs", pa.table({"box": [{"x": n}]}), "y")
    found = lake.to_arrow("h.theirs")["box"].to_pylist()
    assert found == lake.load("h.theirs").scan().to_arrow()["box"].to_pylist() == [{"x": n, "of": "y"} for n in (1, 0)]
