"""The best rows of a key. While the list is not full, it has all rows of the key."""

from __future__ import annotations

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
)
from foldhouse.kernel.sides import Sequenced, Types, flat
from foldhouse.values.fold import VALUE, Accumulator, Algebra, Delta, FieldTypes, Inputs, Merged


def _order(names: tuple[str, ...]) -> Order:
    """Order rows by the last field from high to low, then by the others; fields are named by their place."""
    fields = _places(names)
    return Order((fields[-1], *fields[:-1]), descending=(True, *[False] * (len(fields) - 1)), nulls_last=True)


def _places(names: tuple[str, ...]) -> list[str]:
    return [f"field{place}" for place in range(len(names))]


def _fields(names: tuple[str, ...], types: Types, sequence: Sequenced) -> FieldTypes:
    flat("top, in `by`,", types[-1])
    return {VALUE: pa.list_(pa.struct(list(zip(names, types, strict=True))))}


def _delta(names: tuple[str, ...], row: Inputs) -> dict[str, pl.Expr]:
    named = [value.alias(place) for place, value in zip(_places(names), row.values, strict=True)]
    return {"changes": pl.struct(*named, row.weight.alias(COUNT)).filter(row.values[-1].is_not_null()).implode()}


def _stored(names: tuple[str, ...], published: pl.Series) -> pl.DataFrame:
    return entries(published.list.eval(_by_place(names))).with_columns(pl.lit(1, pl.Int64).alias(COUNT))


def _by_place(names: tuple[str, ...]) -> pl.Expr:
    """Return a published row with its fields named by their place, because a row may have a field of any name."""
    fields = [pl.element().struct.field(name).alias(place) for name, place in zip(names, _places(names), strict=True)]
    return pl.struct(fields)


def _after(n: int, names: tuple[str, ...], stored: pl.DataFrame, changes: pl.DataFrame) -> pl.DataFrame:
    """Return the known rows of each key after the changes; there may be more rows equal to the last of a full list."""
    return known(added(stored, changes, _order(names)), _full(n, stored)).filter(pl.col(COUNT) > 0)


def _full(n: int, stored: pl.DataFrame) -> pl.DataFrame:
    return stored.group_by(KEY).agg(pl.col(COUNT).sum()).filter(pl.col(COUNT) >= n).select(KEY)


def _updated(n: int, names: tuple[str, ...], old: pl.Series, changes: pl.Series) -> pl.Series:
    left = _after(n, names, _stored(names, old), entries(changes))
    fields = _places(names)
    rows = left.select(KEY, pl.struct(fields).repeat_by(pl.col(COUNT).clip(upper_bound=n)).alias("row")).explode("row")
    renamed = pl.struct(
        pl.col("row").struct.field(place).alias(name) for place, name in zip(fields, names, strict=True)
    )
    return lists(first_of_each(rows, n), renamed, len(old))


def _loses_rows(n: int, names: tuple[str, ...], old: pl.Series, changes: pl.Series) -> pl.Series:
    stored, came = _stored(names, old), entries(changes)
    return falling_short(stored, came, len(old), partial(_full, n), partial(_after, n, names))


def _merge(n: int, names: tuple[str, ...], old: Accumulator, delta: Delta) -> Merged:
    stored = old[VALUE]
    return {VALUE: map_lists(partial(_updated, n, names), stored, old=stored, changes=delta["changes"])}


def _unresolved(n: int, names: tuple[str, ...], old: Accumulator, delta: Delta) -> pl.Expr:
    loses = partial(_loses_rows, n, names)
    return map_lists(loses, pl.lit(False), old=old[VALUE], changes=delta["changes"])


def best(n: int, names: tuple[str, ...]) -> Algebra:
    """Return the algebra of the `n` rows with the largest last argument, as structs of these field names."""
    return Algebra(
        name="top",
        fields=partial(_fields, names),
        delta=partial(_delta, names),
        merge=partial(_merge, n, names),
        unresolved=partial(_unresolved, n, names),
    )
