"""Expiry of a table's history, but what others still need: the positions of its consumers are found and held by tags.

Guarantee: what is needed is never expired by us. Tags and removal are one compare-and-swap, and files are deleted
after it: a crash in between leaves files that no snapshot names, never a snapshot that names a missing file.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.refs import MAIN_BRANCH

from foldhouse.errors import CommitConflict, Unsupported
from foldhouse.refresh.head import is_ours, last_head
from foldhouse.refresh.publish import REBUILD_BRANCH
from foldhouse.refresh.remembered import PROPERTY, to_json, without
from foldhouse.storage import history
from foldhouse.storage.archive import chapters_found, chapters_without, drop_unused
from foldhouse.storage.catalog import table_names
from foldhouse.storage.expire import Expiry, delete_unnamed, expire
from foldhouse.storage.history import last_as_head, lineage, log_of, snapshot_of, snapshots_of
from foldhouse.storage.schema import kind_of

POSITION_TAG = "foldhouse.position."


@dataclass(frozen=True)
class Expired:
    """What an expiry came to.

    Args:
        table: its name.
        committed: whether anything changed; with nothing old enough, and all tags right, nothing does.
        snapshots_removed: how many snapshots went.
        snapshots_left: how many there are now.
        held: tag -> snapshot id, for the positions of all consumers.
        tags_dropped: tags of consumers that no longer exist, or no longer stand at a snapshot of this table.
        files_deleted, bytes_freed: of data, delete and metadata files that no snapshot names any more.
        seconds: how long it took.
    """

    table: str
    committed: bool
    snapshots_removed: int = 0
    snapshots_left: int = 0
    held: dict[str, int] = field(default_factory=dict)
    tags_dropped: tuple[str, ...] = ()
    files_deleted: int = 0
    bytes_freed: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Keeping:
    """What an expiry keeps beside what it always keeps.

    Args:
        since_ms: snapshots that were the head at this moment or later.
        last: so many of the newest commits behind the head, itself among them.
        now_ms: the time.
    """

    since_ms: int
    last: int
    now_ms: int


def expire_history(catalog: Catalog, load: Callable[[], IcebergTable], keeping: Keeping) -> Expired:
    """Remove the snapshots of a table that nobody needs, and delete the files that only they name.

    Raises:
        Unsupported: the table's property `gc.enabled` says that its files may be used elsewhere.
        CommitConflict: somebody else committed, or set a tag or branch, meanwhile; nothing was removed.
    """
    started = time.monotonic()
    iceberg = load()
    name = ".".join(iceberg.name())
    if iceberg.properties.get("gc.enabled", "true").lower() == "false":
        raise Unsupported(f"{name} has gc.enabled=false: its files may be used elsewhere, so nothing of it is expired")
    found = chapters_found(iceberg)
    if found is not None:  # somebody deleted the others
        expire(catalog, iceberg, Expiry(properties={history.PROPERTY: history.to_json(found)}))
        iceberg = load()
    held = consumer_positions(catalog, iceberg)
    ours = {tag: ref.snapshot_id for tag, ref in iceberg.metadata.refs.items() if tag.startswith(POSITION_TAG)}
    ends = last_as_head(snapshots_of(iceberg), log_of(iceberg))
    needed = _needed(iceberg, set(held.values()), keeping, ends)
    removed = frozenset(one for one, end in ends.items() if end < keeping.since_ms and one not in needed)
    memory = without(iceberg, removed, max((ends[one] for one in removed), default=0))
    listed = {one.snapshot_id for one in iceberg.snapshots()}
    moved = chapters_without(iceberg, removed)
    properties = {PROPERTY: to_json(memory)} if removed else {}
    expiry = Expiry(
        removed=removed & listed,
        tags={tag: at for tag, at in held.items() if ours.get(tag) != at and at in listed},
        dropped=frozenset(tag for tag in ours if held.get(tag) not in listed),
        properties=properties if moved is None else properties | {history.PROPERTY: history.to_json(moved)},
    )
    if expiry != Expiry():
        try:
            expire(catalog, iceberg, expiry)
        except CommitConflict:
            drop_unused(iceberg, moved)
            raise
    after = load()
    is_same = after.metadata.table_uuid == iceberg.metadata.table_uuid
    deleted = delete_unnamed(iceberg, after) if is_same else None
    return Expired(
        table=name,
        committed=expiry != Expiry(),
        snapshots_removed=len(removed),
        snapshots_left=sum(1 for _ in snapshots_of(after)),
        held=held,
        tags_dropped=tuple(sorted(expiry.dropped)),
        files_deleted=deleted.files if deleted else 0,
        bytes_freed=deleted.bytes if deleted else 0,
        seconds=time.monotonic() - started,
    )


def consumer_positions(catalog: Catalog, iceberg: IcebergTable) -> dict[str, int]:
    """Tag -> the snapshot of this table at which a table of the catalog stands: its head, and a rebuild not published.

    A table is known by its uuid. Any failure to read a table of the catalog is raised, because it may be a consumer.
    """
    uuid = str(iceberg.metadata.table_uuid)
    there = {snapshot.snapshot_id for snapshot in snapshots_of(iceberg)}
    held: dict[str, int] = {}
    for name in table_names(catalog):
        try:
            consumer = catalog.load_table(name)
        except NoSuchTableError:  # dropped meanwhile
            continue
        for branch, tag in ((MAIN_BRANCH, name), (REBUILD_BRANCH, f"{name}.{REBUILD_BRANCH}")):
            for position in last_head(consumer, branch).positions.values():
                if position.uuid == uuid and position.snapshot_id in there:
                    held[POSITION_TAG + tag] = position.snapshot_id
    return held


def _needed(iceberg: IcebergTable, positions: set[int], keeping: Keeping, ends: Mapping[int, int]) -> set[int]:
    """The snapshots that stay, however old: head, tags and branches, consumers' positions, and the last commits."""
    refs = [ref.snapshot_id for tag, ref in iceberg.metadata.refs.items() if not tag.startswith(POSITION_TAG)]
    last = [one.snapshot_id for one in lineage(iceberg, iceberg.current_snapshot())][: max(keeping.last, 1)]
    needed = {*refs, *positions, *last}
    if kind_of(iceberg) == "table":
        young = {one for one, end in ends.items() if end >= keeping.since_ms}
        needed |= {below for one in needed | young for below in _down_to_ours(iceberg, one)}
    return needed


def _down_to_ours(iceberg: IcebergTable, snapshot_id: int) -> Iterator[int]:
    """From commits of others, which say no position, down to the commit of ours that they stand on."""
    for snapshot in lineage(iceberg, snapshot_of(iceberg, snapshot_id)):
        yield snapshot.snapshot_id
        if is_ours(snapshot):
            return
