"""The history of a table: its snapshots, their lineage, and which of them was the head at what time.

`expire` may remove snapshots between others. The parent of a kept snapshot is then gone, and Iceberg's own log of heads
begins after the newest removed one, as its specification demands. The table property `foldhouse.thinned` keeps what is
known of the time before: the nearest kept ancestor of a snapshot, and the older part of the log with its gaps. It does
not list snapshots that another tool removed: there the lineage ends, and time travel into the gap is refused.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from itertools import dropwhile

from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot, SnapshotLogEntry

from foldhouse.errors import UnknownSnapshot
from foldhouse.values import stored
from foldhouse.values.metadata_names import THINNED

_FOREVER_MS = 2**63


@dataclass(frozen=True)
class HeadSince:
    """The head from a moment on, until the next entry of the log.

    Args:
        since_ms: in ms since 1970.
        snapshot_id: `None` if the head of that time was removed or is not known for certain.
    """

    since_ms: int
    snapshot_id: int | None


@dataclass(frozen=True)
class Thinned:
    """The value of the table property `foldhouse.thinned`.

    Args:
        below: id of a snapshot whose parent was removed -> its nearest kept ancestor.
        heads: the part of the log that Iceberg's own log no longer has, oldest first.
    """

    below: Mapping[int, int] = field(default_factory=dict)
    heads: tuple[HeadSince, ...] = ()


def thinned(metadata: TableMetadata) -> Thinned:
    """Return what is stored about the snapshots of a table that foldhouse expired."""
    text = metadata.properties.get(THINNED)
    return Thinned() if text is None else _parsed(text)


@lru_cache(maxsize=64)
def _parsed(text: str) -> Thinned:
    with stored.said(THINNED, text):
        held = json.loads(text)
        known = tuple(HeadSince(since_ms, snapshot_id) for since_ms, snapshot_id in held["heads"])
        below = {int(name): at for name, at in held["below"].items()}
        ids = [*below.values(), *(one.snapshot_id for one in known)]
        moments = [one.since_ms for one in known]
        if not all(map(stored.is_id, [*ids, *moments])) or None in moments or None in below.values():
            raise ValueError("it contains something other than ids and moments")
        if moments != sorted(moments):
            raise ValueError("its moments are out of order")
        return Thinned(below, known)


def to_json(found: Thinned) -> str:
    """Return the text to store in the property."""
    heads = [[one.since_ms, one.snapshot_id] for one in found.heads]
    return json.dumps(
        {"below": {str(name): at for name, at in found.below.items()}, "heads": heads}, separators=(",", ":")
    )


def snapshot_of(iceberg: IcebergTable, snapshot_id: int | None) -> Snapshot | None:
    """Return a snapshot of the table; `None` if it does not exist, for example because it was expired."""
    # The newest snapshots are at the end, and are requested most.
    if snapshot_id is None:
        return None
    return next((one for one in reversed(iceberg.metadata.snapshots) if one.snapshot_id == snapshot_id), None)


def head_of(iceberg: IcebergTable) -> Snapshot | None:
    """Return the current snapshot of the table; pyiceberg's own method begins at the oldest one."""
    return snapshot_of(iceberg, iceberg.metadata.current_snapshot_id)


def lineage(iceberg: IcebergTable, snapshot: Snapshot | None) -> Iterator[Snapshot]:
    """Yield the lineage of a snapshot, newest first; a removed parent is replaced by the nearest kept ancestor."""
    if snapshot is None:
        return
    yield snapshot  # before the rest is looked up, because most callers need the first few
    listed = {one.snapshot_id: one for one in iceberg.metadata.snapshots}
    below = thinned(iceberg.metadata).below
    behind = ancestor(snapshot, listed, below)
    while behind is not None:
        snapshot = listed[behind]
        yield snapshot
        behind = ancestor(snapshot, listed, below)


def ancestor(snapshot: Snapshot, listed: Mapping[int, Snapshot], below: Mapping[int, int]) -> int | None:
    """Return the id of a snapshot's parent, or of its nearest kept ancestor; `None` if neither is known."""
    candidates = (snapshot.parent_snapshot_id, below.get(snapshot.snapshot_id))
    return next((one for one in candidates if one is not None and one in listed), None)


def heads(metadata: TableMetadata) -> list[HeadSince]:
    """Return the log of heads, oldest first, including times whose head is no longer known."""
    listed = {one.snapshot_id: one for one in metadata.snapshots}
    found: list[HeadSince] = []
    for one in thinned(metadata).heads:
        _add(found, one if one.snapshot_id in listed else HeadSince(one.since_ms, None))
    begins_ms = found[-1].since_ms if found else -1
    log = dropwhile(lambda entry: entry.timestamp_ms <= begins_ms, metadata.snapshot_log)
    since_ms = 0
    for entry in log:
        # Clocks of machines differ: a commit of another tool may be stamped before the one that it follows.
        since_ms = max(since_ms, entry.timestamp_ms)
        snapshot = listed.get(entry.snapshot_id)
        last = found[-1] if found else None
        if snapshot is not None and last is None and _stood_on_others(snapshot):
            _add(found, HeadSince(0, None))
        elif snapshot is not None and last is not None and _hides_others(last, entry, snapshot):
            _add(found, HeadSince(last.since_ms + 1, None))
        _add(found, HeadSince(since_ms, None if snapshot is None else entry.snapshot_id))
    return found


def _add(found: list[HeadSince], one: HeadSince) -> None:
    if one.snapshot_id is not None or not found or found[-1].snapshot_id is not None:
        found.append(one)


def _stood_on_others(snapshot: Snapshot) -> bool:
    return snapshot.parent_snapshot_id is not None or (snapshot.sequence_number or 0) > 1


def _hides_others(last: HeadSince, entry: SnapshotLogEntry, snapshot: Snapshot) -> bool:
    """Whether a snapshot that another tool removed was the head between two neighbouring log entries."""
    if last.snapshot_id is None:
        return False
    is_commit = snapshot.timestamp_ms == entry.timestamp_ms  # else the branch was moved, from any snapshot
    return last.snapshot_id == entry.snapshot_id or (is_commit and snapshot.parent_snapshot_id != last.snapshot_id)


def head_at(iceberg: IcebergTable, moment_ms: float) -> int | None:
    """Return the snapshot that was the head at a moment; `None` before the first one.

    Raises:
        UnknownSnapshot: that snapshot was removed, or is not known for certain.
    """
    found = heads(iceberg.metadata)
    place = bisect_right([one.since_ms for one in found], moment_ms) - 1
    if place < 0:
        return None
    if found[place].snapshot_id is None:
        near = [found[one] for one in (place - 1, place + 1) if 0 <= one < len(found)]
        names = [f"{one.snapshot_id} since {_time(one.since_ms)}" for one in near if one.snapshot_id is not None]
        name = ".".join(iceberg.name())
        raise UnknownSnapshot(
            f"the snapshot of {name} at {_time(moment_ms)} was expired, or is no longer known for certain; the nearest "
            f"kept snapshots are {' and '.join(names)}. `foldhouse history {name}` lists all snapshots"
        )
    return found[place].snapshot_id


def _time(moment_ms: float) -> str:
    return datetime.fromtimestamp(moment_ms / 1000, UTC).isoformat(timespec="milliseconds")


def last_as_head(snapshots: Iterable[Snapshot], log: Sequence[HeadSince]) -> dict[int, int]:
    """Return snapshot id -> when it was last the head, in ms; if it never was the head, its commit time."""
    ends = {snapshot.snapshot_id: snapshot.timestamp_ms for snapshot in snapshots}
    end = _FOREVER_MS
    for one in reversed(log):
        if one.snapshot_id is None:
            continue  # unknown head: assume that the one before it stayed as long as possible
        if one.snapshot_id in ends:
            ends[one.snapshot_id] = max(ends[one.snapshot_id], end)
        end = one.since_ms
    return ends


def without(metadata: TableMetadata, removed: Set[int]) -> Thinned:
    """Return the value of `foldhouse.thinned` after some snapshots are removed."""
    listed = {one.snapshot_id: one for one in metadata.snapshots}
    before = thinned(metadata).below
    below: dict[int, int] = {}
    for snapshot in metadata.snapshots:
        if snapshot.snapshot_id in removed:
            continue
        behind = ancestor(snapshot, listed, before)
        while behind is not None and behind in removed:
            behind = ancestor(listed[behind], listed, before)
        if behind is not None and behind != snapshot.parent_snapshot_id:
            below[snapshot.snapshot_id] = behind
    stay = log_after(metadata, removed)
    known: list[HeadSince] = []
    for one in heads(metadata):
        if not stay or one.since_ms < stay[0].timestamp_ms:
            _add(known, HeadSince(one.since_ms, None) if one.snapshot_id in removed else one)
    return Thinned(below, tuple(known))


def log_after(metadata: TableMetadata, removed: Set[int]) -> list[SnapshotLogEntry]:
    """Return Iceberg's own log after some snapshots are removed: only entries after the newest removed one."""
    places = [place for place, entry in enumerate(metadata.snapshot_log) if entry.snapshot_id in removed]
    return metadata.snapshot_log[places[-1] + 1 :] if places else list(metadata.snapshot_log)
