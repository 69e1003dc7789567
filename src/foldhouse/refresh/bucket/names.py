"""Names the bucket of each row, the text of its Iceberg partition, and divides rows by it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise, product

import numpy as np
import polars as pl
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import IntegerType, LongType

from foldhouse.kernel.bucket_numbers import bucket_numbers
from foldhouse.kernel.plan import FoldPlan, sequence_column
from foldhouse.storage.live import Partition
from foldhouse.storage.schema import Layout

BUCKET = "__bucket"
KEY_ONLY = "__key_only"
NULL_KEY = "null"
NULL_SEQUENCE = "null sequence"
_ROWS_A_TEXT = 8
"""Texts of all possible partitions are made first if there are so many times as many rows; else a text for each row."""


@dataclass(frozen=True, eq=False)
class Buckets:
    """The bucket of each row of a frame: the row's Iceberg partition as JSON.

    It is `NULL_KEY` or `NULL_SEQUENCE` if a key or a part of the sequence is null.

    Args:
        texts: the names of buckets, each once; some may have no row.
        numbers: per row, the place of its bucket in `texts`, as int64.
    """

    texts: pl.Series
    numbers: np.ndarray = field(repr=False)

    @property
    def of_rows(self) -> pl.Series:
        """The name of each row's bucket."""
        return self.texts.gather(self.numbers)


@dataclass(frozen=True, eq=False)
class Placed:
    """Rows with the bucket of each, which is no column of them yet.

    Args:
        rows: signed rows, or their deltas, without `__bucket`.
        buckets: of the rows.
    """

    rows: pl.DataFrame
    buckets: Buckets

    @classmethod
    def of_texts(cls, rows: pl.DataFrame) -> Placed:
        """Take the buckets from the column `__bucket`."""
        names = buckets_in(rows[BUCKET])
        several = rows[BUCKET].cast(pl.Enum(names)).to_physical().to_numpy() if len(names) > 1 else None
        numbers = np.zeros(rows.height, np.uint8) if several is None else several
        return cls(rows.drop(BUCKET), Buckets(pl.Series(names, dtype=pl.String), numbers))

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Bucket -> its number of rows, without the buckets that have none."""
        sizes = np.bincount(self.buckets.numbers, minlength=len(self.buckets.texts))
        return {self.buckets.texts[place]: int(sizes[place]) for place in np.flatnonzero(sizes).tolist()}

    @property
    def named(self) -> pl.DataFrame:
        """The rows, with the column `__bucket`."""
        name = self.buckets.texts[0] if len(self.buckets.texts) == 1 else None
        # One value is not repeated in memory.
        return self.rows.with_columns((self.buckets.of_rows if name is None else pl.lit(name)).alias(BUCKET))

    @property
    def nothing(self) -> pl.DataFrame:
        """None of the rows, with the column `__bucket`."""
        return self.rows.clear().with_columns(pl.Series(BUCKET, [], pl.String))

    def divided(self, group_of: Mapping[str, int]) -> dict[int, pl.DataFrame]:
        """Divide the rows by the group of their bucket, each in the given order, and add the column `__bucket`.

        Args:
            group_of: bucket -> its group, which is not negative; every bucket that has rows.
        """
        if len(set(group_of.values())) == 1:
            return dict.fromkeys(group_of.values(), self.named)
        of_texts = np.array([group_of.get(text, 0) for text in self.buckets.texts], np.int64)
        # Narrow numbers are sorted by their digits, in linear time.
        groups = of_texts.astype(np.min_scalar_type(int(of_texts.max(initial=0))))[self.buckets.numbers]
        order = np.argsort(groups, kind="stable")
        rows = self.rows[order]
        ends = np.cumsum(np.bincount(groups)).tolist()
        named = {group: text for text, group in group_of.items()}
        if len(named) < len(group_of):  # a text for each row; else one for all rows of a group
            rows = rows.with_columns(self.buckets.texts.gather(self.buckets.numbers[order]).alias(BUCKET))
        parts = {group: rows[start:end] for group, (start, end) in enumerate(pairwise([0, *ends])) if start < end}
        if BUCKET in rows.columns:
            return parts
        return {group: part.with_columns(pl.lit(named[group]).alias(BUCKET)) for group, part in parts.items()}


def buckets_of(layout: Layout, plan: FoldPlan, rows: pl.DataFrame) -> Buckets:
    """Return the bucket of each row."""
    texts, numbers = _partition_texts(_partition_values(layout, rows), rows.height)
    parts = [sequence_column(i) for i in range(len(plan.sequence))]
    if lacking := [name for name in parts if rows[name].null_count()]:
        is_event = ~pl.col(KEY_ONLY) if KEY_ONLY in rows.columns else pl.lit(True)
        is_unordered = rows.select(pl.any_horizontal(pl.col(name).is_null() for name in lacking) & is_event)
        texts, numbers = _with_text(texts, numbers, NULL_SEQUENCE, is_unordered.to_series())
    if lacking := [name for name in plan.key_names if rows[name].null_count()]:
        has_null = rows.select(pl.any_horizontal(pl.col(name).is_null() for name in lacking))
        texts, numbers = _with_text(texts, numbers, NULL_KEY, has_null.to_series())
    return Buckets(texts, numbers.to_numpy())


def placed_rows(layout: Layout, plan: FoldPlan, rows: pl.DataFrame) -> Placed:
    """Return rows with the bucket of each."""
    return Placed(rows, buckets_of(layout, plan, rows))


def with_bucket(layout: Layout, plan: FoldPlan, rows: pl.DataFrame) -> pl.DataFrame:
    """Add the column `__bucket`; see `Buckets`."""
    return rows.with_columns(buckets_of(layout, plan, rows).of_rows.alias(BUCKET))


def buckets_in(of_rows: pl.Series) -> list[str]:
    """Return the different names in a column `__bucket`, in no order.

    Mostly all rows are of one, and comparing each with the first takes a tenth of the time of telling them apart.
    """
    if len(of_rows) and (of_rows == of_rows[0]).all(ignore_nulls=False):
        return [of_rows[0]]
    return [str(name) for name in of_rows.unique().to_list()]


def _with_text(texts: pl.Series, numbers: pl.Series, text: str, chosen: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Add a text that belongs to no partition, and give it to the chosen rows."""
    return pl.concat([texts, pl.Series([text])]), numbers.set(chosen, len(texts))


def partition_of(bucket: str) -> Partition:
    """Return the partition of a `__bucket` text; for rows that are left out, it has no values."""
    return Partition(() if bucket in (NULL_KEY, NULL_SEQUENCE) else tuple(json.loads(bucket)))


def _partition_values(layout: Layout, rows: pl.DataFrame) -> list[pl.Series]:
    """Return the values of each field of the partition spec; null where the source column is."""
    values: list[pl.Series] = []
    for one in layout.spec.fields:
        source = layout.schema.find_field(one.source_id)
        if isinstance(one.transform, BucketTransform) and isinstance(source.field_type, IntegerType | LongType):
            values.append(_bucket_numbers(rows[source.name], one.transform.num_buckets))
            continue
        given = rows[source.name].to_arrow().cast(layout.arrow.field(source.name).type)
        transformed = pl.from_arrow(one.transform.pyarrow_transform(source.field_type)(given))
        assert isinstance(transformed, pl.Series)
        # Iceberg stores a day as its number since 1970, and so does Polars physically
        values.append(transformed.to_physical())
    return values


def _bucket_numbers(column: pl.Series, buckets: int) -> pl.Series:
    """Return the buckets of whole numbers; null where there is no number."""
    numbers = pl.Series(bucket_numbers(column.fill_null(0).cast(pl.Int64).to_numpy(), buckets))
    return numbers.set(column.is_null(), None) if column.null_count() else numbers


def _partition_texts(values: Sequence[pl.Series], rows: int) -> tuple[pl.Series, pl.Series]:
    """Return texts of partitions as JSON, and per row the place of its own; null if a value is."""
    if not values:
        return pl.Series(["[]"]), pl.Series(np.zeros(rows, np.int64))
    if all(one.dtype.is_integer() for one in values):
        ranges = [range(*_ends(one)) for one in values]
        if math.prod(one.stop - one.start for one in ranges) * _ROWS_A_TEXT <= rows:
            # A row's text is looked up by number: building a text for each row takes ten times as long.
            texts = pl.Series([f"[{','.join(map(str, one))}]" for one in product(*ranges)])
            return texts, _numbers(values, ranges)
    inside = pl.concat_str([one.cast(pl.String).alias(str(place)) for place, one in enumerate(values)], separator=",")
    each = pl.select(pl.concat_str([pl.lit("["), inside, pl.lit("]")])).to_series()
    texts = each.drop_nulls().unique()
    return texts, each.replace_strict(texts, np.arange(len(texts)), default=None, return_dtype=pl.Int64)


def _ends(values: pl.Series) -> tuple[int, int]:
    """Return the least value, and one more than the greatest."""
    given = values.drop_nulls().to_numpy()
    return (int(given.min()), int(given.max()) + 1) if len(given) else (0, 1)


def _numbers(values: Sequence[pl.Series], ranges: Sequence[range]) -> pl.Series:
    """Number the combinations of values as `itertools.product` orders them; null if a value is."""
    numbers = pl.Series(np.zeros(len(values[0]), np.int64))
    for one, inside in zip(values, ranges, strict=True):
        numbers = numbers * len(inside) + (one.cast(pl.Int64) - inside.start)
    return numbers
