"""What expired commits said that is still asked for: a stream's coverage.

An expired commit's summary is gone. What it said is kept in a property of the table, under the nearest kept snapshot
that stands on it, so that it counts where that snapshot is in the history and nowhere else: a rollback below it forgets
it too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from dataclasses import asdict, dataclass, field

from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Snapshot

from foldhouse.storage.history import ancestor, lineage, thinned
from foldhouse.values import stored
from foldhouse.values.metadata_names import COVERAGE, EXPIRED


@dataclass(frozen=True)
class Below:
    """What the commits said that were expired between a snapshot and its nearest kept ancestor.

    Args:
        coverage: the text of the newest coverage among them, where the snapshot itself says none.
    """

    coverage: str | None = None


@dataclass(frozen=True)
class Remembered:
    """The property as a value.

    Args:
        below: snapshot id -> what those expired just behind it said.
    """

    below: Mapping[int, Below] = field(default_factory=dict)


def remembered(iceberg: IcebergTable) -> Remembered:
    """What the table remembers of expired commits."""
    text = iceberg.properties.get(EXPIRED)
    if text is None:
        return Remembered()
    with stored.said(EXPIRED, text):
        held = json.loads(text)
        below = {int(name): Below(**one) for name, one in held["below"].items()}
        if not all(isinstance(one.coverage, str | None) for one in below.values()):
            raise ValueError("what is below has other types")
        return Remembered(below)


def to_json(memory: Remembered) -> str:
    """The text of the property."""
    return json.dumps({"below": {str(name): asdict(one) for name, one in memory.below.items()}})


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


def without(iceberg: IcebergTable, removed: Set[int]) -> Remembered:
    """What is to be remembered once some snapshots are removed.

    Args:
        iceberg: the table as it is, with them.
        removed: their ids.
    """
    held = remembered(iceberg).below
    listed = {one.snapshot_id: one for one in iceberg.snapshots()}
    before = thinned(iceberg.metadata).below
    found: dict[int, Below] = {}
    for snapshot in listed.values():
        if snapshot.snapshot_id in removed or _said(snapshot, COVERAGE) is not None:
            continue
        texts = [held.get(snapshot.snapshot_id, Below()).coverage]
        behind = ancestor(snapshot, listed, before)
        while behind is not None and behind in removed:
            texts += [_said(listed[behind], COVERAGE), held.get(behind, Below()).coverage]
            behind = ancestor(listed[behind], listed, before)
        newest = next((text for text in texts if text is not None), None)
        if newest is not None:
            found[snapshot.snapshot_id] = Below(newest)
    return Remembered(found)


def _said(snapshot: Snapshot, name: str) -> str | None:
    return snapshot.summary.additional_properties.get(name) if snapshot.summary is not None else None
