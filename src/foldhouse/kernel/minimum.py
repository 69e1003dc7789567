"""The smallest and the largest value. A retraction matters only if it removes the extreme value."""

from __future__ import annotations

from functools import partial

import polars as pl
import pyarrow as pa

from foldhouse.kernel.sides import flat
from foldhouse.values.fold import VALUE, Accumulator, Algebra, Delta, Inputs, Merged


def _extreme_delta(is_maximum: bool, row: Inputs) -> dict[str, pl.Expr]:
    def extreme(values: pl.Expr) -> pl.Expr:
        # NaN is greater than every number, as in Spark; Polars' max() leaves it out.
        largest = values.nan_max() if pa.types.is_floating(row.types[0]) else values.max()
        return largest if is_maximum else values.min()

    value = row.values[0]
    # A null is no extreme. Polars' streaming engine computes this in half the time of a filter.
    added, removed = (pl.when(side).then(value) for side in (row.weight > 0, row.weight < 0))
    return {"inserted": extreme(added), "retracted": extreme(removed)}


def _reaches(is_maximum: bool, value: pl.Expr, other: pl.Expr) -> pl.Expr:
    """Whether `value` is as extreme as `other`, or more so; false where either is null."""
    return ((value >= other) if is_maximum else (value <= other)).fill_null(False)


def _extreme_merge(is_maximum: bool, old: Accumulator, delta: Delta) -> Merged:
    new, stored = delta["inserted"], old[VALUE]
    return {VALUE: pl.when(stored.is_null() | _reaches(is_maximum, new, stored)).then(new).otherwise(stored)}


def _extreme_unresolved(is_maximum: bool, old: Accumulator, delta: Delta) -> pl.Expr:
    lost = _reaches(is_maximum, delta["retracted"], old[VALUE])
    return lost & ~_reaches(is_maximum, delta["inserted"], delta["retracted"])


def _extreme(name: str, is_maximum: bool) -> Algebra:
    return Algebra(
        name=name,
        fields=lambda types, sequence: {VALUE: flat(name, types[0])},
        delta=partial(_extreme_delta, is_maximum),
        merge=partial(_extreme_merge, is_maximum),
        unresolved=partial(_extreme_unresolved, is_maximum),
        streams=True,
    )


MINIMUM = _extreme("minimum", is_maximum=False)
MAXIMUM = _extreme("maximum", is_maximum=True)
