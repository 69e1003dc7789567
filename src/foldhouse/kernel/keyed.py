"""Joins by key, in which NaN is a key like any other value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import polars as pl
import pyarrow as pa

from foldhouse.kernel.canonical import canonical

How = Literal["inner", "left", "semi", "anti"]
_BITS_OF_KEY = "__bits"
_BITS: dict[pl.DataType, tuple[pa.DataType, pl.DataType]] = {
    pl.Float64(): (pa.float64(), pl.Int64()),
    pl.Float32(): (pa.float32(), pl.Int32()),
}


def by_keys(
    rows: pl.DataFrame, others: pl.DataFrame, keys: Sequence[str], how: How, *, nulls_equal: bool = False
) -> pl.DataFrame:
    """Join two frames on columns of the same names; they have no other column in common.

    Args:
        rows: the left frame.
        others: the right frame; its other columns are added by `inner` and `left`.
        keys: the columns to join on.
        how: `inner`, `left`, `semi` or `anti`.
        nulls_equal: whether null is a key too.
    """
    if others.is_empty():  # a first load: nothing is stored
        return _by_none(rows, others, keys, how)
    if len(keys) > 1 or not rows.schema[keys[0]].is_float():
        return rows.join(others, on=list(keys), how=how, nulls_equal=nulls_equal)
    bits = joinable(pl.col(keys[0]), rows.schema[keys[0]]).alias(_BITS_OF_KEY)
    given = others.select(bits, pl.exclude(keys))
    return rows.with_columns(bits).join(given, on=_BITS_OF_KEY, how=how, nulls_equal=nulls_equal).drop(_BITS_OF_KEY)


def joinable(value: pl.Expr, kind: pl.DataType) -> pl.Expr:
    """Return a value that equals another one wherever both are one key: of floats the bits, with one zero and one NaN.

    On one sorted column of floats Polars 2.1 uses a merge join, in which NaN is unequal to itself.
    """
    bits = _BITS.get(kind)
    if bits is None:
        return value
    arrow, whole = bits
    return canonical(value, arrow).cast(kind).reinterpret(dtype=whole)


def _by_none(rows: pl.DataFrame, others: pl.DataFrame, keys: Sequence[str], how: How) -> pl.DataFrame:
    """Join rows with an empty frame."""
    if how == "semi":
        return rows.clear()
    if how == "anti":
        return rows
    beside = {name: kind for name, kind in others.schema.items() if name not in keys}
    joined = rows.with_columns(pl.lit(None, kind).alias(name) for name, kind in beside.items())
    return joined if how == "left" else joined.clear()
