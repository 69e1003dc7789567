"""What other tools can write into a stream and foldhouse does not read: refused by name, not read as something else."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table.update import AddSchemaUpdate, SetCurrentSchemaUpdate
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StructType

import foldhouse as fh

events = fh.stream("s.events", schema={"k": "string", "n": "long"}, keys="k")
sums = fh.table("s.sums", source=events, fold=fh.fold(n=fh.total("n"), rows=fh.count()))
CALLS: dict[str, Callable[[fh.Lake], Any]] = {
    "reading": lambda lake: lake.to_arrow(events),
    "refreshing": lambda lake: lake.refresh(sums),
    "rebuilding": lambda lake: lake.rebuild(sums),
    "compacting": lambda lake: lake.compact(events, min_files=1),
}


@pytest.fixture
def folder(lake: fh.Lake) -> Path:
    """The data files of a stream with one event, which a table was folded from."""
    lake.append(events, [{"k": "a", "n": 1}])
    lake.refresh(sums)
    return Path(lake.load(events).location().removeprefix("file://")) / "data"


def refused(lake: fh.Lake, match: str, *calls: str) -> None:
    """These calls are refused, and the table stays."""
    head = lake.head(sums)
    for name in calls or CALLS:
        with pytest.raises(fh.Unsupported, match=match):
            CALLS[name](lake)
    assert lake.head(sums) == head


def test_a_file_that_is_listed_twice_is_refused(lake: fh.Lake, folder: Path) -> None:
    """Iceberg's readers see its rows twice; each of our readers saw them once, and a compaction removed them."""
    path = str(folder / "theirs.parquet")
    pq.write_table(pa.table({"k": ["b"], "n": [2]}), path)
    for _ in range(2):
        lake.load(events).add_files([path], check_duplicate_files=False)
    assert lake.load(events).scan().to_arrow().num_rows == 3
    refused(lake, r"s\.events lists .*theirs\.parquet twice")
    lake.load(events).delete("k = 'b'")
    lake.refresh(sums)
    assert lake.to_arrow(sums).to_pylist() == [{"k": "a", "n": 1, "rows": 1}]


def test_rows_in_another_format_are_refused(lake: fh.Lake, folder: Path) -> None:
    path = folder / "theirs.orc"
    orc.write_table(pa.table({"k": ["b"], "n": [2]}), str(path))
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=str(path),
        file_format=FileFormat.ORC,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=path.stat().st_size,
    )
    file.spec_id = 0
    with lake.load(events).transaction() as change, change.update_snapshot().fast_append() as append:
        append.append_data_file(file)
    refused(lake, r"s\.events contains rows as ORC \(.*theirs\.orc\)")


@pytest.mark.parametrize("where", ["a column", "a column of a struct"])
def test_a_default_for_earlier_rows_is_refused(lake: fh.Lake, folder: Path, where: str) -> None:
    """A reader of Iceberg shows the default in files that lack the column; they would be null."""
    iceberg = lake.load(events)
    column = NestedField(field_id=4, name="more", field_type=LongType(), required=False, initial_default=7)
    if where != "a column":
        column = NestedField(field_id=3, name="s", field_type=StructType(column), required=False)
    wider = Schema(*iceberg.schema().fields, column, schema_id=1)
    lake.catalog.commit_table(iceberg, (), (AddSchemaUpdate(schema_=wider), SetCurrentSchemaUpdate(schema_id=1)))
    if where == "a column":
        assert lake.load(events).scan().to_arrow()["more"].to_pylist() == [7]
    refused(lake, "'more' has a default .*, 7,", "reading", "rebuilding")
    with pytest.raises(fh.Unsupported, match="'more' has a default"):
        lake.append(events, [{"k": "a", "n": 1}])


def upgrade(lake: fh.Lake, name: str, *added: dict[str, Any]) -> None:
    """Write the table's metadata as format version 3, as Iceberg's own library does; pyiceberg cannot."""
    path = Path(lake.load(name).metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_text())
    metadata |= {"format-version": 3, "next-row-id": 100}
    metadata["schemas"][-1]["fields"] += added
    for snapshot in metadata["snapshots"]:
        snapshot |= {"first-row-id": 0, "added-rows": 1}
    upgraded = path.with_name(f"{int(path.name.split('-')[0]) + 1:05d}-{uuid4()}.metadata.json")
    upgraded.write_text(json.dumps(metadata))
    catalog = lake.catalog.engine.url.database
    with sqlite3.connect(catalog) as connection:
        connection.execute(
            "UPDATE iceberg_tables SET metadata_location = ? WHERE table_name = ?", (str(upgraded), name.split(".")[1])
        )
    connection.close()


def test_a_stream_of_format_version_3_is_read_and_not_written(lake: fh.Lake, folder: Path) -> None:
    lake.append(events, [{"k": "a", "n": 2}])
    upgrade(lake, "s.events")
    assert lake.load(events).metadata.format_version == 3
    lake.refresh(sums)
    assert lake.to_arrow(sums).to_pylist() == [{"k": "a", "n": 3, "rows": 2}]
    head = lake.head(events)
    for call in (
        lambda: lake.append(events, [{"k": "a", "n": 1}]),
        lambda: lake.compact(events, min_files=2),
        lambda: lake.expire(events, older_than=timedelta(), keep_last=1, in_use=timedelta()),
    ):
        with pytest.raises(fh.Unsupported, match=r"of Iceberg's format version 3|cannot be written"):
            call()
    assert lake.head(events) == head


@pytest.mark.parametrize(
    "kind",
    [
        "variant",
        "geometry(srid:4326)",
        {"type": "list", "element-id": 9, "element": "variant", "element-required": False},
    ],
    ids=["variant", "geometry", "in a list"],
)
def test_a_type_that_cannot_be_parsed_is_named_and_is_no_damage(lake: fh.Lake, folder: Path, kind: Any) -> None:
    """As damaged metadata, it would be restored from a backup, and the commits since would be lost."""
    upgrade(lake, "s.events", {"id": 8, "name": "x", "type": kind, "required": False})
    refused(lake, "a later format version, with the column 'x' of the type .*(variant|geometry)")


@pytest.mark.parametrize("kind", ["timestamp_ns", "timestamptz_ns"])
def test_nanoseconds_are_passed_over_and_not_folded(lake: fh.Lake, folder: Path, kind: str) -> None:
    lake.append(events, [{"k": "a", "n": 2}])
    upgrade(lake, "s.events", {"id": 8, "name": "x", "type": kind, "required": False})
    lake.refresh(sums)
    assert lake.to_arrow(sums).to_pylist() == [{"k": "a", "n": 3, "rows": 2}]
    for fold in (fh.fold(x=fh.minimum("x")), fh.latest()):
        table = fh.table("s.of_them", source=events, keys="k", sequence_by="n", fold=fold)
        with pytest.raises(fh.DefinitionError, match=r"cannot store.*timestamp\[ns"):
            lake.refresh(table)


def test_a_stream_with_a_type_that_arrow_cannot_count_is_refused_as_one_of_version_3(
    lake: fh.Lake, folder: Path
) -> None:
    """Its column of the type `unknown` was an error of Arrow's, before the format version was looked at."""
    lake.append(events, [{"k": "a", "n": 2}])
    upgrade(lake, "s.events", {"id": 8, "name": "x", "type": "unknown", "required": False})
    for call in (lambda: lake.append(events, [{"k": "a", "n": 1}]), lambda: lake.compact(events, min_files=2)):
        with pytest.raises(fh.Unsupported, match=r"s\.events is of Iceberg's format version 3"):
            call()
    lake.refresh(sums)
    assert lake.to_arrow(sums).to_pylist() == [{"k": "a", "n": 3, "rows": 2}]


@pytest.mark.parametrize("has_ids", [True, False], ids=["by field id", "by name"])
def test_a_file_with_nanoseconds_is_refused_with_a_way_out(lake: fh.Lake, has_ids: bool) -> None:
    """The message advised a name mapping, with which the file could not be read either."""
    moments = fh.stream("s.moments", schema={"k": "string", "at": "timestamp"}, keys="k")
    lake.append(moments, pa.table({"k": ["a"], "at": pa.array([1], pa.timestamp("us"))}))
    path = str(Path(lake.load(moments).location().removeprefix("file://")) / "theirs.parquet")
    fields = [("k", pa.string()), ("at", pa.timestamp("ns"))]
    ids = [{b"PARQUET:field_id": str(n + 1).encode()} if has_ids else None for n in range(2)]
    schema = pa.schema([pa.field(*field, metadata=one) for field, one in zip(fields, ids, strict=True)])
    pq.write_table(pa.table({"k": ["b"], "at": pa.array([1_001], pa.timestamp("ns"))}).cast(schema), path)
    if not has_ids:
        lake.add_files(moments, [])  # gives the stream a name mapping
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=os.path.getsize(path),
    )
    file.spec_id = 0
    with lake.load(moments).transaction() as change, change.update_snapshot().fast_append() as append:
        append.append_data_file(file)
    latest = fh.table("s.last", source=moments, fold=fh.fold(at=fh.maximum("at")))
    for call in (lambda: lake.to_arrow(moments), lambda: lake.refresh(latest)):
        with pytest.raises(fh.Unsupported, match=r"'at' .*timestamp\[ns\].*in microseconds") as failure:
            call()
        assert "mapping" not in str(failure.value)


def test_whole_numbers_without_a_sign_are_read_as_iceberg_has_them(lake: fh.Lake) -> None:
    """Other readers cast them; no window with such a file could be folded, and no stream with one compacted."""
    stream = fh.stream("s.unsigned", schema={"k": "string", "i": "int", "l": "long"}, keys="k")
    table = fh.table(
        "s.added_up", source=stream, fold=fh.fold(i=fh.total("i"), l=fh.total("l"), least=fh.minimum("l"), n=fh.count())
    )
    lake.append(stream, [{"k": "a", "i": -1, "l": -(2**62)}])
    folder = Path(lake.load(stream).location().removeprefix("file://"))
    for number, (small, large) in enumerate([([5, 7], [2**62, 9]), ([3], [4])]):
        path = str(folder / f"theirs-{number}.parquet")
        made = {"k": ["a"] * len(small), "i": pa.array(small, pa.uint32()), "l": pa.array(large, pa.uint64())}
        pq.write_table(pa.table(made), path)
        lake.load(stream).add_files([path])
    lake.refresh(table)
    assert lake.to_arrow(table).to_pylist() == [{"k": "a", "i": 14, "l": 13, "least": -(2**62), "n": 4}]
    lake.load(stream).delete("i = 7")
    lake.refresh(table)
    assert lake.to_arrow(table).to_pylist() == [{"k": "a", "i": 7, "l": 4, "least": -(2**62), "n": 3}]
    assert lake.compact(stream, min_files=2).committed
    assert not lake.refresh(table).rows_written
    assert sorted(lake.to_arrow(stream)["i"].to_pylist()) == [-1, 3, 5]


def test_a_table_of_format_version_3_is_not_folded_to(lake: fh.Lake, folder: Path) -> None:
    lake.append(events, [{"k": "a", "n": 2}])
    upgrade(lake, "s.sums")
    refused(lake, r"s\.sums is of Iceberg's format version 3", "refreshing", "rebuilding")
    assert lake.to_arrow(sums).to_pylist() == [{"k": "a", "n": 1, "rows": 1}]


def test_orphans_of_a_table_whose_files_may_be_used_elsewhere_are_not_deleted(lake: fh.Lake, folder: Path) -> None:
    """`gc.enabled=false`, as Spark's `snapshot` procedure sets it."""
    orphan = folder / "theirs.parquet"
    orphan.write_bytes(b"")
    os.utime(orphan, (0, 0))
    with lake.load(events).transaction() as change:
        change.set_properties({"gc.enabled": "false"})
    assert [Path(one.path) for one in lake.orphans(events).files] == [orphan]
    with pytest.raises(fh.Unsupported, match=r"gc\.enabled=false"):
        lake.orphans(events, delete=True)
    assert orphan.exists()
