"""Read small stored buckets together, and write those that changed again as a whole.

Where thousands of small buckets change at once, such as all days of a table by day, the calls into Arrow and Polars for
each of them take far longer than its rows: looking up its keys, and writing deletes and a second file. Reading some
rows that did not change, and writing them again, is cheaper.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from foldhouse.kernel.combine import FILE, ROW_POSITION
from foldhouse.kernel.plan import FoldPlan
from foldhouse.refresh.bucket.names import BUCKET
from foldhouse.refresh.bucket.read import Part, StoredRows, framed
from foldhouse.storage.live import pieces_of
from foldhouse.storage.pieces import read_pieces, read_together
from foldhouse.storage.schema import Layout
from foldhouse.values.tuning import Tuning

_PLACE = [FILE, ROW_POSITION]
_SMALL_ROWS = 4_096
"""A bucket with more rows is not small, however few bytes they have: numbers in order take next to none."""
_MOST_BYTES, _MOST_ROWS = 64 * 1024 * 1024, 1_000_000
"""So many bytes of files, and rows, of small buckets are in memory at once."""


def small_buckets(stored: Mapping[str, StoredRows], tuning: Tuning) -> dict[str, StoredRows]:
    """Choose the stored buckets to read as a whole: the small ones, if there are many."""
    small = {
        bucket: one
        for bucket, one in stored.items()
        if one.slices and _bytes_of(one) <= tuning.together_bytes and _rows_of(one) <= _SMALL_ROWS
    }
    return small if len(small) >= tuning.together_buckets else {}


def fit_in_memory(stored: Mapping[str, StoredRows]) -> bool:
    """Whether all rows of some buckets may be in memory at once."""
    return sum(map(_bytes_of, stored.values())) <= _MOST_BYTES and sum(map(_rows_of, stored.values())) <= _MOST_ROWS


def _bytes_of(stored: StoredRows) -> int:
    return sum(one.file.size_bytes for one in stored.slices)


def _rows_of(stored: StoredRows) -> int:
    return sum(one.file.rows for one in stored.slices)


@dataclass(frozen=True)
class WholeBuckets:
    """All stored rows of some small buckets.

    Args:
        stored: bucket -> its files.
        rows: the table's columns, `__bucket`, and a place that no row of another bucket has: as `__file` the number of
            the bucket's first file, and `__position` counted over the rows of all these buckets.
    """

    stored: Mapping[str, StoredRows]
    rows: pl.DataFrame = field(repr=False)

    @classmethod
    def read(
        cls, plan: FoldPlan, layout: Layout, stored: Mapping[str, StoredRows], first: Mapping[str, int]
    ) -> WholeBuckets:
        """Read all rows of some buckets.

        Args:
            plan: the compiled fold of the table.
            layout: the layout of the table.
            stored: bucket -> its stored rows.
            first: bucket -> the number of its first file, counted over the files of all buckets.

        Raises:
            CorruptFile: a file is damaged.
        """
        names, columns = list(stored), plan.table_schema.names
        pieces = [(place, one) for place, name in enumerate(names) for one in pieces_of(stored[name].slices)]
        whole = [(place, one) for place, one in pieces if one.is_whole]
        others = [(place, one) for place, one in pieces if not one.is_whole]
        tables = read_pieces(layout, [one for _, one in whole], columns)
        read = read_together(layout, [[one] for _, one in others], columns)
        sizes = [one.file.rows for _, one in whole] + [sum(rows.num_rows for rows in found) for found in read]
        tables += [rows for found in read for rows in found]
        parts = [Part(0, rows, np.arange(rows.num_rows)) for rows in tables]
        frame = framed(plan, layout, parts, columns).select(columns)
        assert frame.height == sum(sizes), "the files of small buckets have other rows than their manifests say"
        buckets = np.repeat(np.array([place for place, _ in [*whole, *others]], np.uint32), sizes)
        numbers = np.array([first[name] for name in names], np.uint32)
        return cls(
            stored,
            frame.with_columns(
                pl.Series(FILE, numbers[buckets]),
                pl.Series(ROW_POSITION, np.arange(frame.height, dtype=np.int64)),
                pl.Series(names).gather(pl.Series(buckets)).alias(BUCKET),
            ),
        )

    def without(self, replaced: pl.DataFrame) -> pl.DataFrame:
        """Return the rows at other places than these, with their `__bucket`."""
        return self.rows.join(replaced, on=_PLACE, how="anti").drop(_PLACE)

    def deleted(self, replaced: pl.DataFrame) -> dict[str, int]:
        """Return bucket -> how many of its rows are at some places; buckets without one are left out."""
        return rows_by_bucket(self.rows.join(replaced, on=_PLACE, how="semi"))


def rows_by_bucket(rows: pl.DataFrame) -> dict[str, int]:
    """Return `__bucket` -> the number of its rows."""
    return dict(rows.group_by(BUCKET).len().iter_rows())
