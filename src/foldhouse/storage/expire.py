"""Snapshots leave a table's metadata in one compare-and-swap; the files that nothing names any more are deleted.

Guarantee: a crash leaves files that no snapshot names, never a snapshot that names a missing file. What a crash left
is deleted by the next expiry, as long as the table's metadata log still names the metadata before it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from pydantic import Field
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.serializers import FromInputFile
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

from foldhouse.errors import UnknownSnapshot
from foldhouse.storage.avro import ENTRY, LIST, plain_entries, plain_manifests
from foldhouse.storage.history import Chapter, Chapters, chapters, snapshots_in, snapshots_of
from foldhouse.storage.swap import swap

_SCHEME = re.compile(r"^\w+:/*")
_FILE = ENTRY.find_field("data_file").field_type


@dataclass(frozen=True)
class Expiry:
    """What one commit takes out of a table's metadata.

    Args:
        removed: snapshot ids.
        tags: tags to set or move, with their snapshots.
        dropped: tags to drop.
        properties: table properties to set.
        parents_stay: whether those that stay go on naming removed ones as their parents, because these are still held
            in a chapter of the history.
    """

    removed: frozenset[int] = frozenset()
    tags: Mapping[str, int] = field(default_factory=dict)
    dropped: frozenset[str] = frozenset()
    properties: Mapping[str, str] = field(default_factory=dict)
    parents_stay: bool = False


class _Unlisted(RemoveSnapshotsUpdate):
    """Removes snapshots from what the metadata lists; pyiceberg also has their children forget them."""


@_apply_table_update.register(_Unlisted)
def _(update: _Unlisted, base_metadata: TableMetadata, context: Any) -> TableMetadata:
    parents = {one.snapshot_id: one.parent_snapshot_id for one in base_metadata.snapshots}
    plain = RemoveSnapshotsUpdate(snapshot_ids=update.snapshot_ids)
    after = _apply_table_update(plain, base_metadata, context)
    kept = [one.model_copy(update={"parent_snapshot_id": parents[one.snapshot_id]}) for one in after.snapshots]
    return after.model_copy(update={"snapshots": kept})


class _RefsUnmoved(AssertTableUUID):
    """That it is this table, with exactly these tags, branches and chapters: a removed snapshot takes its tags along.

    Iceberg has no such requirement; a catalog in another process checks the uuid alone.
    """

    refs: dict[str, int] = Field(exclude=True)
    chapters: Chapters = Field(exclude=True)

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]
        super().validate(base_metadata)
        if base_metadata is not None and _refs(base_metadata) != self.refs:
            raise CommitFailedException("Requirement failed: a tag or branch was set, moved or dropped meanwhile")
        if base_metadata is not None and chapters(base_metadata) != self.chapters:
            raise CommitFailedException("Requirement failed: the older history was moved or expired meanwhile")


def expire(catalog: Catalog, iceberg: IcebergTable, expiry: Expiry) -> None:
    """Commit an expiry, if head, tags and branches are those in `iceberg`. No file is deleted.

    Raises:
        CommitConflict: somebody else committed, or set a tag or branch, first; nothing was removed.
    """
    metadata = iceberg.metadata
    uuid: UUID = metadata.table_uuid
    requirements: list[TableRequirement] = [_RefsUnmoved(uuid=uuid, refs=_refs(metadata), chapters=chapters(metadata))]
    requirements += [AssertRefSnapshotId(ref=ref, snapshot_id=at) for ref, at in _refs(metadata).items()]
    updates: list[TableUpdate] = [
        SetSnapshotRefUpdate.model_validate({"ref-name": tag, "type": "tag", "snapshot-id": snapshot_id})
        for tag, snapshot_id in sorted(expiry.tags.items())
    ]
    updates += [RemoveSnapshotRefUpdate.model_validate({"ref-name": tag}) for tag in sorted(expiry.dropped)]
    if expiry.removed:
        kind = _Unlisted if expiry.parents_stay else RemoveSnapshotsUpdate
        updates.append(kind.model_validate({"snapshot-ids": sorted(expiry.removed)}))
    if expiry.properties:
        updates.append(SetPropertiesUpdate(updates=dict(expiry.properties)))

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
    """Files that were deleted, and their size."""

    files: int = 0
    bytes: int = 0


def delete_unnamed(before: IcebergTable, after: IcebergTable) -> Deleted:
    """Delete the files of expired snapshots that no snapshot of the table names.

    Data files go first, then manifests, manifest lists and chapters, so that what is left after a crash is found again.

    Args:
        before: the table as it was; what it and the metadata before it held and `after` does not is expired.
        after: the table as it is now, read after the commit. Whatever any of its snapshots names stays.

    Raises:
        OSError: what is still named cannot be told for certain; nothing was deleted.
    """
    kept = {one.manifest_list for one in snapshots_of(after)}
    files_now = _chapter_files(after.metadata)
    earlier = list(_earlier(before, after))
    old_chapters = {path for metadata in earlier for path in _chapter_files(metadata)} - files_now
    lists = {one.manifest_list for metadata in earlier for one in metadata.snapshots}
    lists |= {
        path for one in {c for metadata in earlier for c in chapters(metadata).held} for path in _lists(after, one)
    }
    lists -= kept
    if not lists | old_chapters:
        return Deleted()
    io = after.io
    named = {_plain(path): path for one in kept for path, _ in _manifests(io, one)}
    manifests = {
        path: size for one in lists for path, size in _if_there(_manifests, io, one) if _plain(path) not in named
    }
    live = {_plain(path) for one in named.values() for path, _ in _files(io, one, only_live=True)}
    files = {path: size for one in manifests for path, size in _if_there(_files, io, one) if _plain(path) not in live}
    sizes = {path: _size(io, path) for path in (*lists, *old_chapters)}
    done = [size for path, size in (*files.items(), *manifests.items(), *sizes.items()) if _delete(io, path)]
    return Deleted(len(done), sum(done))


def _earlier(before: IcebergTable, after: IcebergTable) -> Iterator[TableMetadata]:
    """The metadata that may name what `after` does not: the one it replaced, and those in its log."""
    yield before.metadata
    for entry in after.metadata.metadata_log:
        if entry.metadata_file != before.metadata_location:
            with contextlib.suppress(OSError):  # an old one that is gone
                yield FromInputFile.table_metadata(after.io.new_input(entry.metadata_file))


def _chapter_files(metadata: TableMetadata) -> set[str]:
    found = chapters(metadata)
    return {*(one.file for one in found.held), *found.replaced}


def _lists(iceberg: IcebergTable, chapter: Chapter) -> list[str]:
    """The manifest lists of the snapshots of a chapter; of an old one that is gone, none."""
    try:
        return [one.manifest_list for one in snapshots_in(iceberg, chapter)]
    except UnknownSnapshot:
        return []


def _plain(path: str) -> str:
    """A path without its scheme: some writers say `file:/x` where others say `file:///x`, of one and the same file."""
    return _SCHEME.sub("/", path)


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
    """What an expired list or manifest names; nothing where it is gone, because what it names goes before it."""
    try:
        named: list[tuple[str, int]] = read(io, path)
    except FileNotFoundError:
        return []
    return named


def _size(io: FileIO, path: str) -> int:
    try:
        return len(io.new_input(path))
    except OSError:
        return 0


def _delete(io: FileIO, path: str) -> bool:
    """Whether a file was there and is gone now. One that cannot be deleted is left: it is only an orphan."""
    try:
        io.delete(path)
    except OSError:
        return False
    return True
