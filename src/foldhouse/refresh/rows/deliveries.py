"""One event of all its deliveries: those with the same `event_id` are the same event, and the last of them counts.

The order does not depend on arrival: `sequence_by`, or the event's time where there is none, then the row itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pyarrow as pa

from foldhouse.kernel.rowwise import comparable
from foldhouse.values.definition import Stream


def order_of(stream: Stream, columns: Sequence[str]) -> tuple[str, ...]:
    """The columns that say which delivery of an event is the last one, most significant first."""
    first = stream.sequence_by or ((stream.event_time,) if stream.event_time else ())
    return (*first, *(name for name in columns if name not in first))


def last_deliveries(rows: pl.DataFrame, event_id: tuple[str, ...], order: tuple[str, ...]) -> pl.DataFrame:
    """The rows with the last delivery of each event; a row whose id is null in a part is an event of its own."""
    identified = pl.all_horizontal(pl.col(name).is_not_null() for name in event_id)
    doubled = pl.struct(event_id).is_duplicated() & identified
    several = rows.filter(doubled)
    if several.is_empty():
        return rows
    nested = rows.schema
    by = [comparable(pl.col(name), pa.list_(pa.null())) if nested[name].is_nested() else pl.col(name) for name in order]
    last = several.sort(by, nulls_last=False).unique(subset=list(event_id), keep="last", maintain_order=True)
    return pl.concat([rows.filter(~doubled), last])
