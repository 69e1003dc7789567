"""Finds the rows that a table leaves out, because a key or a part of their sequence is null.

These rows are not stored separately. They are read from the sources, at the table's own position.
"""

from __future__ import annotations

import polars as pl
import pyarrow as pa
from pyiceberg.table import Table as IcebergTable
from pyspark.sql import functions as F

from foldhouse.heads.head import last_head
from foldhouse.refresh.rows.logic import Logic
from foldhouse.refresh.rows.on_spark import any_of, sources_on_spark
from foldhouse.refresh.rows.read import events_here
from foldhouse.refresh.window.affected import of_state
from foldhouse.spark.failures import translating_spark_errors
from foldhouse.spark.named import literal
from foldhouse.storage.live import live_of
from foldhouse.values.window import Coverage


def quarantined(iceberg: IcebergTable, sources: list[IcebergTable], logic: Logic) -> pa.Table:
    """Return the rows that were left out, with the columns of the source or of the result of `rows`.

    Args:
        iceberg: the table.
        sources: its sources.
        logic: of the table.

    Returns:
        The rows with a null in a key, or in `sequence_by` if the fold is ordered.
    """
    table = logic.compiled.table
    positions = last_head(iceberg).positions
    live = [
        live_of(source, positions[one.name].snapshot_id if one.name in positions else None)
        for one, source in zip(table.sources, sources, strict=True)
    ]
    state = of_state(logic, live, Coverage.everything())
    columns = [*table.keys, *table.sequence_by]
    if logic.compiled.is_plain:
        rows = events_here(logic, 0, state)
        return rows.filter(pl.any_horizontal(pl.col(name).is_null() for name in columns)).to_arrow()
    with translating_spark_errors(table.name):
        frame = logic.compiled.rows(sources_on_spark(logic, state))
        return frame.where(any_of([F.col(literal(name)).isNull() for name in columns])).toArrow()
