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
from pyiceberg.io import WAREHOUSE, FileIO, InputFile
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Operation

from foldhouse.errors import CommitConflict, InvalidCall, InvalidData
from foldhouse.storage.commit import FileChanges, commit
from foldhouse.storage.evolve import evolved
from foldhouse.storage.file_ref import FileRef
from foldhouse.storage.files import described_file
from foldhouse.storage.history import head_of
from foldhouse.storage.live import Partition, live_slices
from foldhouse.storage.mapped import has_ids, mapping_of
from foldhouse.storage.parquet import opened
from foldhouse.storage.places import is_below
from foldhouse.storage.races import until_won
from foldhouse.storage.schema import Layout
from foldhouse.storage.statistics import unknown_paths
from foldhouse.storage.store import as_stored
from foldhouse.storage.threads import in_threads
from foldhouse.streams.events import by_day, partition_of
from foldhouse.streams.evolution import commit_columns
from foldhouse.streams.stored import load_stream, stored_stream, stream_coverage
from foldhouse.values.definition import Stream
from foldhouse.values.metadata_names import COVERAGE, FORGOTTEN_EVENTS, RUN_ID
from foldhouse.values.results import Appended

_INSTEAD = "append its rows instead, by lake.append(stream, pyarrow.parquet.read_table(file))"
_OF_ADDRESSES = "%#?"
_AT_ONCE = 8
_DAYS_SHOWN = 3


def add_files(catalog: Catalog, stream: Stream, files: Iterable[str | os.PathLike[str]], run_id: str) -> Appended:
    """Add Parquet files in one commit, all of them or none.

    If the declaration adds or widens columns, or the stream has no name mapping, a commit of metadata comes before it.

    Args:
        catalog: where the stream is registered.
        stream: the declaration.
        files: paths on this machine, or addresses of the store that the catalog is configured for.
        run_id: for the summary.

    Raises:
        InvalidData: a file does not fit the stream; nothing was written.
        InvalidCall: `files` is no list, or a path is named twice or lies in the warehouse; nothing was written.
        DefinitionError: see `append`; or the name mapping of the stream does not fit its columns.
        CommitConflict: other writers won every race, or created the stream again; nothing was added.
    """
    if isinstance(files, str | os.PathLike):
        raise InvalidCall(f"add_files: files is one path, {files}; give a list of paths")
    paths = [_address(one) for one in files]
    twice = [path for path, count in Counter(paths).items() if count > 1]
    if twice:
        raise InvalidCall(f"add_files: {twice[0]} is named twice")
    iceberg = _prepared(catalog, stream)
    _check_places(stream, iceberg, paths)
    layout = Layout.of(iceberg)
    has = _live(iceberg)
    described = in_threads(lambda path: _described(stream, layout, path, has.get(path)), paths, _AT_ONCE)
    wanted = [one for one in described if one is not None]

    def attempt() -> Appended:
        known = _live(iceberg)  # again at each attempt: another writer may have added a file
        added = [one for one in wanted if one.file_path not in known]
        if not added:
            return Appended(stream.name, False, iceberg.metadata.current_snapshot_id)
        properties = {RUN_ID: run_id, COVERAGE: str(stream_coverage(iceberg))}
        snapshot_id = commit(catalog, iceberg, FileChanges(added, operation=Operation.APPEND), properties)
        return Appended(stream.name, True, snapshot_id, rows_added=sum(one.record_count for one in added))

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
            _check_columns(stream, layout, path, file)
            if not footer.num_rows:
                return None
            partition = _partition(stream, layout, path, file)
    except (pa.ArrowException, OSError) as failure:
        raise InvalidData(f"add_files: {path} cannot be read as Parquet: {failure}. Nothing was added") from failure
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


def _check_columns(stream: Stream, layout: Layout, path: str, file: pq.ParquetFile) -> None:
    held = file.schema_arrow
    declared = {name for name, _ in stream.schema}
    missing = [name for name in layout.visible if name in declared and name not in held.names]
    unknown = [name for name in held.names if name not in layout.visible]
    twice = [name for name, count in Counter(held.names).items() if count > 1]
    other = [
        f"{name} of type {held.field(name).type} instead of {layout.arrow.field(name).type}"
        for name in held.names
        if not (unknown or twice) and not _is_same(held.field(name).type, layout.arrow.field(name).type)
    ]
    problems = [
        *([f"lacks {', '.join(missing)}"] if missing else []),
        *([f"also has {', '.join(unknown)}"] if unknown else []),
        *([f"has the column {twice[0]} twice"] if twice else []),
        *([f"has {', '.join(other)}"] if other else []),
    ]
    if not problems and has_ids(held) is not False:
        problems = ["has field ids, which are those of another table"]
    if not problems and (strange := unknown_paths(layout.schema_json, layout.properties, file.metadata)):
        problems = [f"stores {', '.join(strange)}, which Iceberg names otherwise"]
    if problems:
        raise InvalidData(f"{stream.name}: {path} {' and '.join(problems)}; {_INSTEAD}")


def _is_same(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values of a type are read as those of another one without any conversion."""
    if pa.types.is_struct(given) and pa.types.is_struct(wanted):
        names = [field.name for field in wanted]
        if sorted(field.name for field in given) != sorted(names):
            return False
        return all(_is_same(given.field(name).type, wanted.field(name).type) for name in names)
    if pa.types.is_map(given) and pa.types.is_map(wanted):
        return _is_same(given.key_type, wanted.key_type) and _is_same(given.item_type, wanted.item_type)
    if _is_list(given) and _is_list(wanted):
        return _is_same(given.value_type, wanted.value_type)
    return bool(_narrow(given).equals(_narrow(wanted)))


def _is_list(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.ListType | pa.LargeListType)


def _narrow(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind):
        return pa.string()
    return pa.binary() if pa.types.is_large_binary(kind) else kind


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
            f"stream with days has one; {_INSTEAD}"
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
