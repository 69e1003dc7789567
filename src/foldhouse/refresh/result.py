"""What a refresh came to, in numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta

from pyiceberg.table import Table as IcebergTable

from foldhouse.refresh.bucket import BucketResult
from foldhouse.refresh.head import ROWS
from foldhouse.storage.commit import is_bound
from foldhouse.storage.deleted import live_rows
from foldhouse.storage.files import Partition
from foldhouse.storage.history import snapshot_of
from foldhouse.storage.live import Slice, live_slices
from foldhouse.storage.schema import Layout
from foldhouse.values.definition import Table
from foldhouse.values.stored import number
from foldhouse.values.window import Coverage

_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True)
class PartitionCounts:
    """Rows of one partition: how many there are now, and how many of them this run wrote and took out."""

    rows: int = 0
    rows_written: int = 0
    rows_deleted: int = 0


@dataclass(frozen=True)
class Refreshed:
    """What a refresh, backfill or rebuild came to.

    Args:
        table: its name.
        committed: whether a snapshot was committed; a run that finds nothing new commits none.
        snapshot_id: the table's head afterwards; of a rebuild that is not published, the head of its branch.
        position: source name -> snapshot id up to which it is folded now.
        coverage: the partitions that exist now.
        rows_read, files_read: of the source.
        rows_recomputed: source rows read again for keys that could not be merged.
        rows_written: new and changed rows.
        rows_carried: unchanged rows written again beside them, where a file was rewritten.
        rows_deleted: held rows that were changed or disappeared.
        rows: rows of the table now.
        null_key_rows: source rows (net, of this run) left out because a key is null.
        null_sequence_rows: source rows (net, of this run) left out because a part of their sequence is null.
        partitions: by day, for the partitions that were touched or asked for.
        seconds: how long it took.
    """

    table: str
    committed: bool
    snapshot_id: int | None
    position: dict[str, int | None]
    coverage: Coverage
    rows_read: int = 0
    files_read: int = 0
    rows_recomputed: int = 0
    rows_written: int = 0
    rows_carried: int = 0
    rows_deleted: int = 0
    rows: int = 0
    null_key_rows: int = 0
    null_sequence_rows: int = 0
    partitions: dict[date, PartitionCounts] = field(default_factory=dict)
    seconds: float = 0.0


def row_count(iceberg: IcebergTable, snapshot_id: int | None) -> int:
    """The rows of a snapshot: from its summary, else from its files (delete files are read, data files are not)."""
    snapshot = snapshot_of(iceberg, snapshot_id)
    summary = dict(snapshot.summary.additional_properties) if snapshot and snapshot.summary else {}
    if snapshot is not None and not is_bound(snapshot):
        summary.pop(ROWS, None)  # another tool's commit repeats it
    if (said := rows_said(summary)) is not None:
        return said
    layout = Layout.of(iceberg)
    return live_rows(layout, live_slices(iceberg, snapshot_id).values())


def rows_said(summary: Mapping[str, str]) -> int | None:
    """The rows of a snapshot by its summary; `None` where it does not tell.

    Iceberg's own totals do not where rows are deleted: a delete file also counts for data files that are gone.
    """
    if ROWS in summary:
        return number(ROWS, summary[ROWS])
    is_told = "total-records" in summary and summary.get("total-position-deletes", "0") == "0"
    return number("total-records", summary["total-records"]) if is_told else None


def partition_counts(
    table: Table,
    iceberg: IcebergTable,
    snapshot_id: int | None,
    results: list[BucketResult],
    asked: Coverage | None,
) -> dict[date, PartitionCounts]:
    """Rows by day, of the days that a run touched or was asked for; empty for a table without partitions."""
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
    """Slices grouped by their partition, each group in the order of its paths."""
    grouped: dict[Partition, list[Slice]] = {}
    for one in slices.values():
        grouped.setdefault(Partition(one.file.partition), []).append(one)
    return {partition: tuple(sorted(group, key=lambda s: s.file.path)) for partition, group in grouped.items()}
