"""The whole history of a table: the snapshots that its metadata lists, and older ones in chapters beside it.

Every commit writes, and every reader parses, all that a table's metadata lists. So metadata lists the newest snapshots,
tags and branches, and those before are in chapters: files that are Iceberg metadata themselves, never changed, named by
a property of the table. Nothing is expired by that: whatever is asked for here is found in either.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any
from uuid import uuid4

from pydantic_core import from_json
from pyiceberg.serializers import ToOutputFile
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef
from pyiceberg.table.snapshots import Snapshot, SnapshotLogEntry

from foldhouse.errors import UnknownSnapshot
from foldhouse.storage.places import places

PROPERTY = "foldhouse.history"
_FOREVER_MS = 2**63


@dataclass(frozen=True)
class Chapter:
    """A file with some snapshots of a table.

    Args:
        file: where it is.
        snapshots: how many it holds.
    """

    file: str
    snapshots: int


@dataclass(frozen=True)
class Chapters:
    """The property as a value.

    Args:
        held: oldest first.
        replaced: files whose snapshots are in others now; readers of older metadata may still open them.
    """

    held: tuple[Chapter, ...] = ()
    replaced: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Opened:
    """What a chapter says, as JSON."""

    snapshots: Mapping[int, Mapping[str, Any]]
    log: Sequence[Mapping[str, Any]]


def chapters(metadata: TableMetadata) -> Chapters:
    """The chapters of a table."""
    text = metadata.properties.get(PROPERTY)
    return Chapters() if text is None else _parsed(text)


@lru_cache(maxsize=256)
def _parsed(text: str) -> Chapters:
    said = json.loads(text)
    return Chapters(tuple(Chapter(**one) for one in said["held"]), tuple(said["replaced"]))


def to_json(found: Chapters) -> str:
    """The text of the property."""
    return json.dumps(asdict(found))


def snapshot_of(iceberg: IcebergTable, snapshot_id: int | None) -> Snapshot | None:
    """A snapshot of the table, listed or not; `None` where there is none (any more)."""
    if snapshot_id is None:
        return None
    listed = iceberg.snapshot_by_id(snapshot_id)
    if listed is not None:
        return listed
    for chapter in reversed(chapters(iceberg.metadata).held):
        found = _opened(iceberg, chapter).snapshots.get(snapshot_id)
        if found is not None:
            return Snapshot.model_validate(found)
    return None


def snapshots_of(iceberg: IcebergTable) -> Iterator[Snapshot]:
    """All snapshots of the table, those that are listed first, each once."""
    yield from iceberg.snapshots()
    yield from older_snapshots(iceberg)


def older_snapshots(iceberg: IcebergTable) -> Iterator[Snapshot]:
    """The snapshots that are in chapters."""
    for chapter in chapters(iceberg.metadata).held:
        yield from snapshots_in(iceberg, chapter)


def snapshots_in(iceberg: IcebergTable, chapter: Chapter) -> list[Snapshot]:
    """The snapshots of one chapter.

    Raises:
        UnknownSnapshot: its file is gone.
    """
    return [Snapshot.model_validate(one) for one in _opened(iceberg, chapter).snapshots.values()]


def log_of(iceberg: IcebergTable) -> list[SnapshotLogEntry]:
    """Which snapshot was the head since when, of all that are held, oldest first."""
    older = [entry for one in chapters(iceberg.metadata).held for entry in log_in(iceberg, one)]
    return sorted([*older, *iceberg.metadata.snapshot_log], key=lambda entry: entry.timestamp_ms)


def log_in(iceberg: IcebergTable, chapter: Chapter) -> list[SnapshotLogEntry]:
    """When the snapshots of one chapter were the head."""
    return [SnapshotLogEntry.model_validate(entry) for entry in _opened(iceberg, chapter).log]


def older_ones_say(iceberg: IcebergTable, name: str, text: str) -> bool:
    """Whether the summary of any snapshot that is in a chapter says this; whether that is behind the head or not."""
    return any(text in _said(one.file, name, _File(iceberg)) for one in chapters(iceberg.metadata).held)


def lineage(iceberg: IcebergTable, snapshot: Snapshot | None) -> Iterator[Snapshot]:
    """A snapshot and those behind it, newest first, as far as they are kept."""
    while snapshot is not None:
        yield snapshot
        snapshot = snapshot_of(iceberg, snapshot.parent_snapshot_id)


def last_as_head(snapshots: Iterable[Snapshot], log: Sequence[SnapshotLogEntry]) -> dict[int, int]:
    """Snapshot id -> when it was the head for the last time, in ms; of one that never was, when it was committed."""
    ends = {snapshot.snapshot_id: snapshot.timestamp_ms for snapshot in snapshots}
    for place, entry in enumerate(log):
        end = log[place + 1].timestamp_ms if place + 1 < len(log) else _FOREVER_MS
        if entry.snapshot_id in ends:
            ends[entry.snapshot_id] = max(ends[entry.snapshot_id], end)
    return ends


def write_chapter(iceberg: IcebergTable, snapshots: Sequence[Snapshot], log: Sequence[SnapshotLogEntry]) -> Chapter:
    """Write a chapter; nothing names it yet.

    It is the table's metadata with these snapshots alone, so that any reader of Iceberg can open it by its path.
    """
    newest = max(snapshots, key=lambda one: (one.timestamp_ms, one.sequence_number or 0)).snapshot_id
    properties = {name: text for name, text in iceberg.properties.items() if name != PROPERTY}
    metadata = iceberg.metadata.model_copy(
        update={
            "snapshots": list(snapshots),
            "snapshot_log": sorted(log, key=lambda entry: entry.timestamp_ms),
            "current_snapshot_id": newest,
            "refs": {MAIN_BRANCH: SnapshotRef.model_validate({"snapshot-id": newest, "type": "branch"})},
            "metadata_log": [],
            "statistics": [],
            "partition_statistics": [],
            "properties": properties,
        }
    )
    # In a folder of their own: who looks for the newest metadata among the others must not find them.
    path = places(iceberg).new_metadata_location(f"history/{uuid4()}.metadata.json")
    ToOutputFile.table_metadata(metadata, iceberg.io.new_output(path))
    return Chapter(path, len(snapshots))


@dataclass(frozen=True)
class _File:
    """A chapter with its table, equal to every other: the caches go by the path alone."""

    iceberg: IcebergTable = field(compare=False)


def _opened(iceberg: IcebergTable, chapter: Chapter) -> _Opened:
    return _read(chapter.file, _File(iceberg))


@lru_cache(maxsize=16)
def _read(path: str, given: _File) -> _Opened:
    try:
        with given.iceberg.io.new_input(path).open() as source:
            said = from_json(source.read())
    except FileNotFoundError:
        name = ".".join(given.iceberg.name())
        raise UnknownSnapshot(
            f"older snapshots of {name} are not in {path} any more: they were moved, or expired, since the table was "
            "loaded; do it again. If it says so again, another tool took the file for an orphan, and they are lost: "
            f"`foldhouse expire {name}` lets the table go on without them"
        ) from None
    return _Opened({one["snapshot-id"]: one for one in said["snapshots"]}, said.get("snapshot-log", []))


@lru_cache(maxsize=256)
def _said(path: str, name: str, given: _File) -> frozenset[str]:
    return frozenset(one.get("summary", {}).get(name) for one in _read(path, given).snapshots.values()) - {None}
