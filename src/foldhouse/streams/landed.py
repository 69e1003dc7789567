"""Reads from a stream's history which file each of its days came from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence, Set
from datetime import date

from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Snapshot

from foldhouse.storage.live import day_fields, live_of
from foldhouse.streams.partitioned import undated_with_days
from foldhouse.streams.replace import held_by_day, proofs_text
from foldhouse.streams.stored import stream_coverage
from foldhouse.values.landed import LandedDays, state_of
from foldhouse.values.metadata_names import LANDED

_UNREADABLE = (ValueError, TypeError, AttributeError, RecursionError)


def landed_days(iceberg: IcebergTable, days: Iterable[date]) -> LandedDays:
    """Return the states of some days at the head of a stream, and the proofs of all listed commits.

    Only manifests are read, and files that another tool put into the partition of no day; none for no days. A day that
    the stream does not cover has no state.
    """
    covered = stream_coverage(iceberg)
    asked: Sequence[date] = sorted({day for day in days if day in covered})
    columns, live = day_fields(iceberg), live_of(iceberg, iceberg.metadata.current_snapshot_id)
    strange = {columns.get(one) for one in live.spec_ids} - {columns.get(iceberg.spec().spec_id)}
    if asked and (strange or undated_with_days(iceberg, live) is not None):
        asked = ()  # files that are partitioned in another way may have events of any day
    held = held_by_day(iceberg, asked) if asked else {}
    states = {
        day: state_of(path for one in held.get(day, []) for path in (one.file.path, *one.deletes)) for day in asked
    }
    proofs = {one.sequence_number or 0: _proofs(one) for one in iceberg.snapshots()}
    proofs[0] = _parsed(iceberg.properties.get(LANDED, "{}"))
    return LandedDays(str(iceberg.metadata.table_uuid), max(proofs), states, proofs)


def proofs_without(iceberg: IcebergTable, removed: Set[int]) -> dict[str, str]:
    """Return the table property with the newest proof per day of snapshots that are removed now or were before."""
    gone = sorted(
        (one for one in iceberg.snapshots() if one.snapshot_id in removed), key=lambda one: one.sequence_number or 0
    )
    kept = _parsed(iceberg.properties.get(LANDED, "{}"))
    for one in gone:
        kept |= _proofs(one)
    return {LANDED: proofs_text(kept)} if kept else {}


def _proofs(snapshot: Snapshot) -> dict[date, str]:
    return _parsed(snapshot.summary.additional_properties.get(LANDED, "{}") if snapshot.summary else "{}")


def _parsed(text: str) -> dict[date, str]:
    try:
        return {date.fromisoformat(day): str(proof) for day, proof in json.loads(text).items()}
    except _UNREADABLE:  # another tool wrote it, so it proves nothing
        return {}
