"""The values of a key as a list: a multiset in order, of which all is held, or what the first `limit` values take.

A limited list that is full knows nothing of what comes after its last entry. Up to there its counts are exact, so that
a retraction is subtracted there too, and asks for a recomputation only where fewer than `limit` values are left.
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
    """What of the values is published: each of them or each different one, the first so many or all."""

    names: tuple[str, ...]
    distinct: bool
    limit: int | None

    @property
    def order(self) -> Order:
        return Order(self.names, descending=(False,) * len(self.names))

    @property
    def published(self) -> pl.Expr:
        """How many published values an entry stands for."""
        first = pl.struct(KEY, _VALUE).is_first_distinct().cast(pl.Int64)
        return first if self.distinct else pl.col(COUNT)

    @property
    def reached(self) -> pl.Expr:
        """How many published values an entry and those before it in its key stand for."""
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


def _full(kept: _Kept, held: pl.DataFrame) -> pl.DataFrame:
    """The keys of which only the first entries are held."""
    if kept.limit is None:
        return held.select(KEY).clear()
    return held.filter(kept.reached >= kept.limit).select(KEY).unique()


def _summed(kept: _Kept, held: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame:
    return known(added(held, new, kept.order), _full(kept, held))


def _after(kept: _Kept, held: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame:
    return _summed(kept, held, new).filter(pl.col(COUNT) > 0)


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
    return lists(found, _VALUE if kept.limit is None else _VALUE.head(kept.limit), len(counts))


def _merge(kept: _Kept, old: Accumulator, delta: Delta) -> Merged:
    counts = map_lists(partial(_updated, kept), old["counts"], old=old["counts"], new=delta["counts"])
    return {VALUE: map_lists(partial(_listed, kept), old[VALUE], counts=counts), "counts": counts}


def _loses_values(kept: _Kept, old: pl.Series, new: pl.Series) -> pl.Series:
    held, came = entries(old), entries(new)
    return falling_short(held, came, len(old), partial(_full, kept), partial(_after, kept))


def _unresolved(kept: _Kept, old: Accumulator, delta: Delta) -> pl.Expr:
    loses = partial(_loses_values, kept)
    return map_lists(loses, pl.lit(False), old=old["counts"], new=delta["counts"])


def collected(*, has_order: bool, distinct: bool, limit: int | None) -> Algebra:
    """The algebra of a list of values.

    Args:
        has_order: whether a second argument orders the values.
        distinct: whether each value stands in the list once.
        limit: how many values the list has at the most.
    """
    kept = _Kept(("by", "value") if has_order else ("value",), distinct, limit)
    return Algebra(
        name="collect",
        fields=partial(_fields, kept),
        delta=partial(_delta, kept),
        merge=partial(_merge, kept),
        unresolved=None if limit is None else partial(_unresolved, kept),
    )
