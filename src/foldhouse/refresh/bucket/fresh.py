"""Write many small buckets that have no files yet: sorted, converted and encoded together, each in files of its own.

A first backfill has thousands of such buckets. Each call into Polars or Arrow takes about as long as writing twenty
rows, so one call for all of them is much cheaper than one for each.
"""

from __future__ import annotations

import polars as pl
import pyarrow as pa
from pyiceberg.manifest import DataFile

from foldhouse.kernel.plan import FoldPlan
from foldhouse.refresh.bucket.names import BUCKET, partition_of
from foldhouse.refresh.bucket.write import rows_of_file
from foldhouse.storage.files import write_data_files
from foldhouse.storage.schema import Layout

_FEW_ROWS = 4_096
"""Buckets with so many rows on average are written one by one, so that memory holds one of them at a time."""


def are_small(buckets: int, rows: int) -> bool:
    """Whether buckets without files are so many, and so small, that they are written together."""
    return buckets > 1 and rows <= buckets * _FEW_ROWS


def write_fresh(
    plan: FoldPlan, layout: Layout, rows: pl.DataFrame, most_bytes: int
) -> dict[str, tuple[int, tuple[DataFile, ...]]]:
    """Write the rows of buckets without files into data files of limited size, sorted by their keys.

    Args:
        plan: the compiled fold of the table.
        layout: the layout of the table.
        rows: rows of the table, each with its `__bucket`.
        most_bytes: the size that a file should not exceed, counted in memory.

    Returns:
        Bucket -> the number of its rows, and its files. Until a commit references these, no reader sees them.
    """
    ordered = rows.sort(BUCKET, *plan.key_names)
    runs = ordered[BUCKET].rle().struct.unnest()
    arrow = ordered.drop(BUCKET).to_arrow().cast(plan.table_schema)
    whole = arrow.select(layout.arrow.names).cast(layout.arrow)
    fit = rows_of_file(layout, whole, most_bytes) == whole.num_rows  # then each bucket does
    parts: list[tuple[str, pa.Table]] = []
    begin = 0
    for count, bucket in runs.iter_rows():
        own = whole.slice(begin, count)
        size = count if fit else rows_of_file(layout, own, most_bytes)
        parts += [(bucket, own.slice(start, size)) for start in range(0, count, size)]
        begin += count
    written = write_data_files(layout, [(partition_of(bucket), part) for bucket, part in parts])
    found: dict[str, tuple[int, tuple[DataFile, ...]]] = {}
    for (bucket, part), file in zip(parts, written, strict=True):
        count, files = found.get(bucket, (0, ()))
        found[bucket] = (count + part.num_rows, (*files, file))
    return found
