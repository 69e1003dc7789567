"""Values with the number of their rows, many keys at once: what the folds that publish lists or count values keep.

A multiset is a list of entries, structs of a value (and what it is ordered by) and a `count`. Here many of them stand
in one frame, an entry a line, with the number of the key in `__key`; so one sort and one group-by serve every key.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from foldhouse.errors import InvalidData

KEY, COUNT = "__key", "count"


@dataclass(frozen=True)
class Order:
    """What entries are sorted by, most significant first: the fields that make an entry, and in which direction.

    Args:
        fields: of the entry, all but `count`.
        descending: which of them from high to low.
        nulls_last: whether a null comes after every value, or before.
    """

    fields: tuple[str, ...]
    descending: tuple[bool, ...]
    nulls_last: bool = False

    def sorted(self, entries: pl.DataFrame) -> pl.DataFrame:
        """The entries key by key, each key's in this order."""
        nulls_last = [False, *[self.nulls_last] * len(self.fields)]
        return entries.sort([KEY, *self.fields], descending=[False, *self.descending], nulls_last=nulls_last)


def map_lists(function: Callable[..., pl.Series], like: pl.Expr, **lists: pl.Expr) -> pl.Expr:
    """Apply a function to whole columns of lists.

    Args:
        function: one Series an argument, of a list a key -> one Series of the same length.
        like: an expression that has the type of the answer.
        lists: what the function is given, by name.
    """
    given = [expression.alias(name) for name, expression in lists.items()]

    def mapped(rows: pl.Series) -> pl.Series:
        fields = rows.struct.unnest()
        return function(**{name: fields[name] for name in lists}).alias(rows.name)

    return pl.struct(given).map_batches(mapped, return_dtype=pl.dtype_of(like))


def entries(lists: pl.Series) -> pl.DataFrame:
    """The entries of lists of structs, a line each: `__key`, then the struct's fields. Null is an empty list."""
    numbered = pl.DataFrame([pl.int_range(len(lists), dtype=pl.UInt32, eager=True).alias(KEY), lists.alias("__list")])
    return numbered.filter(pl.col("__list").list.len() > 0).explode("__list").unnest("__list")


def lists(of: pl.DataFrame, value: pl.Expr, keys: int) -> pl.Series:
    """One list a key of `value`, in the order of the lines; an empty list where a key has no line.

    Args:
        of: lines with `__key`, sorted by it.
        value: over the lines.
        keys: how many there are.
    """
    gathered = of.lazy().group_by(KEY, maintain_order=True).agg(value.alias("__list"))
    every = pl.LazyFrame(pl.int_range(keys, dtype=pl.UInt32, eager=True).alias(KEY))
    joined = every.join(gathered, on=KEY, how="left", maintain_order="left").collect()["__list"]
    return joined.fill_null(pl.Series([[]], dtype=joined.dtype))


def added(held: pl.DataFrame, new: pl.DataFrame, order: Order) -> pl.DataFrame:
    """Entries with what came and went, in order: each once, its counts summed, zeros and what is below left in.

    Returns:
        The fields of `order`, `count`, and `is_held`: whether the entry is among those held before.
    """
    parts = [held.with_columns(is_held=pl.lit(True)), new.with_columns(is_held=pl.lit(False))]
    both = pl.concat([part.select(KEY, *order.fields, COUNT, "is_held") for part in parts])
    return order.sorted(both.group_by([KEY, *order.fields]).agg(pl.col(COUNT).sum(), pl.col("is_held").any()))


def known(summed: pl.DataFrame, full: pl.DataFrame) -> pl.DataFrame:
    """What can be said where only the first entries of a key are held: nothing of what comes after the last of them.

    Args:
        summed: as `added` gives it.
        full: the keys (`__key`) of which only the first entries are held.
    """
    if full.is_empty():
        return summed
    placed = summed.with_row_index("place").join(
        full.with_columns(is_full=pl.lit(True)), on=KEY, how="left", maintain_order="left"
    )
    is_beyond = pl.col("is_full") & (pl.col("place") > pl.col("place").filter("is_held").max().over(KEY))
    return placed.filter(~is_beyond.fill_null(False)).select(summed.columns)


def nothing_missing(summed: pl.DataFrame) -> pl.DataFrame:
    """The entries that are left, where all were known.

    Args:
        summed: as `added` and `known` give it.

    Raises:
        InvalidData: an entry was taken away more often than it was there.
    """
    missing = summed.filter(pl.col(COUNT) < 0)
    if not missing.is_empty():
        raise InvalidData(
            f"more rows with the value {missing['value'][0]!r} are taken away than were folded; `foldhouse rebuild` "
            "folds the table anew"
        )
    return summed.filter(pl.col(COUNT) > 0)


def falling_short(
    held: pl.DataFrame,
    new: pl.DataFrame,
    keys: int,
    full: Callable[[pl.DataFrame], pl.DataFrame],
    after: Callable[[pl.DataFrame, pl.DataFrame], pl.DataFrame],
) -> pl.Series:
    """Whether a list was full and loses so much that it has room again: what belongs there is not known.

    Args:
        held: the entries of all keys, as they are held.
        new: what comes and goes.
        keys: how many there are.
        full: entries -> the keys (`__key`) whose list they fill.
        after: (held, new) -> the entries afterwards, as far as they are known.

    Returns:
        A boolean a key.
    """
    losing = full(held).join(new.filter(pl.col(COUNT) < 0), on=KEY, how="semi")
    left = after(*(part.join(losing, on=KEY, how="semi", maintain_order="left") for part in (held, new)))
    short = losing.join(full(left), on=KEY, how="anti")[KEY]
    return pl.int_range(keys, dtype=pl.UInt32, eager=True).is_in(short.implode())
