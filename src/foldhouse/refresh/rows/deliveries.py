"""Reduce the deliveries of each event to one: deliveries with the same `event_id` are one event, and the last counts.

The order does not depend on arrival: it is `sequence_by`, or `event_time` without it, and then all other columns.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from foldhouse.kernel.rowwise import comparable
from foldhouse.values.definition import Stream
from foldhouse.values.deliveries import deciding


def order_of(stream: Stream, columns: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that decide which delivery of an event is the last, most significant first."""
    first = deciding(stream)
    return (*first, *(name for name in columns if name not in first))


def only_last(stream: Stream, rows: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Return the rows of a stream without the deliveries that a later one supersedes, in the given order.

    Args:
        stream: the declaration. Without an `event_id`, or if the rows lack a column of it, each row is an event.
        rows: all of the stream.
        columns: its columns, in the order in which ties are decided.
    """
    if not stream.event_id or not set(stream.event_id) <= set(columns):
        return rows
    place = "_".join([*columns, "row"])  # no column has this name
    frame = pl.from_arrow(rows.select(columns))
    assert isinstance(frame, pl.DataFrame)
    order = tuple(name for name in order_of(stream, columns) if name in columns)
    last = last_deliveries(frame.with_row_index(place), stream.event_id, order)
    kept = np.zeros(rows.num_rows, np.bool_)
    kept[last[place].to_numpy()] = True
    return rows.filter(pa.array(kept))


def last_deliveries(rows: pl.DataFrame, event_id: tuple[str, ...], order: tuple[str, ...]) -> pl.DataFrame:
    """Keep the last delivery of each event; a row with a null in its `event_id` is an event of its own."""
    identified = pl.all_horizontal(pl.col(name).is_not_null() for name in event_id)
    doubled = pl.struct(event_id).is_duplicated() & identified
    several = rows.filter(doubled)
    if several.is_empty():
        return rows
    nested = rows.schema
    # `comparable` turns a nested value into text, which can always be sorted; any nested type requests that
    by = [comparable(pl.col(name), pa.list_(pa.null())) if nested[name].is_nested() else pl.col(name) for name in order]
    last = several.sort(by, nulls_last=False).unique(subset=list(event_id), keep="last", maintain_order=True)
    return pl.concat([rows.filter(~doubled), last])
