"""The part of expired summaries that later commits still need: a stream's coverage, and what set a table right.

The summary of an expired commit is gone. Its coverage is kept in a table property, under the nearest kept snapshot that
descends from it. It therefore applies only if that snapshot is in the lineage: a rollback to before that snapshot also
discards the coverage.

Of a table, the gaps are kept in which no commit expired that set rows right, such as a rebuild. A gap that is not
listed may hide one: an earlier release, or another tool, removed the commits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from dataclasses import asdict, dataclass, field

from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Snapshot

from foldhouse.storage.history import ancestor, lineage, thinned
from foldhouse.values import stored
from foldhouse.values.metadata_names import COMMIT, COVERAGE, EXPIRED, FORGOTTEN, POSITION, REBUILT_IN_SPEC, RESTATED

SET_RIGHT = (REBUILT_IN_SPEC, RESTATED, FORGOTTEN)
"""The rows before a commit with one of these may have been wrong, or may not come back."""


@dataclass(frozen=True)
class Below:
    """The facts kept about commits that expired between a snapshot and its nearest kept ancestor.

    Args:
        coverage: the text of the newest coverage among them, if the snapshot's own summary has none.
    """

    coverage: str | None = None


@dataclass(frozen=True)
class Remembered:
    """The value of the table property.

    Args:
        below: snapshot id -> what is kept of the commits that were expired just before it.
        harmless: id of a snapshot of a table -> its nearest kept ancestor, if no commit that expired in between set
            rows right.
    """

    below: Mapping[int, Below] = field(default_factory=dict)
    harmless: Mapping[int, int] = field(default_factory=dict)


def remembered(iceberg: IcebergTable) -> Remembered:
    """Read what a table keeps of expired summaries."""
    text = iceberg.properties.get(EXPIRED)
    if text is None:
        return Remembered()
    with stored.said(EXPIRED, text):
        held = json.loads(text)
        below = {int(name): Below(**one) for name, one in held["below"].items()}
        if not all(isinstance(one.coverage, str | None) for one in below.values()):
            raise ValueError("a coverage in it is not a text")
        harmless = {int(name): at for name, at in held.get("harmless", {}).items()}
        if None in harmless.values() or not all(map(stored.is_id, harmless.values())):
            raise ValueError("a harmless gap in it ends at something other than an id")
        return Remembered(below, harmless)


def to_json(memory: Remembered) -> str:
    """Return the text to store in the property."""
    below = {str(name): asdict(one) for name, one in memory.below.items()}
    harmless = {str(name): at for name, at in memory.harmless.items()}
    return json.dumps({"below": below} | ({"harmless": harmless} if harmless else {}))


def harmless_gaps(iceberg: IcebergTable) -> Mapping[int, int]:
    """Return snapshot id -> its nearest kept ancestor, if no commit expired in between that set rows right."""
    return remembered(iceberg).harmless


def newest_coverage(iceberg: IcebergTable, snapshot: Snapshot | None) -> str | None:
    """Return the text of the newest coverage in the lineage of a snapshot, including expired commits."""
    below = remembered(iceberg).below
    for one in lineage(iceberg, snapshot):
        said = _said(one, COVERAGE)
        if said is None and one.snapshot_id in below:
            said = below[one.snapshot_id].coverage
        if said is not None:
            return said
    return None


def without(iceberg: IcebergTable, removed: Set[int]) -> Remembered:
    """Return the value of the property after some snapshots are removed.

    Args:
        iceberg: the table as it is, with these snapshots.
        removed: the ids of the snapshots.
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
    return Remembered(found, _harmless(iceberg, removed))


def _harmless(iceberg: IcebergTable, removed: Set[int]) -> dict[int, int]:
    """Return the harmless gaps of a table after some snapshots are removed."""
    held, before = harmless_gaps(iceberg), thinned(iceberg.metadata).below
    listed = {one.snapshot_id: one for one in iceberg.snapshots()}
    found: dict[int, int] = {}
    for snapshot in listed.values():
        if snapshot.snapshot_id in removed or _said(snapshot, POSITION) is None:
            continue
        one, behind, is_harmless = snapshot, ancestor(snapshot, listed, before), True
        while behind is not None:
            is_harmless &= behind in (one.parent_snapshot_id, held.get(one.snapshot_id))
            if behind not in removed:
                break
            one = listed[behind]
            is_harmless &= not _sets_right(one)
            behind = ancestor(one, listed, before)
        if is_harmless and behind is not None and behind != snapshot.parent_snapshot_id:
            found[snapshot.snapshot_id] = behind
    return found


def _sets_right(snapshot: Snapshot) -> bool:
    """Whether the rows before a commit may have been wrong: it says so, or another tool made it."""
    said = snapshot.summary.additional_properties.keys() if snapshot.summary is not None else ()
    return COMMIT not in said or any(name in said for name in SET_RIGHT)


def _said(snapshot: Snapshot, name: str) -> str | None:
    return snapshot.summary.additional_properties.get(name) if snapshot.summary is not None else None
