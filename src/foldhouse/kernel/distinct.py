"""The number of different values: estimated with a sketch, or exact with a multiset."""

from __future__ import annotations

import polars as pl
import pyarrow as pa

from foldhouse.kernel import sketch
from foldhouse.kernel.multiset import COUNT, Order, added, entries, lists, map_lists, nothing_missing
from foldhouse.kernel.rowwise import map_columns
from foldhouse.kernel.sides import Sequenced, Types, flat, inserted, retracted, without_maps
from foldhouse.values.fold import VALUE, Accumulator, Algebra, Delta, FieldTypes, Inputs, Merged


def _distinct_delta(row: Inputs) -> dict[str, pl.Expr]:
    value = row.values[0]
    return {
        "inserted": inserted(row, value).drop_nulls().implode(),
        "retracted": retracted(row, value).is_not_null().any(),
    }


def _distinct_joint(old: Accumulator, delta: Delta) -> pl.Expr:
    return map_columns(sketch.grown, sketch.KEPT, old=old["sketch"], new=delta["inserted"])


def _distinct_merge(old: Accumulator, delta: Delta) -> Merged:
    return {VALUE: delta["joint"].struct.field("value"), "sketch": delta["joint"].struct.field("sketch")}


def _distinct_fields(types: Types, sequence: Sequenced) -> FieldTypes:
    flat("distinct", types[0])
    return {VALUE: pa.int64(), "sketch": pa.binary()}


DISTINCT = Algebra(
    name="distinct",
    fields=_distinct_fields,
    delta=_distinct_delta,
    merge=_distinct_merge,
    unresolved=lambda old, delta: delta["retracted"],
    any_row_decides=True,
    joint=_distinct_joint,
)

_BY_VALUE = Order(("value",), descending=(False,))


def _multiset_fields(types: Types, sequence: Sequenced) -> FieldTypes:
    entry = pa.struct([("value", without_maps("distinct_exact", types[0])), (COUNT, pa.int64())])
    return {VALUE: pa.int64(), "counts": pa.list_(entry)}


def _multiset_delta(row: Inputs) -> dict[str, pl.Expr]:
    value = row.values[0]
    return {"counts": pl.struct(value.alias("value"), row.weight.alias(COUNT)).filter(value.is_not_null()).implode()}


def _multiset_added(old: pl.Series, new: pl.Series) -> pl.Series:
    after = nothing_missing(added(entries(old), entries(new), _BY_VALUE))
    return lists(after, pl.struct("value", COUNT), len(old))


def _multiset_joint(old: Accumulator, delta: Delta) -> pl.Expr:
    return map_lists(_multiset_added, old["counts"], old=old["counts"], new=delta["counts"])


def _multiset_merge(old: Accumulator, delta: Delta) -> Merged:
    return {VALUE: delta["joint"].list.len().cast(pl.Int64), "counts": delta["joint"]}


DISTINCT_EXACT = Algebra(
    name="distinct_exact",
    fields=_multiset_fields,
    delta=_multiset_delta,
    merge=_multiset_merge,
    joint=_multiset_joint,
)
