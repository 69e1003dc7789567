"""Adds Parquet files to a stream as they are: nothing is copied, and the files stay where they are.

Guarantee: a file is in the stream once. A file that the stream has already is not added again.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.io import WAREHOUSE, FileIO, InputFile, load_file_io
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from foldhouse.errors import CommitConflict, InvalidCall, InvalidData, StorageError
from foldhouse.storage.commit import FileChanges, commit
from foldhouse.storage.evolve import evolved
from foldhouse.storage.file_ref import FileRef
from foldhouse.storage.files import described_file
from foldhouse.storage.history import head_of
from foldhouse.storage.live import Partition, live_slices
from foldhouse.storage.mapped import mapping_of
from foldhouse.storage.parquet import opened
from foldhouse.storage.places import is_below
from foldhouse.storage.races import until_won
from foldhouse.storage.schema import TABLE_PROPERTIES, Layout
from foldhouse.storage.store import as_stored
from foldhouse.storage.threads import OF_A_STORE, in_threads
from foldhouse.streams.events import by_day, partition_of
from foldhouse.streams.evolution import commit_columns, pending
from foldhouse.streams.fitting import INSTEAD, check_columns
from foldhouse.streams.partitioned import check_partitioning
from foldhouse.streams.stored import load_stream, new_shape, stored_stream, stream_coverage
from foldhouse.values.definition import Stream
from foldhouse.values.metadata_names import COVERAGE, FORGOTTEN_EVENTS, RUN_ID
from foldhouse.values.results import Appended

_OF_ADDRESSES = "%#?"
_NAMED = 20
_NOWHERE = "file:///nowhere"
_DAYS_SHOWN = 3


def add_files(catalog: Catalog, stream: Stream, files: Iterable[str | os.PathLike[str]], run_id: str) -> Appended:
    """Add Parquet files in one commit, all of them or none.

    If the declaration adds or widens columns, or the stream has no name mapping, a commit of metadata comes before it,
    once all files are known to fit.

    Args:
        catalog: where the stream is registered.
        stream: the declaration.
        files: paths on this machine, or addresses of the store that the catalog is configured for.
        run_id: for the summary.

    Raises:
        InvalidData: files do not fit the stream; nothing was written. Its notes have the errors of all but the first.
        InvalidCall: `files` is no list, or a path is named twice or lies in the warehouse; nothing was written.
        DefinitionError: see `append`; or the name mapping of the stream does not fit its columns.
        CommitConflict: other writers won every race, or created the stream again; nothing was added.
        StorageError: the store of a file cannot be reached; nothing was written.
    """
    if isinstance(files, str | os.PathLike):
        raise InvalidCall(f"add_files: files is one path, {files}; give a list of paths")
    paths = [_address(one) for one in files]
    twice = [path for path, count in Counter(paths).items() if count > 1]
    if twice:
        raise InvalidCall(f"add_files: {twice[0]} is named twice")
    # Checked against the stream as it will be, so that nothing is created or changed for files that are refused.
    expected = _expected(catalog, stream)
    _check_places(stream, expected, paths)
    described = _all_described(stream, expected, paths)
    iceberg = _prepared(catalog, stream)
    layout = Layout.of(iceberg)
    if not _is_alike(layout, Layout.of(expected)):
        described = _all_described(stream, iceberg, paths)
    wanted = [one for one in described if one is not None]

    def attempt() -> Appended:
        known = _live(iceberg)  # again at each attempt: another writer may have added a file
        added = [one for one in wanted if one.file_path not in known]
        if not added:
            return Appended(stream.name, False, iceberg.metadata.current_snapshot_id)
        properties = {RUN_ID: run_id, COVERAGE: str(stream_coverage(iceberg))}
        snapshot_id = commit(catalog, iceberg, FileChanges(added, operation=Operation.APPEND), properties)
        rows = sum(one.record_count for one in added)
        return Appended(stream.name, True, snapshot_id, rows_added=rows, files_added=len(added))

    def read_again() -> None:
        nonlocal iceberg
        found = stored_stream(catalog, stream)
        if found is None or found.metadata.table_uuid != iceberg.metadata.table_uuid or Layout.of(found) != layout:
            raise CommitConflict(
                f"{stream.name} was dropped, or got other columns, meanwhile; nothing was added, run it again"
            )
        _check_places(stream, found, paths)  # a forget may have won the race
        iceberg = found

    return until_won(attempt, read_again)


def _address(file: str | os.PathLike[str]) -> str:
    """Return the address of a file; one of this machine is the same by whatever links it is reached."""
    text = os.fspath(file).removeprefix("file://")
    address = text if "://" in text else f"file://{Path(text).resolve()}"
    if strange := next((one for one in _OF_ADDRESSES if one in address), None):
        raise InvalidCall(
            f"add_files: {address} has a {strange!r}, which programs take for a part of an address, not of a name; "
            "rename the file"
        )
    return address


def _prepared(catalog: Catalog, stream: Stream) -> IcebergTable:
    """Load or create the stream, update its columns, and see to its name mapping."""

    def attempt() -> IcebergTable:
        iceberg, updates = load_stream(catalog, stream)
        iceberg = commit_columns(catalog, iceberg, (*updates, *mapping_of(evolved(iceberg, updates))))
        if mapping_of(iceberg):
            raise CommitConflict(f"{stream.name}: another writer changed its properties meanwhile; run it again")
        return iceberg

    return until_won(attempt)


def _expected(catalog: Catalog, stream: Stream) -> IcebergTable:
    """Return the stream as `_prepared` will make it; nothing is written."""
    iceberg = stored_stream(catalog, stream)
    if iceberg is None and isinstance(
        catalog, RestCatalog
    ):  # its server gives credentials only for a table that exists
        return _prepared(catalog, stream)
    if iceberg is None:
        schema, spec = new_shape(stream)
        metadata = new_table_metadata(schema, spec, UNSORTED_SORT_ORDER, _NOWHERE, dict(TABLE_PROPERTIES))
        iceberg = IcebergTable(
            tuple(stream.name.split(".")), metadata, _NOWHERE, load_file_io(catalog.properties), catalog
        )
    check_partitioning(stream, iceberg)
    updates = pending(iceberg, stream)
    return evolved(iceberg, (*updates, *mapping_of(evolved(iceberg, updates))))


def _is_alike(one: Layout, other: Layout) -> bool:
    return (one.schema_json, one.spec_json) == (other.schema_json, other.spec_json)


def _all_described(stream: Stream, iceberg: IcebergTable, paths: Sequence[str]) -> list[DataFile | None]:
    """Describe files for a commit.

    Raises:
        InvalidData: that of the first file that is refused, with those of the others as its notes.
    """
    layout, has = Layout.of(iceberg), _live(iceberg)

    def described(path: str) -> DataFile | InvalidData | None:
        try:
            return _described(stream, layout, path, has.get(path))
        except InvalidData as refused:
            return refused

    found = in_threads(described, paths, OF_A_STORE)
    refused = [one for one in found if isinstance(one, InvalidData)]
    for one in refused[1:_NAMED]:
        refused[0].add_note(str(one))
    if len(refused) > _NAMED:
        refused[0].add_note(f"{len(refused) - _NAMED:,} more of the {len(paths):,} files are refused")
    if refused:
        raise refused[0]
    return [one for one in found if not isinstance(one, InvalidData)]


def _check_places(stream: Stream, iceberg: IcebergTable, paths: Sequence[str]) -> None:
    """Refuse files of the lake: another table may own, and later delete, them."""
    if FORGOTTEN_EVENTS in iceberg.properties:
        raise InvalidData(
            f"{stream.name}: events of it were forgotten, and whether a file has them is seen only by reading it; "
            "append the rows of the files instead"
        )
    warehouse = str(iceberg.io.properties.get(WAREHOUSE, ""))
    folders = [iceberg.location(), *([warehouse] if warehouse.startswith("file:") else [])]
    for path in paths:
        if any(is_below(path, folder) for folder in folders):
            raise InvalidCall(
                f"add_files: {path} is in the warehouse of the lake, where expiry may delete it; move or copy it "
                "to another folder"
            )


def _live(iceberg: IcebergTable) -> dict[str, FileRef]:
    head = head_of(iceberg)
    slices = live_slices(iceberg, None if head is None else head.snapshot_id)
    return {path: one.file for path, one in slices.items()}


def _described(stream: Stream, layout: Layout, path: str, known: FileRef | None) -> DataFile | None:
    """Check a file, and describe it for the commit; `None` if it is empty, or in the stream already."""
    try:
        stored = _stored(layout.io, path)
        with stored.open() as source, opened(source) as file:
            footer, size = file.metadata, len(stored)
            if known is not None:
                _check_unchanged(stream, known, size, footer.num_rows)
                return None
            check_columns(stream, layout, path, file)
            if not footer.num_rows:
                return None
            partition = _partition(stream, layout, path, file)
    except (pa.ArrowException, OSError) as failure:
        said = " ".join(str(failure).split()).rstrip(".")
        is_here = path.startswith("file:") or not isinstance(failure, OSError) or isinstance(failure, FileNotFoundError)
        if not is_here:
            raise StorageError(f"add_files: {path} cannot be reached: {said}. Nothing was added") from failure
        raise InvalidData(f"add_files: {path} cannot be read as Parquet: {said}. Nothing was added") from failure
    return described_file(layout, partition, path, size, footer)


def _stored(io: FileIO, path: str) -> InputFile:
    try:
        return as_stored(io, path)
    except ValueError as failure:
        raise InvalidCall(f"add_files: {path} is at no store that can be read: {failure}") from failure


def _check_unchanged(stream: Stream, known: FileRef, size: int, rows: int) -> None:
    if (size, rows) != (known.size_bytes, known.rows):
        raise InvalidData(
            f"{stream.name} has {known.path} already, with {known.rows:,} rows in {known.size_bytes:,} bytes, and the "
            f"file has {rows:,} in {size:,} now: a file of a stream must not be changed. Put the old one back, and the "
            "new rows into another file"
        )


def _partition(stream: Stream, layout: Layout, path: str, file: pq.ParquetFile) -> Partition:
    """Return the partition of all rows of a file, and check its texts, which Arrow reads without looking at them."""
    looked = [name for name in file.schema_arrow.names if _has_text(file.schema_arrow.field(name).type)]
    if stream.partition_column is not None and stream.partition_column not in looked:
        looked.append(stream.partition_column)
    rows = file.read(columns=looked)
    rows.validate(full=True)
    if stream.partition_column is None:
        return Partition(())
    found = list(by_day(stream, rows.select([stream.partition_column])))
    if len(found) > 1:
        days = sorted(map(str, found))
        more = f" and {len(days) - _DAYS_SHOWN} more" if len(days) > _DAYS_SHOWN else ""
        raise InvalidData(
            f"{stream.name}: {path} has events of several days, {', '.join(days[:_DAYS_SHOWN])}{more}, but a file of a "
            f"stream with days has one; {INSTEAD}"
        )
    return partition_of(found[0])


def _has_text(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_has_text(one.type) for one in _inner(kind))
    return kind in (pa.string(), pa.large_string())


def _inner(kind: pa.DataType) -> Iterator[pa.Field]:
    if pa.types.is_map(kind):
        yield from (kind.key_field, kind.item_field)
    else:
        yield from (kind.field(place) for place in range(kind.num_fields))
