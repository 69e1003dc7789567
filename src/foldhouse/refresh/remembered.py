"""What expired commits said that is still asked for: a stream's coverage, and since when history is whole.

An expired commit's summary is gone. What it said is kept in a property of the table, under the snapshot that stands
on it, so that it counts where that snapshot is in the history and nowhere else: a rollback below it forgets it too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from dataclasses import asdict, dataclass, field

from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Snapshot

from foldhouse.refresh.head import COVERAGE
from foldhouse.storage.history import lineage, snapshot_of, snapshots_of
from foldhouse.values import stored

PROPERTY = "foldhouse.expired"


@dataclass(frozen=True)
class Below:
    """What the expired history below one snapshot said.

    Args:
        coverage: the text of its newest coverage, if any commit said one.
    """

    coverage: str | None = None


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
    with stored.said(PROPERTY, text):
        held = json.loads(text)
        if not stored.is_id(held["whole_from_ms"]) or held["whole_from_ms"] is None:
            raise ValueError("whole_from_ms is no moment")
        below = {int(name): Below(**one) for name, one in held["below"].items()}
        if not all(isinstance(one.coverage, str | None) for one in below.values()):
            raise ValueError("what is below has other types")
        return Remembered(held["whole_from_ms"], below)


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


def without(iceberg: IcebergTable, removed: Set[int], whole_from_ms: int) -> Remembered:
    """What is to be remembered once some snapshots are removed.

    Args:
        iceberg: the table as it is, with them.
        removed: their ids.
        whole_from_ms: the moment from which on no state is removed.
    """
    held = remembered(iceberg)
    kept = {one.snapshot_id: one for one in snapshots_of(iceberg) if one.snapshot_id not in removed}
    below = {name: one for name, one in held.below.items() if name in kept}
    for snapshot in kept.values():
        if snapshot.parent_snapshot_id in removed:
            parent = snapshot_of(iceberg, snapshot.parent_snapshot_id)
            below[snapshot.snapshot_id] = Below(newest_coverage(iceberg, parent))
    return Remembered(max(held.whole_from_ms, whole_from_ms), below)


def _said(snapshot: Snapshot, name: str) -> str | None:
    return snapshot.summary.additional_properties.get(name) if snapshot.summary is not None else None
