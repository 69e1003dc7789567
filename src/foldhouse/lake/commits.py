"""What a user sees of a commit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pyiceberg.table.snapshots import Snapshot

from foldhouse.storage.history import HeadSince, first_as_head
from foldhouse.values.metadata_names import CHECKED_AGAINST, POSITION
from foldhouse.values.readable import Readable
from foldhouse.values.window import positions_from_json


@dataclass(frozen=True, repr=False)
class SnapshotInfo(Readable):
    """One commit of a table: its id, parent, time, operation and summary."""

    id: int
    parent_id: int | None
    committed_at: datetime
    operation: str
    summary: Mapping[str, str]

    @property
    def snapshot_id(self) -> int:
        """The id, by the name that it has in all other results."""
        return self.id

    def _facts(self) -> Iterator[tuple[str, str]]:
        yield "id", str(self.id)
        yield "committed_at", f"{self.committed_at:%Y-%m-%d %H:%M:%S.%f}"[:-3] + "Z"
        yield "operation", self.operation
        yield from [("position", str(position_of(self)))] if POSITION in self.summary else []


def infos(snapshots: Iterable[Snapshot], log: Sequence[HeadSince]) -> list[SnapshotInfo]:
    """Describe snapshots, each with the time at which it first became the head."""
    since = first_as_head(log)
    return [
        SnapshotInfo(
            id=one.snapshot_id,
            parent_id=one.parent_snapshot_id,
            committed_at=datetime.fromtimestamp(since.get(one.snapshot_id, one.timestamp_ms) / 1000, UTC),
            operation=one.summary.operation.value if one.summary else "unknown",
            summary=dict(one.summary.additional_properties) if one.summary else {},
        )
        for one in snapshots
    ]


def position_of(info: SnapshotInfo) -> dict[str, int | None]:
    """Return source name -> the snapshot id up to which a commit of a table had folded it; empty for streams."""
    text = info.summary.get(POSITION)
    return {name: position.snapshot_id for name, position in positions_from_json(text).items()} if text else {}


def checked_against(info: SnapshotInfo) -> dict[str, int | None]:
    """Return other table -> the snapshot id at which the checks of a commit read it; empty if they read none."""
    text = info.summary.get(CHECKED_AGAINST)
    return {name: one.snapshot_id for name, one in positions_from_json(text, CHECKED_AGAINST).items()} if text else {}
