"""The oldest listed snapshots of a table move to a chapter of its history, so that commits stay cheap.

Guarantee: a snapshot is listed or in a chapter at every moment. A chapter is written before the one compare-and-swap
that names it; a crash in between leaves a file that nothing names.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence, Set

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Snapshot, SnapshotLogEntry

from foldhouse.errors import CommitConflict
from foldhouse.storage.expire import Expiry, expire
from foldhouse.storage.history import (
    PROPERTY,
    Chapter,
    Chapters,
    chapters,
    last_as_head,
    log_in,
    snapshots_in,
    to_json,
    write_chapter,
)

MOST_LISTED = 48
"""With more listed snapshots than this, the oldest move."""
STAY_LISTED = 16
"""So many of the newest stay, beside all that tags and branches name."""


def archive_pays(iceberg: IcebergTable) -> bool:
    """Whether so many snapshots are listed that some are to move."""
    return len(iceberg.metadata.snapshots) > MOST_LISTED


def archive(catalog: Catalog, iceberg: IcebergTable) -> None:
    """Move the oldest listed snapshots to a chapter, in one commit that changes neither rows nor history.

    Neighbouring chapters become one where the newer has grown to the size of the older: there are few, and a snapshot
    is written again a few times in all.

    Raises:
        CommitConflict: somebody else committed, or set a tag or branch, meanwhile; nothing was moved.
    """
    moving = _oldest(iceberg)
    if not moving:
        return
    ids = {one.snapshot_id for one in moving}
    log = [entry for entry in iceberg.metadata.snapshot_log if entry.snapshot_id in ids]
    before = chapters(iceberg.metadata)
    kept, merged = _neighbours(before.held, len(moving))
    snapshots, whole_log = _together(iceberg, merged, moving, log)
    written = write_chapter(iceberg, snapshots, whole_log)
    after = Chapters((*kept, written), tuple(one.file for one in merged))
    try:
        expire(
            catalog, iceberg, Expiry(removed=frozenset(ids), properties={PROPERTY: to_json(after)}, parents_stay=True)
        )
    except CommitConflict:
        drop_unused(iceberg, after)
        raise
    for path in before.replaced:
        _delete(iceberg, path)


def chapters_without(iceberg: IcebergTable, removed: Set[int]) -> Chapters | None:
    """What the chapters are once some snapshots are removed; `None` where they hold none of these.

    Those that lose some of their snapshots are written again, and named by nothing yet.
    """
    before = chapters(iceberg.metadata)
    held, changed = [], []
    for chapter in before.held:
        snapshots = snapshots_in(iceberg, chapter)
        left = [one for one in snapshots if one.snapshot_id not in removed]
        if len(left) == len(snapshots):
            held.append(chapter)
            continue
        changed.append(chapter.file)
        if left:
            ids = {one.snapshot_id for one in left}
            held.append(write_chapter(iceberg, left, [e for e in log_in(iceberg, chapter) if e.snapshot_id in ids]))
    return Chapters(tuple(held), tuple(changed)) if changed else None


def chapters_found(iceberg: IcebergTable) -> Chapters | None:
    """The chapters whose files are there; `None` where all are."""
    before = chapters(iceberg.metadata)
    held = tuple(one for one in before.held if iceberg.io.new_input(one.file).exists())
    return None if held == before.held else Chapters(held, before.replaced)


def drop_unused(iceberg: IcebergTable, written: Chapters | None) -> None:
    """Delete the chapters that were written for a commit that was refused, so that nothing will ever name them."""
    known = chapters(iceberg.metadata).held
    for chapter in written.held if written is not None else ():
        if chapter not in known:
            _delete(iceberg, chapter.file)


def _delete(iceberg: IcebergTable, path: str) -> None:
    with contextlib.suppress(OSError):  # gone, or only an orphan
        iceberg.io.delete(path)


def _oldest(iceberg: IcebergTable) -> list[Snapshot]:
    metadata = iceberg.metadata
    ends = last_as_head(metadata.snapshots, metadata.snapshot_log)
    named = {ref.snapshot_id for ref in metadata.refs.values()}
    newest = sorted(ends, key=lambda one: -ends[one])[:STAY_LISTED]
    return [one for one in metadata.snapshots if one.snapshot_id not in named.union(newest)]


def _neighbours(held: Sequence[Chapter], size: int) -> tuple[Sequence[Chapter], Sequence[Chapter]]:
    """The chapters that stay, and the newest ones that become one with what is added."""
    stay = len(held)
    while stay and held[stay - 1].snapshots <= size:
        stay -= 1
        size += held[stay].snapshots
    return held[:stay], held[stay:]


def _together(
    iceberg: IcebergTable, merged: Sequence[Chapter], moving: Sequence[Snapshot], log: Sequence[SnapshotLogEntry]
) -> tuple[list[Snapshot], list[SnapshotLogEntry]]:
    snapshots = [one for chapter in merged for one in snapshots_in(iceberg, chapter)]
    entries = [entry for chapter in merged for entry in log_in(iceberg, chapter)]
    return [*snapshots, *moving], [*entries, *log]
