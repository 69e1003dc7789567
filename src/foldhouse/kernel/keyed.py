"""Rows brought together by their keys, where NaN is one key as any other value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import polars as pl

How = Literal["inner", "left", "semi", "anti"]
_CONSTANT = "__constant"


def by_keys(
    rows: pl.DataFrame, others: pl.DataFrame, keys: Sequence[str], how: How, *, nulls_equal: bool = False
) -> pl.DataFrame:
    """Join two frames on columns of the same names; they have no other column in common.

    Args:
        rows: the frame whose rows are kept, with `left`, or kept where they are wanted.
        others: the frame that says which, or what stands beside.
        keys: the columns to join on.
        how: `inner`, `left`, `semi` or `anti`.
        nulls_equal: whether null is a key, too.
    """
    if others.is_empty():  # a first load: nothing is held
        return _by_none(rows, others, keys, how)
    if len(keys) > 1 or not rows.schema[keys[0]].is_float():
        return rows.join(others, on=list(keys), how=how, nulls_equal=nulls_equal)
    # On one sorted column of floats Polars 2.1 merges, and takes NaN for unequal to itself; on two columns it does not.
    constant = pl.lit(0, pl.UInt8).alias(_CONSTANT)
    rows, others = rows.with_columns(constant), others.with_columns(constant)
    joined = rows.join(others, on=[*keys, _CONSTANT], how=how, nulls_equal=nulls_equal)
    return joined.drop(_CONSTANT)


def _by_none(rows: pl.DataFrame, others: pl.DataFrame, keys: Sequence[str], how: How) -> pl.DataFrame:
    """Rows joined with a frame that has none."""
    if how == "semi":
        return rows.clear()
    if how == "anti":
        return rows
    beside = {name: kind for name, kind in others.schema.items() if name not in keys}
    joined = rows.with_columns(pl.lit(None, kind).alias(name) for name, kind in beside.items())
    return joined if how == "left" else joined.clear()
