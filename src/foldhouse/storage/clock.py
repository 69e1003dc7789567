"""The timestamps of a table: no commit is stamped earlier than the one before it, even if a clock is wrong.

Readers of Iceberg refuse a table whose log of heads goes back in time by more than a minute. A commit is therefore
stamped with the clock of its machine, or with 1 ms after the table's last stamp if that is later. A table that is ahead
of the clock can still be used as usual, and moves ahead by only 1 ms per commit. One machine cannot know whether its
clock or the stamp is wrong; a person who knows can call `mend`.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from pydantic import Field
from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot, SnapshotLogEntry
from pyiceberg.table.update import SetPropertiesUpdate, SetSnapshotRefUpdate, _apply_table_update

from foldhouse.errors import Unsupported
from foldhouse.storage import history
from foldhouse.storage.swap import branch_is, swap, unmoved
from foldhouse.values.metadata_names import THINNED

_LOG = logging.getLogger(__name__)
AHEAD_MS = 60_000
"""A table counts as ahead of the clock beyond this; smaller differences are normal between machines."""


def clock_ms() -> int:
    """Return the time of this machine's clock, in ms since 1970."""
    return int(time.time() * 1000)


def stamp_ms(metadata: TableMetadata, head: Snapshot | None = None) -> int:
    """Return the stamp of the next change of a table: now, or 1 ms after the last stamp if that is later."""
    return max(clock_ms(), metadata.last_updated_ms + 1, head.timestamp_ms + 1 if head else 0)


def ahead_ms(metadata: TableMetadata) -> int:
    """Return how far the last stamp of a table is ahead of the clock; 0 for a difference of up to `AHEAD_MS`."""
    stamps = [metadata.last_updated_ms, *(entry.timestamp_ms for entry in metadata.metadata_log[-1:])]
    ahead = max(stamps) - clock_ms()
    return ahead if ahead > AHEAD_MS else 0


def warn_if_ahead(iceberg: IcebergTable) -> None:
    """Log a warning if a table is ahead of this machine's clock, with what to do."""
    ahead = ahead_ms(iceberg.metadata)
    if ahead:
        name = ".".join(iceberg.name())
        _LOG.warning(
            "%s was last stamped %.0f s ahead of the clock of this machine, so this commit is stamped just after that. "
            "Correct the clock, or if it is right, run `foldhouse mend-clock %s`",
            name,
            ahead / 1000,
            name,
        )


class Stamped(SetPropertiesUpdate):
    """Sets no property, only the last stamp of the table, and never to an earlier time as pyiceberg could."""


@_apply_table_update.register(Stamped)
def _(update: Stamped, base_metadata: TableMetadata, context: Any) -> TableMetadata:
    context.add_update(update)
    return base_metadata.model_copy(update={"last_updated_ms": stamp_ms(base_metadata)})


class MovesMain(SetSnapshotRefUpdate):
    """Points `main` to an existing snapshot, stamped no earlier than the last stamp."""


@_apply_table_update.register(MovesMain)
def _(update: MovesMain, base_metadata: TableMetadata, context: Any) -> TableMetadata:
    stamp = stamp_ms(base_metadata)
    plain = SetSnapshotRefUpdate.model_validate(update.model_dump(by_alias=True))
    moved = _apply_table_update(plain, base_metadata, context)
    if moved is base_metadata:  # pyiceberg returns the same object if `main` is already there
        return moved
    log = [*moved.snapshot_log[:-1], SnapshotLogEntry(snapshot_id=update.snapshot_id, timestamp_ms=stamp)]
    return moved.model_copy(update={"snapshot_log": log, "last_updated_ms": stamp})


def main_moves_to(iceberg: IcebergTable, snapshot_id: int) -> MovesMain:
    """Return the update that makes an existing snapshot the head."""
    return MovesMain.model_validate(branch_is(iceberg, snapshot_id).model_dump(by_alias=True))


class _Mended(SetPropertiesUpdate):
    """Sets properties, and moves every stamp that is ahead of the clock back to it, keeping their order."""

    now_ms: int = Field(exclude=True)


@_apply_table_update.register(_Mended)
def _(update: _Mended, base_metadata: TableMetadata, context: Any) -> TableMetadata:
    now, log = update.now_ms, base_metadata.snapshot_log
    kept = [entry for entry in log if entry.timestamp_ms <= now]
    late = [entry for entry in log if entry.timestamp_ms > now]
    # + 2, because `mend` adds an unknown head 1 ms after the last entry that stays.
    first = max([now - len(late) + 1, *(entry.timestamp_ms + 2 for entry in kept[-1:])])
    stamps = {(entry.snapshot_id, entry.timestamp_ms): first + place for place, entry in enumerate(late)}
    last = max(now, first + len(late) - 1)

    def taken_back(one: Any) -> Any:
        if one.timestamp_ms <= now:
            return one
        stamp = stamps.get((getattr(one, "snapshot_id", 0), one.timestamp_ms), last)
        return one.model_copy(update={"timestamp_ms": stamp})

    context.add_update(update)
    return base_metadata.model_copy(
        update={
            "last_updated_ms": last,
            "snapshots": [taken_back(one) for one in base_metadata.snapshots],
            "snapshot_log": [taken_back(entry) for entry in log],
            "metadata_log": [taken_back(entry) for entry in base_metadata.metadata_log],
            "properties": {**base_metadata.properties, **update.updates},
        }
    )


def mend(catalog: Catalog, iceberg: IcebergTable) -> int:
    """Move stamps that are ahead of this machine's clock back to it, in one commit without a snapshot.

    The true times of those commits are unknown. Time travel to a moment between the last correct stamp and now is
    refused from then on. No snapshot and no row changes.

    Returns:
        How far the table was ahead, in ms. If it was not ahead, 0, and nothing was committed.

    Raises:
        Unsupported: the catalog is on a server, so the stamps of its tables cannot be changed.
        CommitConflict: another writer committed first; nothing was changed.
    """
    now, metadata = clock_ms(), iceberg.metadata
    ahead = ahead_ms(metadata)
    if not ahead:
        return 0
    name = ".".join(iceberg.name())
    if not isinstance(catalog, MetastoreCatalog):
        raise Unsupported(
            f"{name} is {ahead / 1000:.0f} s ahead of the clock, and its catalog is kept by a server, which does not "
            "allow the time of a commit to change; go on committing, each commit is stamped just after the last one"
        )
    known = history.until(metadata, now)
    updates = _Mended(updates={THINNED: history.to_json(known)}, now_ms=now)
    swap(
        catalog,
        iceberg,
        unmoved(iceberg),
        (updates,),
        lambda found: found.properties.get(THINNED) == history.to_json(known),
        "the mending of its times",
    )
    # pyiceberg's own catalogs log the replaced file with its old time, which a second commit corrects.
    mend(catalog, catalog.load_table(iceberg.name()))
    return ahead
