"""The values of a key as a sorted list, stored as a multiset: all values, or as many entries as `limit` values need.

A limited list that is full knows nothing about values after its last entry. Its counts up to that entry are exact, so
a retraction is subtracted there too. The key is recomputed only if fewer than `limit` values are left.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import polars as pl
import pyarrow as pa

from foldhouse.kernel.multiset import (
    COUNT,
    KEY,
    Order,
    added,
    entries,
    falling_short,
    first_of_each,
    known,
    lists,
    map_lists,
    nothing_missing,
)
from foldhouse.kernel.sides import Sequenced, Types, flat, without_maps
from foldhouse.values.fold import VALUE, Accumulator, Algebra, Delta, FieldTypes, Inputs, Merged

_VALUE = pl.col("value")


@dataclass(frozen=True)
class _Kept:
    """The published values: all or only different ones, and how many at most."""

    names: tuple[str, ...]
    distinct: bool
    limit: int | None

    @property
    def order(self) -> Order:
        return Order(self.names, descending=(False,) * len(self.names))

    @property
    def published(self) -> pl.Expr:
        """The number of published values of each entry."""
        first = pl.struct(KEY, _VALUE).is_first_distinct().cast(pl.Int64)
        return first if self.distinct else pl.col(COUNT)

    @property
    def reached(self) -> pl.Expr:
        """The number of published values up to and including each entry of its key."""
        return self.published.cum_sum().over(KEY)


def _fields(kept: _Kept, types: Types, sequence: Sequenced) -> FieldTypes:
    value, *by = types
    if kept.distinct:
        without_maps("collect(distinct=True)", value)
    for kind in by:
        flat("collect, in `by`,", kind)
    entry = pa.struct([*zip(kept.names, [*by, value], strict=True), (COUNT, pa.int64())])
    return {VALUE: pa.list_(value), "counts": pa.list_(entry)}


def _delta(kept: _Kept, row: Inputs) -> dict[str, pl.Expr]:
    value, *by = row.values
    named = [one.alias(name) for name, one in zip(kept.names, [*by, value], strict=True)]
    return {"counts": pl.struct(*named, row.weight.alias(COUNT)).filter(value.is_not_null()).implode()}


def _full(kept: _Kept, stored: pl.DataFrame) -> pl.DataFrame:
    """Return the keys that may have more entries than are stored."""
    if kept.limit is None:
        return stored.select(KEY).clear()
    return stored.filter(kept.reached >= kept.limit).select(KEY).unique()


def _summed(kept: _Kept, stored: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame:
    return known(added(stored, new, kept.order), _full(kept, stored))


def _after(kept: _Kept, stored: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame:
    return _summed(kept, stored, new).filter(pl.col(COUNT) > 0)


def _updated(kept: _Kept, old: pl.Series, new: pl.Series) -> pl.Series:
    left = nothing_missing(_summed(kept, entries(old), entries(new)))
    if kept.limit is not None:
        left = left.filter(kept.reached - kept.published < kept.limit)
    return lists(left, pl.struct(*kept.names, COUNT), len(old))


def _listed(kept: _Kept, counts: pl.Series) -> pl.Series:
    found = entries(counts)
    if kept.distinct:
        found = found.filter(kept.published == 1)
    else:
        times = pl.col(COUNT) if kept.limit is None else pl.col(COUNT).clip(upper_bound=kept.limit)
        found = found.select(KEY, _VALUE.repeat_by(times)).explode("value")
    return lists(found if kept.limit is None else first_of_each(found, kept.limit), _VALUE, len(counts))


def _joint(kept: _Kept, old: Accumulator, delta: Delta) -> pl.Expr:
    return map_lists(partial(_updated, kept), old["counts"], old=old["counts"], new=delta["counts"])


def _merge(kept: _Kept, old: Accumulator, delta: Delta) -> Merged:
    return {VALUE: map_lists(partial(_listed, kept), old[VALUE], counts=delta["joint"]), "counts": delta["joint"]}


def _loses_values(kept: _Kept, old: pl.Series, new: pl.Series) -> pl.Series:
    stored, came = entries(old), entries(new)
    return falling_short(stored, came, len(old), partial(_full, kept), partial(_after, kept))


def _unresolved(kept: _Kept, old: Accumulator, delta: Delta) -> pl.Expr:
    loses = partial(_loses_values, kept)
    return map_lists(loses, pl.lit(False), old=old["counts"], new=delta["counts"])


def collected(*, has_order: bool, distinct: bool, limit: int | None) -> Algebra:
    """Return the algebra of a list of values.

    Args:
        has_order: whether a second argument orders the values.
        distinct: whether each value is listed once.
        limit: the most values in the list.
    """
    kept = _Kept(("by", "value") if has_order else ("value",), distinct, limit)
    return Algebra(
        name="collect",
        fields=partial(_fields, kept),
        delta=partial(_delta, kept),
        merge=partial(_merge, kept),
        joint=partial(_joint, kept),
        unresolved=None if limit is None else partial(_unresolved, kept),
    )
