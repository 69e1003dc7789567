"""The number of rows of a snapshot, from its summary or else from its files."""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.table import Table as IcebergTable

from foldhouse.storage.commit import is_bound
from foldhouse.storage.deleted import live_rows
from foldhouse.storage.history import snapshot_of
from foldhouse.storage.live import live_slices
from foldhouse.storage.schema import Layout
from foldhouse.values.metadata_names import TABLE_ROWS
from foldhouse.values.stored import number


def row_count(iceberg: IcebergTable, snapshot_id: int | None) -> int:
    """Return the number of rows of a snapshot, from its summary if possible.

    Otherwise delete files are read, but no data files.
    """
    snapshot = snapshot_of(iceberg, snapshot_id)
    summary = dict(snapshot.summary.additional_properties) if snapshot and snapshot.summary else {}
    if snapshot is not None and not is_bound(snapshot):
        summary.pop(TABLE_ROWS, None)  # a foreign commit may repeat the number of an earlier one
    if (said := rows_said(summary)) is not None:
        return said
    layout = Layout.of(iceberg)
    return live_rows(layout, live_slices(iceberg, snapshot_id).values())


def rows_said(summary: Mapping[str, str]) -> int | None:
    """Return the number of rows in a summary; `None` if the summary does not determine it.

    Iceberg's own totals do not if there are position deletes, because a delete file also counts rows of data files that
    are gone; nor if there are equality deletes, which do not say how many rows they remove.
    """
    if TABLE_ROWS in summary:
        return number(TABLE_ROWS, summary[TABLE_ROWS])
    has_deletes = any(summary.get(f"total-{kind}-deletes", "0") != "0" for kind in ("position", "equality"))
    is_told = "total-records" in summary and not has_deletes
    return number("total-records", summary["total-records"]) if is_told else None
