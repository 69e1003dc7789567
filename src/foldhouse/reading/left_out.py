"""The rows that a table leaves out: those whose key, or whose place in the order of events, is not known.

They are not kept anywhere: they are in the sources, where this looks them up at the table's own position.
"""

from __future__ import annotations

import polars as pl
import pyarrow as pa
from pyiceberg.table import Table as IcebergTable
from pyspark.sql import functions as F

from foldhouse.heads.head import last_head
from foldhouse.refresh.rows.evaluate import Logic, any_of, events_here, sources_on_spark
from foldhouse.refresh.window.affected import of_state
from foldhouse.spark.failures import translating_spark_errors
from foldhouse.storage.live import live_slices
from foldhouse.values.window import Coverage


def quarantined(iceberg: IcebergTable, sources: list[IcebergTable], logic: Logic) -> pa.Table:
    """The rows that were not folded, in the columns of the source, or of what `rows` makes of it.

    Args:
        iceberg: the derived table.
        sources: its sources.
        logic: the table's.

    Returns:
        The rows with a null in a key, or in `sequence_by` where the table goes by it.
    """
    table = logic.compiled.table
    positions = last_head(iceberg).positions
    slices = [
        live_slices(source, positions[one.name].snapshot_id) if one.name in positions else {}
        for one, source in zip(table.sources, sources, strict=True)
    ]
    state = of_state(logic, slices, Coverage.everything())
    columns = [*table.keys, *table.sequence_by]
    if logic.compiled.is_plain:
        rows = events_here(logic, 0, state)
        return rows.filter(pl.any_horizontal(pl.col(name).is_null() for name in columns)).to_arrow()
    with translating_spark_errors(table.name):
        frame = logic.compiled.rows(sources_on_spark(logic, state))
        return frame.where(any_of([F.col(name).isNull() for name in columns])).toArrow()
