"""The record of a forget in the metadata: its id, time, reason and number of rows; never the key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import takewhile

from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Snapshot

from foldhouse.storage.commit import is_bound
from foldhouse.storage.history import lineage
from foldhouse.values import stored
from foldhouse.values.metadata_names import FORGETTING, FORGOTTEN


@dataclass(frozen=True)
class Record:
    """One forget.

    Args:
        id: the same in all tables.
        at: when it began, ISO 8601 in UTC.
        reason: as given.
        rows: the events that left the head of the stream.
    """

    id: str
    at: str
    reason: str
    rows: int

    @property
    def began(self) -> datetime:
        """When it began."""
        return datetime.fromisoformat(self.at).astimezone(UTC)

    def to_json(self) -> str:
        """Return the text to store."""
        return json.dumps(asdict(self))


def unfinished(iceberg: IcebergTable) -> Record | None:
    """Return the forget of a stream that began and is not done."""
    text = iceberg.properties.get(FORGETTING)
    return None if text is None else _parsed(FORGETTING, text)


def _parsed(name: str, text: str) -> Record:
    with stored.said(name, text):
        found = json.loads(text)
        return Record(str(found["id"]), str(found["at"]), str(found["reason"]), int(found["rows"]))


def first_clean(iceberg: IcebergTable, record: Record) -> Snapshot | None:
    """Return the newest snapshot in the lineage of the head that a forget committed; `None` if there is none."""
    return next((one for one in lineage(iceberg, iceberg.current_snapshot()) if _is_of(one, record)), None)


def clean_snapshots(iceberg: IcebergTable, record: Record) -> Iterator[Snapshot]:
    """Yield the snapshots from the head down to that of a forget, which must be in the lineage."""
    clean = first_clean(iceberg, record)
    assert clean is not None
    yield from takewhile(lambda one: one.snapshot_id != clean.snapshot_id, lineage(iceberg, iceberg.current_snapshot()))
    yield clean


def is_clean(source: IcebergTable, snapshot_id: int | None, record: Record) -> bool:
    """Whether a snapshot of a stream or table has nothing of a forget's subject: it is that of the forget, or later."""
    return first_clean(source, record) is not None and any(
        one.snapshot_id == snapshot_id for one in clean_snapshots(source, record)
    )


def _is_of(snapshot: Snapshot, record: Record) -> bool:
    said = snapshot.summary.additional_properties.get(FORGOTTEN) if snapshot.summary is not None else None
    return said is not None and is_bound(snapshot) and _parsed(FORGOTTEN, said).id == record.id
