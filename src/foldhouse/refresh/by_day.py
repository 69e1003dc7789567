"""Row counts of a table by day, for the days that a refresh changed or that were requested."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, timedelta
from typing import Any

from pyiceberg.table import Table as IcebergTable
from pyiceberg.transforms import DayTransform, IdentityTransform

from foldhouse.refresh.bucket.fold import BucketResult
from foldhouse.storage.deleted import live_rows
from foldhouse.storage.live import live_of
from foldhouse.storage.schema import Layout
from foldhouse.values.definition import Table
from foldhouse.values.results import PartitionCounts
from foldhouse.values.window import Coverage

_EPOCH = date(1970, 1, 1)


def partition_counts(
    table: Table,
    iceberg: IcebergTable,
    snapshot_id: int | None,
    results: list[BucketResult],
    asked: Coverage | None,
) -> dict[date, PartitionCounts]:
    """Count rows by day, for the days that a run changed or that were requested; empty without `partition_by`."""
    if table.partition_by is None:
        return {}
    written: dict[date, tuple[int, int]] = {}
    for result in results:
        if result.partition.values and (result.rows_written or result.rows_deleted):
            day = _day(result.partition.values)
            one, other = written.get(day, (0, 0))
            written[day] = (one + result.rows_written, other + result.rows_deleted)
    days = set(written) | (set(asked.days()) if asked is not None and not asked.is_everything else set())
    rows = _rows_of(iceberg, snapshot_id, days)
    return {day: PartitionCounts(rows[day], *written.get(day, (0, 0))) for day in sorted(days)}


def partition_rows(iceberg: IcebergTable, days: Iterable[date]) -> dict[date, int]:
    """Return the number of rows of some days in the head of a table that is partitioned by day."""
    return _rows_of(iceberg, iceberg.metadata.current_snapshot_id, days)


def _rows_of(iceberg: IcebergTable, snapshot_id: int | None, days: Iterable[date]) -> dict[date, int]:
    rows = dict.fromkeys(days, 0)
    layout = Layout.of(iceberg)
    for found in live_of(iceberg, snapshot_id).of_partitions([((day - _EPOCH).days,) for day in rows]):
        rows[_day(found.file.partition)] += live_rows(layout, [found])
    return rows


def partition_days(iceberg: IcebergTable) -> list[date]:
    """Return the days of which the head of a table has live rows, in order; none if it is not partitioned by day."""
    fields = iceberg.spec().fields
    if not fields or not isinstance(fields[0].transform, DayTransform | IdentityTransform):
        return []
    if str(iceberg.schema().find_type(fields[0].source_id)) not in ("date", "timestamp", "timestamptz"):
        return []
    layout, found = Layout.of_head(iceberg), set()
    for one in live_of(iceberg, iceberg.metadata.current_snapshot_id).slices():
        day = _day(one.file.partition)
        if one.file.partition[0] is not None and day not in found and live_rows(layout, [one]):
            found.add(day)
    return sorted(found)


def _day(partition: tuple[Any, ...]) -> date:
    return _EPOCH + timedelta(days=int(partition[0] or 0))
