"""Removes snapshots from a table's metadata in one compare-and-swap, then deletes files that nothing references.

Guarantee: a crash leaves files that no snapshot references, never a snapshot that references a missing file. The next
expiry deletes those files if the table's metadata log still references the metadata from before the crash. Nothing
outside the table's location is ever deleted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    _apply_table_update,
)

from foldhouse.storage import history
from foldhouse.storage.avro import ENTRY, LIST, plain_entries, plain_manifests
from foldhouse.storage.clock import Stamped
from foldhouse.storage.expiry_guard import guard, refs_of, restore_refs
from foldhouse.storage.metadata import read_metadata
from foldhouse.storage.places import is_its_own
from foldhouse.storage.races import until_won
from foldhouse.storage.removal import delete, plain, size_of
from foldhouse.storage.swap import swap
from foldhouse.storage.threads import for_each
from foldhouse.values.metadata_names import THINNED

_FILE = ENTRY.find_field("data_file").field_type
_Read = Callable[[FileIO, str], list[tuple[str, int]]]


@dataclass(frozen=True)
class Expiry:
    """The changes of one expiry to a table's metadata.

    Args:
        removed: snapshot ids.
        tags: tags to set or move, with their snapshots.
        dropped: tags and branches to drop.
        properties: table properties to set.
    """

    removed: frozenset[int] = frozenset()
    tags: Mapping[str, int] = field(default_factory=dict)
    dropped: frozenset[str] = frozenset()
    properties: Mapping[str, str] = field(default_factory=dict)


class _Removed(RemoveSnapshotsUpdate):
    """Removes snapshots according to Iceberg's specification, from which pyiceberg differs in two points.

    Kept snapshots keep the ids of their parents, and the log of heads has no entry before the newest removed one.
    """


@_apply_table_update.register(_Removed)
def _(update: _Removed, base_metadata: TableMetadata, context: Any) -> TableMetadata:
    removed = set(update.snapshot_ids)
    context.add_update(update)
    return base_metadata.model_copy(
        update={
            "snapshots": [one for one in base_metadata.snapshots if one.snapshot_id not in removed],
            "snapshot_log": history.log_after(base_metadata, removed),
            "refs": {name: ref for name, ref in base_metadata.refs.items() if ref.snapshot_id not in removed},
            "statistics": [one for one in base_metadata.statistics if one.snapshot_id not in removed],
            "partition_statistics": [
                one for one in base_metadata.partition_statistics if one.snapshot_id not in removed
            ],
        }
    )


def expire(catalog: Catalog, iceberg: IcebergTable, expiry: Expiry) -> None:
    """Commit an expiry if head, tags and branches are still those in `iceberg`. No file is deleted.

    Raises:
        CommitConflict: another writer committed, or set a tag or branch, first; nothing was removed.
    """
    metadata = iceberg.metadata
    requirements, updates = guard(iceberg)
    updates += [
        SetSnapshotRefUpdate.model_validate({"ref-name": tag, "type": "tag", "snapshot-id": snapshot_id})
        for tag, snapshot_id in sorted(expiry.tags.items())
    ]
    updates += [RemoveSnapshotRefUpdate.model_validate({"ref-name": tag}) for tag in sorted(expiry.dropped)]
    properties = dict(expiry.properties)
    if expiry.removed:
        updates.append(_Removed.model_validate({"snapshot-ids": sorted(expiry.removed)}))
        properties[THINNED] = history.to_json(history.without(metadata, expiry.removed))
    if properties:
        updates.append(SetPropertiesUpdate(updates=properties))
    updates.append(Stamped(updates={}))

    def landed(now: IcebergTable) -> bool:
        left, refs = {snapshot.snapshot_id for snapshot in now.snapshots()}, refs_of(now.metadata)
        return (
            not left & expiry.removed
            and not expiry.dropped & set(refs)
            and all(refs.get(tag) == snapshot_id for tag, snapshot_id in expiry.tags.items())
            and all(now.properties.get(name) == text for name, text in expiry.properties.items())
        )

    swap(catalog, iceberg, tuple(requirements), tuple(updates), landed, "the expiry of snapshots")
    until_won(lambda: restore_refs(catalog, iceberg, expiry.removed))


@dataclass(frozen=True)
class Deleted:
    """The number and size of deleted files.

    Args:
        files: how many files were deleted.
        bytes: their size.
        outside: how many files were left because they are outside the table's location.
        paths: the deleted files.
        left: the files outside the table's location.
    """

    files: int = 0
    bytes: int = 0
    outside: int = 0
    paths: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


def delete_unnamed(before: IcebergTable, after: IcebergTable) -> Deleted:
    """Delete the files of expired snapshots that no snapshot of the table references.

    Data files are deleted first, then manifests, then manifest lists, so that the next expiry finds the rest after a
    crash. In a store, several files of a kind are read or deleted at once.

    Args:
        before: the table before the commit. Snapshots in it or in older metadata that `after` lacks are expired.
        after: the table as it is now, read after the commit. Files that any of its snapshots references stay.

    Raises:
        OSError: the files still referenced cannot be determined for certain; nothing was deleted.
    """
    kept = {one.manifest_list for one in after.snapshots()}
    earlier = list(_earlier(before, after))
    lists = {one.manifest_list for metadata in earlier for one in metadata.snapshots} - kept
    stays = _statistics(after.metadata)
    statistics = {path: size for one in earlier for path, size in _statistics(one).items() if path not in stays}
    if not lists and not statistics:
        return Deleted()
    io = after.io
    named = {plain(path): path for path, _ in _in_each(after, _manifests, kept)}
    manifests = {path: size for path, size in _in_each(after, _if_there(_manifests), lists) if plain(path) not in named}
    live = {plain(path) for path, _ in _in_each(after, _live, named.values())}
    files = {path: size for path, size in _in_each(after, _if_there(_files), manifests) if plain(path) not in live}
    ordered = sorted(lists)
    sizes = dict(zip(ordered, for_each(after.location(), lambda path: size_of(io, path), ordered), strict=True))
    kinds: list[dict[str, int]] = [{**statistics, **files}, manifests, sizes]
    outside = tuple(path for kind in kinds for path in kind if not is_its_own(after, path))
    done = [one for kind in kinds for one in _deleted(after, kind)]
    paths = tuple(path for path, _ in done)
    return Deleted(len(done), sum(size for _, size in done), len(outside), paths, outside)


def _in_each(after: IcebergTable, read: _Read, paths: Iterable[str]) -> list[tuple[str, int]]:
    """Return the files in some manifests or lists, with their sizes."""
    several = for_each(after.location(), lambda path: read(after.io, path), list(paths))
    return [one for found in several for one in found]


def _deleted(after: IcebergTable, sizes: Mapping[str, int]) -> list[tuple[str, int]]:
    """Delete files, and return those that were there, with their sizes."""
    are_gone = for_each(after.location(), lambda path: delete(after, path), list(sizes))
    return [one for one, is_gone in zip(sizes.items(), are_gone, strict=True) if is_gone]


def live_files(io: FileIO, manifest: str) -> list[str]:
    """Return the paths of the live data and delete files of a manifest."""
    return [path for path, _ in _live(io, manifest)]


def manifest_paths(io: FileIO, manifest_list: str) -> list[str]:
    """Return the paths of the manifests in a manifest list."""
    return [path for path, _ in _manifests(io, manifest_list)]


def _earlier(before: IcebergTable, after: IcebergTable) -> list[TableMetadata]:
    """Return the metadata that may reference expired files: the one that `after` replaced, and those in its log."""

    def read(location: str) -> list[TableMetadata]:
        with contextlib.suppress(OSError):  # an old metadata file that was deleted
            return [read_metadata(after.io, location)]
        return []

    log = [one.metadata_file for one in after.metadata.metadata_log if one.metadata_file != before.metadata_location]
    return [before.metadata, *(one for found in for_each(after.location(), read, log) for one in found)]


def _statistics(metadata: TableMetadata) -> dict[str, int]:
    both = (*metadata.statistics, *metadata.partition_statistics)
    return {one.statistics_path: one.file_size_in_bytes for one in both}


def _place(schema: Any, name: str) -> int:
    return [one.name for one in schema.fields].index(name)


def _manifests(io: FileIO, manifest_list: str) -> list[tuple[str, int]]:
    path, size = _place(LIST, "manifest_path"), _place(LIST, "manifest_length")
    return [(one[path], one[size]) for one in plain_manifests(io, manifest_list)]


def _files(io: FileIO, manifest: str) -> list[tuple[str, int]]:
    return [(path, size) for _, path, size in _entries(io, manifest)]


def _live(io: FileIO, manifest: str) -> list[tuple[str, int]]:
    return [(path, size) for status, path, size in _entries(io, manifest) if status != ManifestEntryStatus.DELETED]


def _entries(io: FileIO, manifest: str) -> Iterator[tuple[int, str, int]]:
    status, file = _place(ENTRY, "status"), _place(ENTRY, "data_file")
    path, size = _place(_FILE, "file_path"), _place(_FILE, "file_size_in_bytes")
    for one in plain_entries(io, manifest):
        yield one[status], one[file][path], one[file][size]


def _if_there(read: _Read) -> _Read:
    """Read an expired manifest or list; it has no files if it is gone, because they are deleted before it."""

    def found(io: FileIO, path: str) -> list[tuple[str, int]]:
        try:
            return read(io, path)
        except FileNotFoundError:
            return []

    return found
