"""Write the changes of one bucket: new rows, position deletes of the rows they replace, and rewritten files.

A task that is retried or run twice leaves files that no commit references; it never stores a row twice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl
import pyarrow as pa
from pyiceberg.manifest import DataFile

from foldhouse.kernel.combine import FILE, ROW_POSITION
from foldhouse.kernel.ordered import ordered
from foldhouse.kernel.plan import FoldPlan
from foldhouse.refresh.bucket.cost import Stored, files_to_rewrite, merging_deletes_pays, patience_of
from foldhouse.refresh.bucket.read import StoredRows, framed
from foldhouse.storage.files import write_data_file, write_position_deletes
from foldhouse.storage.live import Partition
from foldhouse.storage.properties import write_properties
from foldhouse.storage.schema import Layout

WRITE_MODE, COPY_ON_WRITE = "write.merge.mode", "copy-on-write"
"""Iceberg's table property, and the value that makes a refresh rewrite files instead of writing position deletes."""


def is_copied_on_write(layout: Layout) -> bool:
    """Whether a refresh writes no delete files, because a reader of the table does not know them."""
    return dict(layout.properties).get(WRITE_MODE, "").lower() == COPY_ON_WRITE


@dataclass(frozen=True)
class Written:
    """The files of one bucket that a commit adds and removes.

    Args:
        added: data files and delete files.
        removed: paths of data files and delete files.
        rows_carried: unchanged rows that were written again.
    """

    added: tuple[DataFile, ...] = ()
    removed: tuple[str, ...] = ()
    rows_carried: int = 0


@dataclass(frozen=True)
class _Bucket:
    """One bucket before anything is written.

    Args:
        stored: its stored rows.
        gone: per file, the sorted positions that this change deletes.
    """

    stored: StoredRows
    gone: tuple[np.ndarray, ...] = field(repr=False)

    def dead(self, place: int) -> np.ndarray:
        """Return the positions of a file that are deleted by this change or were before, sorted."""
        before, now = self.stored.gone(place), self.gone[place]  # disjoint: a deleted row is never read
        return np.sort(np.concatenate([before, now]), kind="stable")  # merges two sorted runs in linear time


def write_bucket(
    plan: FoldPlan, partition: Partition, stored: StoredRows, rows: pl.DataFrame, gone: pl.DataFrame
) -> Written:
    """Write the changes of one bucket.

    Args:
        plan: the compiled fold of the table.
        partition: the partition of the bucket.
        stored: the stored rows of the bucket.
        rows: the new and changed rows of the bucket.
        gone: `__file` and `__position` of the rows to delete; `__file` is the place in `stored.slices`.
    """
    layout = stored.layout
    if not stored.slices:
        return Written(_data_files(layout, plan, partition, rows, stored.tuning.written_file_bytes))
    bucket = _Bucket(stored, _positions_by_file(gone, len(stored.slices)))
    files = [
        Stored(one.file.rows, len(stored.gone(place)) + len(bucket.gone[place]), patience_of(one.file.path))
        for place, one in enumerate(stored.slices)
    ]
    delete_files = {path for one in stored.slices for path in one.deletes}
    rewritten = files_to_rewrite(files, rows.height, stored.tuning, leaves_deletes=not is_copied_on_write(layout))
    stays = [place for place in range(len(files)) if place not in rewritten]
    deletes, replaced = _deletes(layout, partition, bucket, stays, delete_files)
    before = rows.height
    if rewritten:
        parts = stored.rows_of(rewritten, [bucket.dead(place) for place in rewritten], rows.columns)
        rows = pl.concat([rows, framed(plan, layout, parts, rows.columns).select(rows.columns)])
    added = _data_files(layout, plan, partition, rows, stored.tuning.written_file_bytes)
    removed = (*(stored.slices[place].file.path for place in rewritten), *sorted(replaced))
    return Written((*added, *deletes), removed, rows.height - before)


def _positions_by_file(places: pl.DataFrame, files: int) -> tuple[np.ndarray, ...]:
    """Return the sorted positions of each of some files, from `__file` and `__position` of rows."""
    numbers, positions = places[FILE].to_numpy(), places[ROW_POSITION].to_numpy()
    # Narrow numbers are sorted by their digits, in linear time.
    order = np.argsort(numbers.astype(np.min_scalar_type(files)), kind="stable")
    ends = np.cumsum(np.bincount(numbers, minlength=files))
    return tuple(np.sort(of_file) for of_file in np.split(positions[order], ends[:-1]))


def _deletes(
    layout: Layout, partition: Partition, bucket: _Bucket, stays: Sequence[int], delete_files: set[str]
) -> tuple[tuple[DataFile, ...], set[str]]:
    """Write the position deletes for the files that stay; return the new delete file and the delete files to remove."""
    slices = bucket.stored.slices
    needed = {path for place in stays for path in slices[place].deletes}
    merges = merging_deletes_pays(len(needed), bucket.stored.tuning)
    of_place = bucket.dead if merges else lambda place: bucket.gone[place]
    positions = [(slices[place].file.path, of_place(place)) for place in stays]
    positions = [(path, found) for path, found in positions if len(found)]
    written = (write_position_deletes(layout, partition, positions),) if positions else ()
    return written, delete_files if merges else delete_files - needed


def _data_files(
    layout: Layout, plan: FoldPlan, partition: Partition, rows: pl.DataFrame, most_bytes: int
) -> tuple[DataFile, ...]:
    """Write rows into data files of limited size, sorted by their keys."""
    if rows.is_empty():
        return ()
    in_order = ordered(rows, plan.key_names).to_arrow().cast(plan.table_schema)
    size = rows_of_file(layout, in_order, most_bytes)
    return tuple(
        write_data_file(layout, partition, in_order.slice(start, size)) for start in range(0, in_order.num_rows, size)
    )


def rows_of_file(layout: Layout, rows: pa.Table, most_bytes: int) -> int:
    """Return how many rows of a bucket go into one file, so that no file exceeds the size and all are about equal."""
    most = min(most_bytes, write_properties(dict(layout.properties)).target_bytes or most_bytes)
    files = max(1, math.ceil(int(rows.nbytes) / most))
    return math.ceil(int(rows.num_rows) / files)
