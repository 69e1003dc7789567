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
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import takewhile

from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot, SnapshotLogEntry

from foldhouse.errors import UnknownSnapshot
from foldhouse.values import stored
from foldhouse.values.metadata_names import THINNED
from foldhouse.values.moment_text import utc_text_of

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
        heads: the older part of the log of heads, oldest first.
        covered: the entries of Iceberg's own log that `heads` contains too, each as its snapshot id and its stamp.
            `None` if an earlier release wrote it: the stamps say it.
        removed: how many snapshots had been removed when this was written; `None` if an earlier release wrote it.
    """

    below: Mapping[int, int] = field(default_factory=dict)
    heads: tuple[HeadSince, ...] = ()
    covered: frozenset[tuple[int, int]] | None = frozenset()
    removed: int | None = 0


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
        covered, removed = held.get("covered"), held.get("removed")
        pairs = None if covered is None else frozenset((snapshot_id, stamp_ms) for snapshot_id, stamp_ms in covered)
        if not all(map(stored.is_id, [removed, *(one for pair in pairs or () for one in pair)])):
            raise ValueError("its covered entries are no ids and moments, or `removed` is no number")
        return Thinned(below, known, pairs, removed)


def to_json(found: Thinned) -> str:
    """Return the text to store in the property."""
    heads = [[one.since_ms, one.snapshot_id] for one in found.heads]
    below = {str(name): at for name, at in found.below.items()}
    covered = None if found.covered is None else sorted(found.covered)
    held = {"below": below, "heads": heads, "covered": covered, "removed": found.removed}
    return json.dumps(held, separators=(",", ":"))


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
    return _with_entries(metadata, metadata.snapshot_log[_known_entries(metadata) :])


def _known_entries(metadata: TableMetadata) -> int:
    """Return how many entries of Iceberg's own log the stored part of the log of heads contains."""
    covered, since_ms, log = thinned(metadata).covered, _begins_ms(metadata), metadata.snapshot_log
    if covered is None:
        return len(list(takewhile(lambda entry: entry.timestamp_ms <= since_ms, log)))
    return len(list(takewhile(lambda entry: (entry.snapshot_id, entry.timestamp_ms) in covered, log)))


def _begins_ms(metadata: TableMetadata) -> int:
    """Return since when the last head of the stored part of the log was the head; -1 without one."""
    known = thinned(metadata).heads
    return known[-1].since_ms if known else -1


def _with_entries(metadata: TableMetadata, entries: Iterable[SnapshotLogEntry]) -> list[HeadSince]:
    """Return the stored part of the log of heads, and after it some entries of Iceberg's own log."""
    listed = {one.snapshot_id: one for one in metadata.snapshots}
    found: list[HeadSince] = []
    for one in thinned(metadata).heads:
        _add(found, one if one.snapshot_id in listed else HeadSince(one.since_ms, None))
    since_ms, are_missing = max(0, _begins_ms(metadata)), _another_tool_removed_some(metadata)
    for entry in entries:
        # Clocks of machines differ: a commit of another tool may be stamped before the one that it follows.
        since_ms = max(since_ms, entry.timestamp_ms)
        snapshot = listed.get(entry.snapshot_id)
        last = found[-1] if found else None
        if snapshot is not None and last is None and _stood_on_others(snapshot):
            _add(found, HeadSince(0, None))
        elif snapshot is not None and last is not None and _hides_others(last, entry, snapshot, are_missing):
            _add(found, HeadSince(min(last.since_ms + 1, since_ms), None))
        _add(found, HeadSince(since_ms, None if snapshot is None else entry.snapshot_id))
    return found


def _add(found: list[HeadSince], one: HeadSince) -> None:
    if one.snapshot_id is not None or not found or found[-1].snapshot_id is not None:
        found.append(one)


def _stood_on_others(snapshot: Snapshot) -> bool:
    return snapshot.parent_snapshot_id is not None or (snapshot.sequence_number or 0) > 1


def _removed(metadata: TableMetadata) -> int:
    """Return how many snapshots of a table were removed: each has a sequence number of its own."""
    return max(0, getattr(metadata, "last_sequence_number", 0) - len(metadata.snapshots))  # format 1 has none


def _another_tool_removed_some(metadata: TableMetadata) -> bool:
    known = thinned(metadata).removed
    return known is not None and _removed(metadata) > known


def _hides_others(last: HeadSince, entry: SnapshotLogEntry, snapshot: Snapshot, are_missing: bool) -> bool:
    """Whether a snapshot that another tool removed may have been the head between two neighbouring log entries."""
    if last.snapshot_id is None:
        return False
    if is_move(entry, snapshot):
        return last.snapshot_id == entry.snapshot_id or are_missing
    return snapshot.parent_snapshot_id != last.snapshot_id


def is_move(entry: SnapshotLogEntry, snapshot: Snapshot) -> bool:
    """Whether an entry of the log is no commit: the branch was moved to an existing snapshot, from any other."""
    return snapshot.timestamp_ms != entry.timestamp_ms


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
        names = [f"{one.snapshot_id} since {utc_text_of(one.since_ms)}" for one in near if one.snapshot_id is not None]
        name = ".".join(iceberg.name())
        raise UnknownSnapshot(
            f"the snapshot of {name} at {utc_text_of(moment_ms)} was expired, or is no longer known for certain; the "
            f"nearest kept snapshots are {' and '.join(names)}. `foldhouse history {name}` lists all snapshots"
        )
    return found[place].snapshot_id


def first_as_head(log: Sequence[HeadSince]) -> dict[int, int]:
    """Return snapshot id -> when it first became the head, in ms; snapshots that never did are left out."""
    # Reversed, so that the earliest time wins if a snapshot was the head more than once.
    return {one.snapshot_id: one.since_ms for one in reversed(log) if one.snapshot_id is not None}


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
    log = metadata.snapshot_log
    gone, covered = len(log) - len(log_after(metadata, removed)), _known_entries(metadata)
    # What a branch was moved from is known now, and no longer if another tool removes snapshots.
    of = [listed.get(entry.snapshot_id) for entry in log]
    moves = [place for place, one in enumerate(of) if one is not None and is_move(log[place], one)]
    end = max([gone, *(place + 1 for place in moves)])
    known: list[HeadSince] = []
    # By their places and not by their stamps, because an entry may be stamped before the one that it follows.
    for one in _with_entries(metadata, log[covered:end]):
        _add(known, HeadSince(one.since_ms, None) if one.snapshot_id in removed else one)
    count = _removed(metadata) + len(listed.keys() & removed)
    ended = _ended(known, _ends_ms(metadata, log[covered:end]))
    return Thinned(below, ended, _pairs(log[gone : max(covered, end)]), count)


def until(metadata: TableMetadata, moment_ms: int) -> Thinned:
    """Return the value of `foldhouse.thinned` if the stamps after a moment are wrong, and are moved back to it."""
    log, covered = metadata.snapshot_log, _known_entries(metadata)
    late = next((place for place, entry in enumerate(log) if entry.timestamp_ms > moment_ms), len(log))
    found = _with_entries(metadata, log[covered:late])
    known = [one for one in found if one.since_ms <= moment_ms]
    are_wrong = len(known) < len(found)
    if late < len(log) or are_wrong:
        _add(known, HeadSince(known[-1].since_ms + 1 if known else 0, None))
    if are_wrong:  # by a right clock, and after one that was wrong
        _add(known, HeadSince(max(moment_ms, known[-1].since_ms), found[-1].snapshot_id))
    ended = _ended(known, min(moment_ms, _ends_ms(metadata, log[covered:late])))
    return replace(thinned(metadata), heads=ended, covered=_pairs(log[: max(covered, late)]))


def _ends_ms(metadata: TableMetadata, entries: Iterable[SnapshotLogEntry]) -> int:
    return max([_begins_ms(metadata), *(one.timestamp_ms for one in entries)])


def _ended(known: list[HeadSince], since_ms: int) -> tuple[HeadSince, ...]:
    """Keep since when the last head was the head, also if it is not known: no later one began before."""
    is_lost = bool(known) and known[-1].snapshot_id is None and known[-1].since_ms < since_ms
    return (*known, HeadSince(since_ms, None)) if is_lost else tuple(known)


def _pairs(entries: Iterable[SnapshotLogEntry]) -> frozenset[tuple[int, int]]:
    return frozenset((one.snapshot_id, one.timestamp_ms) for one in entries)


def log_after(metadata: TableMetadata, removed: Set[int]) -> list[SnapshotLogEntry]:
    """Return Iceberg's own log after some snapshots are removed: only entries after the newest removed one."""
    places = [place for place, entry in enumerate(metadata.snapshot_log) if entry.snapshot_id in removed]
    return metadata.snapshot_log[places[-1] + 1 :] if places else list(metadata.snapshot_log)
