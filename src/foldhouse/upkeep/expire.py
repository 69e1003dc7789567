"""Expires a table's history, except the snapshots at which its consumers are; these are kept by tags.

Guarantee: foldhouse never expires a snapshot that a consumer needs. Tags and removal are one compare-and-swap, and
files are deleted after it. A crash in between leaves files that no snapshot references, never a snapshot that
references a missing file.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.refs import MAIN_BRANCH

from foldhouse.errors import Unsupported
from foldhouse.heads.head import is_ours, last_head
from foldhouse.heads.remembered import to_json, without
from foldhouse.storage.behind import check_is_not_behind
from foldhouse.storage.catalog import all_tables
from foldhouse.storage.history import ancestor, thinned
from foldhouse.storage.remove_snapshots import Deleted, Expiry, delete_unnamed, expire
from foldhouse.storage.schema import kind_of
from foldhouse.streams.landed import proofs_without
from foldhouse.upkeep.retention import Keeping, stays
from foldhouse.values.metadata_names import EXPIRED, POSITION_TAG, REBUILD_BRANCH
from foldhouse.values.upkeep import Expired


def expire_history(catalog: Catalog, load: Callable[[], IcebergTable], keeping: Keeping) -> Expired:
    """Remove the snapshots of a table that need not be kept, and delete the files that only they reference.

    Raises:
        InvalidProperty: a rule in the table's properties is not valid.
        Unsupported: the table has `gc.enabled=false`, so its files may be used elsewhere.
        CommitConflict: another writer committed, or set a tag or branch, meanwhile; nothing was removed.
        LostTables: the catalog is from an older backup; nothing was removed.
    """
    started = time.monotonic()
    iceberg = load()
    name = ".".join(iceberg.name())
    if iceberg.properties.get("gc.enabled", "true").lower() == "false":
        raise Unsupported(
            f"{name} has gc.enabled=false: its files may be used elsewhere, so none of its snapshots is expired; set "
            "gc.enabled to true if no other table uses them"
        )
    check_is_not_behind(iceberg)
    held = consumer_positions(all_tables(catalog), iceberg)
    kept, gone_by = stays(iceberg, keeping)
    removed = frozenset(one.snapshot_id for one in iceberg.snapshots()) - _needed(iceberg, kept | set(held.values()))
    ours = {tag: ref.snapshot_id for tag, ref in iceberg.metadata.refs.items() if tag.startswith(POSITION_TAG)}
    expiry = Expiry(
        removed=removed,
        tags={tag: at for tag, at in held.items() if ours.get(tag) != at},
        dropped=gone_by.union(tag for tag in ours if tag not in held),
        properties={EXPIRED: to_json(without(iceberg, removed)), **proofs_without(iceberg, removed)} if removed else {},
    )
    if expiry != Expiry():
        expire(catalog, iceberg, expiry)
    after = load()
    # Another uuid: the table was dropped, and another one was created under its name.
    is_same = after.metadata.table_uuid == iceberg.metadata.table_uuid
    deleted = delete_unnamed(iceberg, after) if is_same else Deleted()
    return Expired(
        table=name,
        committed=expiry != Expiry(),
        snapshots_removed=len(removed),
        snapshots_left=len(after.snapshots()),
        held=held,
        tags_dropped=tuple(sorted(expiry.dropped)),
        files_deleted=deleted.files,
        files_outside=deleted.outside,
        bytes_freed=deleted.bytes,
        seconds=time.monotonic() - started,
    )


def consumer_positions(tables: Mapping[str, IcebergTable], iceberg: IcebergTable) -> dict[str, int]:
    """Return tag -> the snapshot of this table up to which a consumer is folded.

    A consumer has a tag for its head, and one for an unpublished rebuild. Tables are identified by their uuids.

    Args:
        tables: all tables of the catalog; each may be a consumer.
        iceberg: the table.
    """
    uuid = str(iceberg.metadata.table_uuid)
    there = {snapshot.snapshot_id for snapshot in iceberg.snapshots()}
    held: dict[str, int] = {}
    for name, consumer in sorted(tables.items()):
        for branch, tag in ((MAIN_BRANCH, name), (REBUILD_BRANCH, f"{name}.{REBUILD_BRANCH}")):
            for position in last_head(consumer, branch).positions.values():
                if position.uuid == uuid and position.snapshot_id in there:
                    held[POSITION_TAG + tag] = position.snapshot_id
    return held


def _needed(iceberg: IcebergTable, kept: set[int]) -> set[int]:
    """Add to the kept snapshots of a table their ancestors down to the nearest commit of ours; it has the position."""
    if kind_of(iceberg) != "table":
        return kept
    listed = {one.snapshot_id: one for one in iceberg.snapshots()}
    below = thinned(iceberg.metadata).below
    needed = set(kept)
    for one in kept:
        snapshot = listed.get(one)
        while snapshot is not None and not is_ours(snapshot):  # a foreign commit has no position
            behind = ancestor(snapshot, listed, below)
            snapshot = None if behind is None else listed[behind]
            needed.update(() if snapshot is None else (snapshot.snapshot_id,))
    return needed
