"""Removes the history before a forget from one table: snapshots, tags, branches and, at once, their files.

Guarantee: only files that no kept snapshot references are deleted, and none outside the table's location. A crash
leaves files that nothing references; running it again deletes them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath
from urllib.parse import unquote

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.refs import MAIN_BRANCH

from foldhouse.errors import CommitConflict
from foldhouse.forget.record import Record, clean_snapshots, first_clean
from foldhouse.forget.subject import Subject
from foldhouse.heads.remembered import to_json, without
from foldhouse.storage.catalog import all_tables
from foldhouse.storage.places import is_on_disk
from foldhouse.storage.races import until_won
from foldhouse.storage.removal import delete, on_disk
from foldhouse.storage.remove_snapshots import Expiry, delete_unnamed, expire
from foldhouse.upkeep.expire import consumer_positions
from foldhouse.upkeep.orphans import find_orphans
from foldhouse.values.metadata_names import EXPIRED, POSITION_TAG


@dataclass(frozen=True)
class Purged:
    """What was removed from one table.

    Args:
        snapshots: the removed snapshots.
        refs: the dropped tags and branches.
        files: the deleted files.
        left: files of removed snapshots that are outside of the table's location, or could not be deleted.
    """

    snapshots: tuple[int, ...] = ()
    refs: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


def purge(
    catalog: Catalog, load: Callable[[], IcebergTable], subject: Subject, record: Record, orphans_before: datetime
) -> Purged:
    """Remove everything of a restated table that is older than the forget.

    Args:
        catalog: where the table is registered.
        load: loads the table; its consumers must have been purged before.
        subject: whose rows are forgotten; folders named after it are removed too.
        record: of the forget.
        orphans_before: unreferenced files that were written before are deleted.

    Raises:
        CommitConflict: another writer moved the table back, or a new consumer was folded from the old history.
    """
    removed: list[Expiry] = []
    tables: dict[str, IcebergTable] = {}

    def attempt() -> IcebergTable:
        iceberg = load()
        tables.clear()
        tables.update(all_tables(catalog))
        expiry = _expiry(tables, iceberg, record)
        if expiry != Expiry():
            expire(catalog, iceberg, expiry)
        removed.append(expiry)
        return iceberg

    before = until_won(attempt)
    after = load()
    deleted = delete_unnamed(before, after)
    # Metadata files last: they say which files are left after a crash. The current one is not in the log.
    old = dict.fromkeys([before.metadata_location, *(one.metadata_file for one in after.metadata.metadata_log)])
    gone = [path for path in old if path != after.metadata_location and delete(after, path)]
    orphans = find_orphans(catalog, load, orphans_before, delete=True, tables=tables)
    files = (*deleted.paths, *gone, *(one.path for one in orphans.files))
    left = [path for path in old if path != after.metadata_location and after.io.new_input(path).exists()]
    still = [path for path in files if path not in gone and after.io.new_input(path).exists()]
    _remove_named_folders(after, files, subject)
    return Purged(
        snapshots=tuple(sorted(removed[-1].removed)),
        refs=tuple(sorted(removed[-1].dropped)),
        files=tuple(sorted(path for path in files if path not in still)),
        left=(*deleted.left, *left, *still),
    )


def _expiry(tables: Mapping[str, IcebergTable], iceberg: IcebergTable, record: Record) -> Expiry:
    name = ".".join(iceberg.name())
    if first_clean(iceberg, record) is None:
        raise CommitConflict(
            f"{name} was moved back to before the forget {record.id} by another writer; run the forget again"
        )
    kept = {one.snapshot_id for one in clean_snapshots(iceberg, record)}
    held = consumer_positions(tables, iceberg)
    late = sorted(tag.removeprefix(POSITION_TAG) for tag, at in held.items() if at not in kept)
    if late:
        raise CommitConflict(
            f"{', '.join(late)} was folded from the history of {name} before the forget by another process meanwhile; "
            "run the forget again"
        )
    refs = {ref: one.snapshot_id for ref, one in iceberg.metadata.refs.items() if ref != MAIN_BRANCH}
    removed = frozenset(one.snapshot_id for one in iceberg.snapshots()) - kept
    return Expiry(
        removed=removed,
        tags={tag: at for tag, at in held.items() if refs.get(tag) != at},
        dropped=frozenset(ref for ref, at in refs.items() if at not in kept and ref not in held),
        properties={EXPIRED: to_json(without(iceberg, removed))} if removed else {},
    )


def _remove_named_folders(iceberg: IcebergTable, files: Sequence[str], subject: Subject) -> None:
    """Remove the empty folders of deleted files whose names have a value of the key, as of a partition by the key."""
    if not is_on_disk(iceberg.location()):
        return
    root = PurePosixPath(on_disk(iceberg.location()))
    for path in files:
        for folder in PurePosixPath(on_disk(path)).parents:
            if folder == root or root not in folder.parents or not subject.is_named_in(unquote(str(folder))):
                break
            with contextlib.suppress(OSError):  # not empty, or gone
                os.rmdir(folder)
