"""What expired commits said that is still asked for: a stream's coverage and batches, and since when history is whole.

An expired commit's summary is gone. What it said is kept in a property of the table, under the snapshot that stands
on it, so that it counts where that snapshot is in the history and nowhere else: a rollback below it forgets it too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from itertools import takewhile

from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Snapshot

from foldhouse.refresh.head import COVERAGE
from foldhouse.storage.history import lineage, older_ones_say, snapshot_of, snapshots_of

BATCH = "foldhouse.batch-id"
PROPERTY = "foldhouse.expired"
BATCH_MEMORY = timedelta(days=7)
MOST_BATCHES = 10_000


@dataclass(frozen=True)
class Below:
    """What the expired history below one snapshot said.

    Args:
        coverage: the text of its newest coverage, if any commit said one.
        batches: the ids of its batches, with the time of their commits in ms since 1970.
    """

    coverage: str | None = None
    batches: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Remembered:
    """The property as a value.

    Args:
        whole_from_ms: from this moment on, every state of the table can be asked for by time.
        below: snapshot id -> what the history below it said.
    """

    whole_from_ms: int = 0
    below: Mapping[int, Below] = field(default_factory=dict)


def remembered(iceberg: IcebergTable) -> Remembered:
    """What the table remembers of expired commits."""
    text = iceberg.properties.get(PROPERTY)
    if text is None:
        return Remembered()
    said = json.loads(text)
    return Remembered(said["whole_from_ms"], {int(name): Below(**one) for name, one in said["below"].items()})


def to_json(memory: Remembered) -> str:
    """The text of the property."""
    return json.dumps(
        {"whole_from_ms": memory.whole_from_ms, "below": {str(name): asdict(one) for name, one in memory.below.items()}}
    )


def newest_coverage(iceberg: IcebergTable, snapshot: Snapshot | None) -> str | None:
    """The text of the newest coverage that a snapshot or a commit behind it said, expired ones among them."""
    below = remembered(iceberg).below
    for one in lineage(iceberg, snapshot):
        said = _said(one, COVERAGE)
        if said is None and one.snapshot_id in below:
            said = below[one.snapshot_id].coverage
        if said is not None:
            return said
    return None


def holds_batch(iceberg: IcebergTable, batch_id: str) -> bool:
    """Whether a batch is in the head's history, as far as that is kept or remembered."""
    below = remembered(iceberg).below
    is_old = older_ones_say(iceberg, BATCH, batch_id) or any(batch_id in one.batches for one in below.values())
    found = lineage(iceberg, iceberg.current_snapshot())
    listed = {one.snapshot_id for one in iceberg.snapshots()}
    return any(
        _said(one, BATCH) == batch_id or batch_id in below.get(one.snapshot_id, Below()).batches
        for one in (found if is_old else takewhile(lambda one: one.snapshot_id in listed, found))
    )


def without(iceberg: IcebergTable, removed: Set[int], whole_from_ms: int, now_ms: int) -> Remembered:
    """What is to be remembered once some snapshots are removed.

    Args:
        iceberg: the table as it is, with them.
        removed: their ids.
        whole_from_ms: the moment from which on no state is removed.
        now_ms: the time; batches are remembered for a week from their commit.
    """
    held = remembered(iceberg)
    kept = {one.snapshot_id: one for one in snapshots_of(iceberg) if one.snapshot_id not in removed}
    below = {name: one for name, one in held.below.items() if name in kept}
    for snapshot in kept.values():
        if snapshot.parent_snapshot_id in removed:
            below[snapshot.snapshot_id] = _below(iceberg, held, snapshot, now_ms)
    return Remembered(max(held.whole_from_ms, whole_from_ms), below)


def _below(iceberg: IcebergTable, held: Remembered, snapshot: Snapshot, now_ms: int) -> Below:
    """What all commits behind a snapshot said: removing its parent cuts it off from those that are kept as well."""
    parent = snapshot_of(iceberg, snapshot.parent_snapshot_id)
    batches: dict[str, int] = {}
    for one in lineage(iceberg, parent):
        batches |= dict(held.below.get(one.snapshot_id, Below()).batches)
        if (batch_id := _said(one, BATCH)) is not None:
            batches[batch_id] = one.timestamp_ms
    oldest_ms = now_ms - BATCH_MEMORY // timedelta(milliseconds=1)
    newest = sorted(batches.items(), key=lambda one: -one[1])[:MOST_BATCHES]
    return Below(newest_coverage(iceberg, parent), {name: at for name, at in newest if at >= oldest_ms})


def _said(snapshot: Snapshot, name: str) -> str | None:
    return snapshot.summary.additional_properties.get(name) if snapshot.summary is not None else None
