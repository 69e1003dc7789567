"""Row counts of a table by day, for the days that a refresh changed or that were requested."""

from __future__ import annotations

from datetime import date, timedelta

from pyiceberg.table import Table as IcebergTable

from foldhouse.refresh.bucket.fold import BucketResult
from foldhouse.storage.deleted import live_rows
from foldhouse.storage.files import Partition
from foldhouse.storage.live import Slice, live_slices
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
            day = _day(result.partition)
            one, other = written.get(day, (0, 0))
            written[day] = (one + result.rows_written, other + result.rows_deleted)
    days = set(written) | (set(asked.days()) if asked is not None and not asked.is_everything else set())
    layout = Layout.of(iceberg)
    rows = dict.fromkeys(days, 0)
    for partition, slices in by_partition(live_slices(iceberg, snapshot_id)).items():
        if (day := _day(partition)) in rows:
            rows[day] += live_rows(layout, slices)
    return {day: PartitionCounts(rows[day], *written.get(day, (0, 0))) for day in sorted(days)}


def _day(partition: Partition) -> date:
    return _EPOCH + timedelta(days=int(partition.values[0] or 0))


def by_partition(slices: dict[str, Slice]) -> dict[Partition, tuple[Slice, ...]]:
    """Group slices by their partition; each group is sorted by path."""
    grouped: dict[Partition, list[Slice]] = {}
    for one in slices.values():
        grouped.setdefault(Partition(one.file.partition), []).append(one)
    return {partition: tuple(sorted(group, key=lambda s: s.file.path)) for partition, group in grouped.items()}
