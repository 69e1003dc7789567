"""Row counts of a table by day, for the days that a refresh changed or that were requested."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import date, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table as IcebergTable

from foldhouse.refresh.bucket.fold import BucketResult
from foldhouse.storage.deleted import live_rows
from foldhouse.storage.live import Slice, day_fields, live_of, pieces_of
from foldhouse.storage.pieces import read_piece
from foldhouse.storage.schema import Layout
from foldhouse.values.definition import Table
from foldhouse.values.results import PartitionCounts
from foldhouse.values.window import Coverage

_EPOCH = date(1970, 1, 1)
_HEAD = -1
"""No snapshot has this id."""


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
    live, column = live_of(iceberg, snapshot_id), _day_column(iceberg)
    if column is None or not rows:
        return rows
    layout = Layout.of(iceberg)
    own = {spec_id for spec_id in live.spec_ids if live.day_fields.get(spec_id) == column}
    for spec_id in own:
        for found in live.of_partitions([((day - _EPOCH).days,) for day in rows], spec_id):
            rows[_day(found.file.partition)] += live_rows(layout, [found])
    others = [] if own == live.spec_ids else [one for one in live.slices() if one.file.spec_id not in own]
    if others := [*others, *(one for one in live.undated() if one.file.spec_id in own)]:
        for day, number in _read(layout, column, others).items():
            if day in rows:
                rows[day] += number
    return rows


def partition_days(iceberg: IcebergTable, snapshot_id: int | None = _HEAD) -> list[date]:
    """Return the days of which a table has live rows, in order; none if it is not partitioned by day.

    Of files that are partitioned in another way, from before that changed, the column is read.

    Args:
        iceberg: the table.
        snapshot_id: of the rows; the head by default, and no rows for `None`.

    Raises:
        UnknownSnapshot: the table has no such snapshot.
    """
    column = _day_column(iceberg)
    if column is None:
        return []
    of_rows = iceberg.metadata.current_snapshot_id if snapshot_id == _HEAD else snapshot_id
    live, layout = live_of(iceberg, of_rows), Layout.of_head(iceberg)
    found, others = set[date](), live.undated()
    for one in live.slices():
        if live.day_fields.get(one.file.spec_id) != column:
            others.append(one)
        elif one.file.partition[0] is not None:
            day = _day(one.file.partition)
            if day not in found and live_rows(layout, [one]):
                found.add(day)
    return sorted(found | set(_read(layout, column, others)))


def _day_column(iceberg: IcebergTable) -> int | None:
    """Return the id of the column by whose days the table is partitioned now."""
    return day_fields(iceberg).get(iceberg.spec().spec_id)


def _read(layout: Layout, column: int, slices: Iterable[Slice]) -> dict[date, int]:
    """Count the live rows of some files by the day of a column, without rows that have none."""
    name, found = layout.schema.find_column_name(column) or "", Counter[date]()
    for piece in pieces_of(slices):
        days = pc.cast(read_piece(layout, piece, [name])[name], pa.date32(), safe=False)
        found.update({one["values"]: one["counts"] for one in pc.value_counts(days.drop_null()).to_pylist()})
    return found


def _day(partition: tuple[Any, ...]) -> date:
    return _EPOCH + timedelta(days=int(partition[0] or 0))
