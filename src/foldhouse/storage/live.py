"""The live rows of a snapshot as slices of files, and the difference of two snapshots.

A slice is a data file and the delete files that apply to it. Two snapshots are compared only by their slices. The
changes can therefore be computed in either direction and across any history: rollback, expiry, a moved branch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from pyiceberg.conversions import from_bytes
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestFile
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import StringType

from foldhouse.errors import UnknownSnapshot, Unsupported
from foldhouse.storage.avro import live_entries, manifests_of
from foldhouse.storage.history import snapshot_of

_PATH_FIELD_ID = 2147483546  # reserved by Iceberg for the column `file_path` of position delete files


@dataclass(frozen=True)
class FileRef:
    """The facts about a data file that planning needs; two are equal if their paths are.

    `lower` and `upper` are Iceberg's serialised bounds by field id. Text may be truncated, but they remain bounds.
    `nulls` are the ids of columns that are known to contain only nulls.
    """

    path: str
    rows: int = field(compare=False)
    size_bytes: int = field(compare=False)
    spec_id: int = field(compare=False)
    partition: tuple[Any, ...] = field(compare=False)
    lower: dict[int, bytes] = field(compare=False, repr=False)
    upper: dict[int, bytes] = field(compare=False, repr=False)
    nulls: frozenset[int] = field(default=frozenset(), compare=False, repr=False)


@dataclass(frozen=True)
class Slice:
    """A data file and the position delete files that apply to it, sorted by path."""

    file: FileRef
    deletes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Piece:
    """Some rows of one file, with a sign.

    Args:
        file: the data file.
        weight: +1 for rows that exist or were added, -1 for rows that were removed.
        only: include only the rows deleted by these delete files; `None` for all rows.
        without: exclude the rows deleted by these delete files.
    """

    file: FileRef
    weight: int = 1
    only: tuple[str, ...] | None = None
    without: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether it includes every row of its file, so that any Parquet reader may read it."""
        return self.only is None and not self.without


def without_bounds(piece: Piece) -> Piece:
    """Return a piece without its file's bounds: only planning needs them, and every task would receive them."""
    return replace(piece, file=replace(piece.file, lower={}, upper={}))


@lru_cache(maxsize=4096)
def _entries(key: str, manifest: _Manifest) -> tuple[tuple[DataFile, int], ...]:
    entries = live_entries(manifest.io, manifest.file)
    return tuple((entry.data_file, entry.sequence_number or 0) for entry in entries)


@dataclass(frozen=True)
class _Manifest:
    """A manifest with its file system; all are equal, so that the cache uses only the path."""

    file: ManifestFile = field(compare=False)
    io: FileIO = field(compare=False)


def data_manifests(iceberg: IcebergTable, snapshot: Snapshot) -> dict[str, Callable[[], list[DataFile]]] | None:
    """Return manifest path -> a function that reads its live data files; `None` if there are delete files.

    Callers can cache results by manifest: manifests never change, and a commit adds few of them.
    """
    manifests = [one for one in manifests_of(iceberg.io, snapshot) if one.has_added_files() or one.has_existing_files()]
    if any(one.content == ManifestContent.DELETES for one in manifests):
        return None
    return {one.manifest_path: functools.partial(_data_files, _Manifest(one, iceberg.io)) for one in manifests}


def _data_files(manifest: _Manifest) -> list[DataFile]:
    return [data_file for data_file, _ in _entries(manifest.file.manifest_path, manifest)]


def live_slices(iceberg: IcebergTable, snapshot_id: int | None) -> dict[str, Slice]:
    """Return the slices of a snapshot by data file path; an empty dict for `None`.

    Raises:
        UnknownSnapshot: the table has no such snapshot (it may have been expired).
        Unsupported: equality deletes or deletion vectors.
    """
    if snapshot_id is None:
        return {}
    snapshot = snapshot_of(iceberg, snapshot_id)
    if snapshot is None:
        raise UnknownSnapshot(f"{'.'.join(iceberg.name())} has no snapshot {snapshot_id}; it may have been expired")
    return _slices(str(iceberg.metadata.table_uuid), snapshot_id, _Snapshot(iceberg, snapshot))


@dataclass(frozen=True)
class _Snapshot:
    """A snapshot with its table; all are equal, so that the cache uses only the table's uuid and the snapshot's id."""

    iceberg: IcebergTable = field(compare=False)
    snapshot: Snapshot = field(compare=False)


# The files of a snapshot never change.
@lru_cache(maxsize=32)
def _slices(uuid: str, snapshot_id: int, given: _Snapshot) -> dict[str, Slice]:
    iceberg, snapshot = given.iceberg, given.snapshot
    files: dict[str, tuple[DataFile, int]] = {}
    deletes: dict[tuple[int, tuple[Any, ...]], list[tuple[DataFile, int]]] = {}
    for manifest in manifests_of(iceberg.io, snapshot):
        for data_file, sequence in _entries(manifest.manifest_path, _Manifest(manifest, iceberg.io)):
            if data_file.content == DataFileContent.DATA:
                files[data_file.file_path] = (data_file, sequence)
            else:
                _check_supported(iceberg, data_file)
                deletes.setdefault(_partition_key(data_file), []).append((data_file, sequence))
    return {path: Slice(file_ref(f), _deletes_for(f, sequence, deletes)) for path, (f, sequence) in files.items()}


def _check_supported(iceberg: IcebergTable, delete_file: DataFile) -> None:
    name = ".".join(iceberg.name())
    if delete_file.content == DataFileContent.EQUALITY_DELETES:
        raise Unsupported(
            f"{name} contains equality deletes ({delete_file.file_path}), which foldhouse does not read; "
            "rewrite the table's data files with the engine that wrote them (Spark: rewrite_data_files)"
        )
    if delete_file.file_format != FileFormat.PARQUET:
        raise Unsupported(
            f"{name} contains deletes as {delete_file.file_format.value} ({delete_file.file_path}), and foldhouse "
            "reads only position deletes in Parquet (format version 2); rewrite the table's data files with the engine "
            "that wrote them"
        )


def _partition_key(data_file: DataFile) -> tuple[int, tuple[Any, ...]]:
    return data_file.spec_id, partition_values(data_file)


def partition_values(data_file: DataFile) -> tuple[Any, ...]:
    """Return the partition of a file, as a tuple in the order of its spec."""
    return tuple(data_file.partition[i] for i in range(len(data_file.partition)))


def file_ref(data_file: DataFile) -> FileRef:
    """Return the facts about a data file of a manifest that planning needs."""
    return FileRef(
        path=data_file.file_path,
        rows=data_file.record_count,
        size_bytes=data_file.file_size_in_bytes,
        spec_id=data_file.spec_id,
        partition=partition_values(data_file),
        lower=data_file.lower_bounds or {},
        upper=data_file.upper_bounds or {},
        nulls=frozenset(
            number for number, count in (data_file.null_value_counts or {}).items() if count == data_file.record_count
        ),
    )


def _deletes_for(data_file: DataFile, sequence: int, deletes: dict[Any, list[tuple[DataFile, int]]]) -> tuple[str, ...]:
    candidates = deletes.get(_partition_key(data_file), [])
    # By Iceberg's rules, position deletes apply to files of the same or an earlier commit.
    return tuple(sorted(d.file_path for d, s in candidates if s >= sequence and _may_name(d, data_file.file_path)))


def _may_name(delete_file: DataFile, path: str) -> bool:
    # Another writer may truncate these bounds, and truncated bounds still enclose the path.
    lower, upper = (
        bounds.get(_PATH_FIELD_ID) for bounds in (delete_file.lower_bounds or {}, delete_file.upper_bounds or {})
    )
    if lower is not None and path < from_bytes(StringType(), lower):
        return False
    return upper is None or path <= from_bytes(StringType(), upper)


def pieces_of(slices: Iterable[Slice]) -> list[Piece]:
    """Return all live rows of the given slices, as pieces of weight +1."""
    return [Piece(s.file, without=s.deletes) for s in slices]


def difference(before: dict[str, Slice], after: dict[str, Slice]) -> list[Piece]:
    """Return the removed (-1) and the added (+1) rows between two sets of slices, as pieces.

    A row that only moved to another file is both removed and added; the caller must cancel equal rows.
    """
    pieces: list[Piece] = []
    for path, old in before.items():
        new = after.get(path)
        if new is None:
            pieces.append(Piece(old.file, -1, without=old.deletes))
        elif new.deletes != old.deletes:
            # If delete files were only merged, both pieces have no rows.
            if set(new.deletes) - set(old.deletes):
                pieces.append(Piece(old.file, -1, only=new.deletes, without=old.deletes))
            if set(old.deletes) - set(new.deletes):
                pieces.append(Piece(old.file, +1, only=old.deletes, without=new.deletes))
    pieces += [Piece(new.file, +1, without=new.deletes) for path, new in after.items() if path not in before]
    return pieces
