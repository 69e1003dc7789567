"""Removes snapshots from a table's metadata in one compare-and-swap, then deletes files that nothing references.

Guarantee: a crash leaves files that no snapshot references, never a snapshot that references a missing file. The next
expiry deletes those files if the table's metadata log still references the metadata from before the crash. Nothing
outside the table's location is ever deleted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from pydantic import Field
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
    _apply_table_update,
)

from foldhouse.storage import history
from foldhouse.storage.avro import ENTRY, LIST, plain_entries, plain_manifests
from foldhouse.storage.clock import Stamped
from foldhouse.storage.metadata import read_metadata
from foldhouse.storage.places import is_its_own
from foldhouse.storage.removal import delete, plain, size_of
from foldhouse.storage.swap import swap
from foldhouse.values.metadata_names import THINNED

_FILE = ENTRY.find_field("data_file").field_type


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


class _RefsUnmoved(AssertTableUUID):
    """Requires this table with exactly these tags and branches, because removing a snapshot removes its tags.

    Iceberg has no such requirement; a catalog in another process checks only the uuid.
    """

    # Excluded from the JSON, so that a catalog server receives a plain assertion of the uuid.
    refs: dict[str, int] = Field(exclude=True)

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]
        super().validate(base_metadata)
        if base_metadata is not None and _refs(base_metadata) != self.refs:
            raise CommitFailedException("Requirement failed: a tag or branch was set, moved or dropped meanwhile")


def expire(catalog: Catalog, iceberg: IcebergTable, expiry: Expiry) -> None:
    """Commit an expiry if head, tags and branches are still those in `iceberg`. No file is deleted.

    Raises:
        CommitConflict: another writer committed, or set a tag or branch, first; nothing was removed.
    """
    metadata = iceberg.metadata
    uuid: UUID = metadata.table_uuid
    requirements: list[TableRequirement] = [_RefsUnmoved(uuid=uuid, refs=_refs(metadata))]
    requirements += [AssertRefSnapshotId(ref=ref, snapshot_id=at) for ref, at in _refs(metadata).items()]
    updates: list[TableUpdate] = [
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
        left, refs = {snapshot.snapshot_id for snapshot in now.snapshots()}, _refs(now.metadata)
        return (
            not left & expiry.removed
            and not expiry.dropped & set(refs)
            and all(refs.get(tag) == snapshot_id for tag, snapshot_id in expiry.tags.items())
            and all(now.properties.get(name) == text for name, text in expiry.properties.items())
        )

    swap(catalog, iceberg, tuple(requirements), tuple(updates), landed, "the expiry of snapshots")


def _refs(metadata: TableMetadata) -> dict[str, int]:
    return {name: ref.snapshot_id for name, ref in metadata.refs.items()}


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

    Data files are deleted first, then manifests and manifest lists, so that the next expiry finds the rest after a
    crash.

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
    named = {plain(path): path for one in kept for path, _ in _manifests(io, one)}
    manifests = {
        path: size for one in lists for path, size in _if_there(_manifests, io, one) if plain(path) not in named
    }
    live = {plain(path) for one in named.values() for path in live_files(io, one)}
    files = {path: size for one in manifests for path, size in _if_there(_files, io, one) if plain(path) not in live}
    sizes = {path: size_of(io, path) for path in lists}
    going = [*statistics.items(), *files.items(), *manifests.items(), *sizes.items()]
    outside = tuple(path for path, _ in going if not is_its_own(after, path))
    done = [(path, size) for path, size in going if delete(after, path)]
    paths = tuple(path for path, _ in done)
    return Deleted(len(done), sum(size for _, size in done), len(outside), paths, outside)


def live_files(io: FileIO, manifest: str) -> list[str]:
    """Return the paths of the live data and delete files of a manifest."""
    return [path for path, _ in _files(io, manifest, only_live=True)]


def manifest_paths(io: FileIO, manifest_list: str) -> list[str]:
    """Return the paths of the manifests in a manifest list."""
    return [path for path, _ in _manifests(io, manifest_list)]


def _earlier(before: IcebergTable, after: IcebergTable) -> Iterator[TableMetadata]:
    """Yield the metadata that may reference expired files: the one that `after` replaced, and those in its log."""
    yield before.metadata
    for entry in after.metadata.metadata_log:
        if entry.metadata_file != before.metadata_location:
            with contextlib.suppress(OSError):  # an old metadata file that was deleted
                yield read_metadata(after.io, entry.metadata_file)


def _statistics(metadata: TableMetadata) -> dict[str, int]:
    both = (*metadata.statistics, *metadata.partition_statistics)
    return {one.statistics_path: one.file_size_in_bytes for one in both}


def _place(schema: Any, name: str) -> int:
    return [one.name for one in schema.fields].index(name)


def _manifests(io: FileIO, manifest_list: str) -> list[tuple[str, int]]:
    path, size = _place(LIST, "manifest_path"), _place(LIST, "manifest_length")
    return [(one[path], one[size]) for one in plain_manifests(io, manifest_list)]


def _files(io: FileIO, manifest: str, *, only_live: bool = False) -> list[tuple[str, int]]:
    status, file = _place(ENTRY, "status"), _place(ENTRY, "data_file")
    path, size = _place(_FILE, "file_path"), _place(_FILE, "file_size_in_bytes")
    return [
        (one[file][path], one[file][size])
        for one in plain_entries(io, manifest)
        if not only_live or one[status] != ManifestEntryStatus.DELETED
    ]


def _if_there(read: Any, io: FileIO, path: str) -> Iterable[tuple[str, int]]:
    """Return the files in an expired manifest or list; none if it is gone, because they are deleted before it."""
    try:
        named: list[tuple[str, int]] = read(io, path)
    except FileNotFoundError:
        return []
    return named
