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
