"""Multisets of many keys at once: the state of folds that publish lists or count values.

A multiset is a list of entries: structs of a value, its `by` if there is one, and a `count` of rows. One frame holds
the multisets of all keys, one entry per line, with the number of the key in `__key`. So one sort and one group-by serve
every key.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa

from foldhouse.errors import InvalidData

KEY, COUNT = "__key", "count"


@dataclass(frozen=True)
class Order:
    """The order of entries, most significant field first.

    Args:
        fields: the fields of an entry except `count`.
        descending: for each field, whether it is sorted from high to low.
        nulls_last: whether null comes after every value; else before.
    """

    fields: tuple[str, ...]
    descending: tuple[bool, ...]
    nulls_last: bool = False

    def sorted(self, entries: pl.DataFrame) -> pl.DataFrame:
        """Sort the entries by key, then in this order."""
        nulls_last = [False, *[self.nulls_last] * len(self.fields)]
        return entries.sort([KEY, *self.fields], descending=[False, *self.descending], nulls_last=nulls_last)


def map_lists(function: Callable[..., pl.Series], like: pl.Expr, **lists: pl.Expr) -> pl.Expr:
    """Apply a function to whole columns of lists.

    Args:
        function: one Series per argument, with one list per key -> one Series of the same length.
        like: an expression with the type of the result.
        lists: the arguments of the function, by name.
    """
    given = [expression.alias(name) for name, expression in lists.items()]

    def mapped(rows: pl.Series) -> pl.Series:
        fields = rows.struct.unnest()
        return function(**{name: fields[name] for name in lists}).alias(rows.name)

    return pl.struct(given).map_batches(mapped, return_dtype=pl.dtype_of(like))


def entries(lists: pl.Series) -> pl.DataFrame:
    """Return the entries of lists of structs, one per line: `__key`, then the fields. Null is an empty list."""
    numbered = pl.DataFrame([pl.int_range(len(lists), dtype=pl.UInt32, eager=True).alias(KEY), lists.alias("__list")])
    # explode makes a line of nulls from an empty list.
    return numbered.filter(pl.col("__list").list.len() > 0).explode("__list").unnest("__list")


def lists(of: pl.DataFrame, value: pl.Expr, keys: int) -> pl.Series:
    """Return one list of `value` per key, in the order of the lines; empty for a key without lines.

    Args:
        of: lines with `__key`, sorted by it.
        value: an expression that gives a value for each line.
        keys: the number of keys.
    """
    sizes = np.bincount(of[KEY].to_numpy(), minlength=keys)
    ends = np.concatenate([np.zeros(1, np.int64), sizes.cumsum(dtype=np.int64)])
    values = of.select(value.alias("__value")).to_series().rechunk()
    # The lines of a key are beside one another, so its list is a part of the column: nothing is grouped or copied.
    found = pl.from_arrow(pa.LargeListArray.from_arrays(pa.array(ends), values.to_arrow()))
    assert isinstance(found, pl.Series)
    return found.cast(pl.List(values.dtype)).alias("__list")


def first_of_each(of: pl.DataFrame, most: int) -> pl.DataFrame:
    """Return the first lines of each key, at most so many; the lines are sorted by `__key`."""
    keys = of[KEY].to_numpy()
    return of.filter(pl.Series(np.arange(len(keys)) - np.searchsorted(keys, keys) < most))


def added(stored: pl.DataFrame, new: pl.DataFrame, order: Order) -> pl.DataFrame:
    """Merge entries with changes, in order: each entry once with its summed count, which may be zero or negative.

    Returns:
        The fields of `order`, `count`, and `is_stored`: whether the entry was stored before.
    """
    parts = [stored.with_columns(is_stored=pl.lit(True)), new.with_columns(is_stored=pl.lit(False))]
    both = pl.concat([part.select(KEY, *order.fields, COUNT, "is_stored") for part in parts])
    return order.sorted(both.group_by([KEY, *order.fields]).agg(pl.col(COUNT).sum(), pl.col("is_stored").any()))


def known(summed: pl.DataFrame, full: pl.DataFrame) -> pl.DataFrame:
    """Drop entries beyond the last stored one of a full list: how many rows they have is unknown.

    Args:
        summed: the result of `added`.
        full: the keys (`__key`) of which only the first entries are stored.
    """
    if full.is_empty():
        return summed
    placed = summed.with_row_index("place").join(
        full.with_columns(is_full=pl.lit(True)), on=KEY, how="left", maintain_order="left"
    )
    is_beyond = pl.col("is_full") & (pl.col("place") > pl.col("place").filter("is_stored").max().over(KEY))
    return placed.filter(~is_beyond.fill_null(False)).select(summed.columns)


def nothing_missing(summed: pl.DataFrame) -> pl.DataFrame:
    """Return the entries with a positive count.

    Args:
        summed: the result of `added` or `known`.

    Raises:
        InvalidData: an entry is retracted more often than it was folded.
    """
    missing = summed.filter(pl.col(COUNT) < 0)
    if not missing.is_empty():
        raise InvalidData(
            f"more rows with the value {missing['value'][0]!r} are retracted than were folded; `foldhouse rebuild` "
            "folds the table again"
        )
    return summed.filter(pl.col(COUNT) > 0)


def falling_short(
    stored: pl.DataFrame,
    new: pl.DataFrame,
    keys: int,
    full: Callable[[pl.DataFrame], pl.DataFrame],
    after: Callable[[pl.DataFrame, pl.DataFrame], pl.DataFrame],
) -> pl.Series:
    """Whether a full list loses so many values that unknown ones must follow, so that its key must be recomputed.

    Args:
        stored: the stored entries of all keys.
        new: the changes.
        keys: the number of keys.
        full: entries -> the keys (`__key`) whose list they fill.
        after: (stored, new) -> the known entries afterwards.

    Returns:
        A boolean per key.
    """
    losing = full(stored).join(new.filter(pl.col(COUNT) < 0), on=KEY, how="semi")
    left = after(*(part.join(losing, on=KEY, how="semi", maintain_order="left") for part in (stored, new)))
    short = losing.join(full(left), on=KEY, how="anti")[KEY]
    return pl.int_range(keys, dtype=pl.UInt32, eager=True).is_in(short.implode())
