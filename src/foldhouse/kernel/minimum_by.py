"""The value in the row with the smallest or the largest value of another column.

Rows are compared as pairs `(by, value)`, so no result depends on the order of arrival. Within `value`
null is lowest and NaN greatest. The state stores the `by` of the published row.
"""

from __future__ import annotations

from functools import partial

import polars as pl

from foldhouse.kernel.sides import Sequenced, Types, flat
from foldhouse.values.fold import VALUE, Accumulator, Algebra, Delta, Edge, FieldTypes, Inputs, Merged


def _fields(name: str, types: Types, sequence: Sequenced) -> FieldTypes:
    value, by = types
    return {VALUE: value, "by": flat(f"{name}, in `by`,", by)}


def _delta(is_maximum: bool, row: Inputs) -> dict[str, Edge]:
    value, by = row.values
    ranked = by.is_not_null()
    return {
        "inserted": Edge(_pair(by, value), [by, value], ranked & (row.weight > 0), is_maximum),
        "retracted": Edge(_pair(by, value), [by, value], ranked & (row.weight < 0), is_maximum),
    }


def _pair(by: pl.Expr, value: pl.Expr) -> pl.Expr:
    return pl.struct(by.alias("by"), value.alias("value"))


def _stored(old: Accumulator) -> pl.Expr:
    """Return the published pair; null before the first ranked row."""
    return pl.when(old["by"].is_not_null()).then(_pair(old["by"], old[VALUE]))


def _winner(is_maximum: bool, one: pl.Expr, other: pl.Expr) -> pl.Expr:
    """Return the more extreme of two pairs; if one is null, the other."""
    both = pl.struct(one.alias("one"), other.alias("other"))
    return both.map_batches(partial(_more_extreme, is_maximum), return_dtype=pl.dtype_of(one))


def _more_extreme(is_maximum: bool, pairs: pl.Series) -> pl.Series:
    both = pairs.struct.unnest()
    # Polars cannot compare structs, lists or maps with `<`, but it can rank them.
    ranks = pl.concat([both["one"], both["other"]]).rank("dense")
    one, other = ranks.head(both.height), ranks.tail(both.height)
    is_one = other.is_null() | ((one >= other) if is_maximum else (one <= other)).fill_null(False)
    return both.select(pl.when(is_one).then("one").otherwise("other").alias(pairs.name)).to_series()


def _merge(is_maximum: bool, old: Accumulator, delta: Delta) -> Merged:
    published = _winner(is_maximum, _stored(old), delta["inserted"])
    return {VALUE: published.struct.field("value"), "by": published.struct.field("by")}


def _unresolved(is_maximum: bool, old: Accumulator, delta: Delta) -> pl.Expr:
    gone = delta["retracted"]
    is_lost = _winner(is_maximum, _stored(old), gone).eq_missing(gone)
    is_outdone = _winner(is_maximum, delta["inserted"], gone).eq_missing(delta["inserted"])
    return gone.is_not_null() & is_lost & ~is_outdone


def _extreme_row(name: str, is_maximum: bool) -> Algebra:
    return Algebra(
        name=name,
        fields=partial(_fields, name),
        delta=partial(_delta, is_maximum),
        merge=partial(_merge, is_maximum),
        unresolved=partial(_unresolved, is_maximum),
    )


MINIMUM_BY = _extreme_row("minimum_by", is_maximum=False)
MAXIMUM_BY = _extreme_row("maximum_by", is_maximum=True)
