"""Counts, totals and averages. All subtract, also of floats, because no intermediate sum is rounded."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import polars as pl
import pyarrow as pa

from foldhouse.errors import DefinitionError
from foldhouse.kernel import limbs
from foldhouse.kernel.means import mean
from foldhouse.kernel.rowwise import map_columns
from foldhouse.kernel.sides import MAX_DIGITS, Sequenced, Types
from foldhouse.values.fold import VALUE, Accumulator, Algebra, Delta, ExactSum, Field, FieldTypes, Inputs, Merged


def _count_delta(row: Inputs) -> dict[str, pl.Expr]:
    counted = pl.when(row.values[0].is_not_null()).then(row.weight).otherwise(0) if row.values else row.weight
    return {"count": counted.sum()}


COUNT = Algebra(
    name="count",
    fields=lambda types, sequence: {VALUE: pa.int64()},
    delta=_count_delta,
    merge=lambda old, delta: {VALUE: old[VALUE].fill_null(0) + delta["count"]},
    adds_up=True,
    streams=True,
)


def total_type(argument: pa.DataType) -> pa.DataType:
    """The type of a sum: long, decimal with ten more digits (as Spark's), or double.

    Raises:
        DefinitionError: the argument is not a number.
    """
    if pa.types.is_integer(argument):
        return pa.int64()
    if pa.types.is_decimal(argument):
        return pa.decimal128(min(MAX_DIGITS, argument.precision + 10), argument.scale)
    if pa.types.is_floating(argument):
        return pa.float64()
    raise DefinitionError(f"total and average need a number; the argument is {argument}")


def _total_delta(row: Inputs) -> dict[str, pl.Expr]:
    given = row.values[0].is_not_null()
    return {"sum": row.values[0].sum(), "count": pl.when(given).then(row.weight).otherwise(0).sum()}


def _summed(stored: pl.Expr, counted: pl.Expr, delta: Delta) -> pl.Expr:
    """The new sum, in the delta's wide type; what does not fit the published type fails where it is narrowed."""
    added = delta["sum"]
    # Without rows the sum is null, not 0, as in SQL.
    return pl.when(counted != 0).then(pl.when(stored.is_null()).then(added).otherwise(added + stored))


def _total_merge(old: Accumulator, delta: Delta) -> Merged:
    counted = old["count"].fill_null(0) + delta["count"]
    return {VALUE: _summed(old[VALUE], counted, delta), "count": counted}


def _total_fields(types: Types, sequence: Sequenced) -> FieldTypes:
    return {VALUE: total_type(types[0]), "count": pa.int64()}


def _floats_delta(row: Inputs) -> dict[str, pl.Expr | ExactSum]:
    value = row.values[0]
    counted = pl.when(value.is_not_null()).then(row.weight).otherwise(0).sum()
    return {"sum": ExactSum(value, row.weight), "count": counted}


def _floats_joint(sum_field: Field, old: Accumulator, delta: Delta) -> pl.Expr:
    """Add the stored sum and the delta exactly."""
    stored = pl.struct(old[sum_field].alias("value"), old["rest"].alias("rest"), old["more"].alias("more"))
    return map_columns(limbs.added, limbs.KEPT, stored=stored, came=delta["sum"])


def _floats_merge(sum_field: Field, old: Accumulator, delta: Delta) -> Merged:
    counted = old["count"].fill_null(0) + delta["count"]
    kept = {name: delta["joint"].struct.field(name) for name in ("value", "rest", "more")}
    given = {name: pl.when(counted != 0).then(field) for name, field in kept.items()}
    return {sum_field: given["value"], "rest": given["rest"], "more": given["more"], "count": counted}


def _with_rest(algebra: Algebra, sum_field: Field) -> Algebra:
    """Return the same fold for floats: it also stores the rounding error of the sum in this field."""

    def fields(types: Types, sequence: Sequenced) -> FieldTypes:
        return {**algebra.fields(types, sequence), "rest": pa.float64(), "more": pa.list_(pa.float64())}

    return replace(
        algebra,
        fields=fields,
        delta=_floats_delta,
        merge=partial(_floats_merge, sum_field),
        joint=partial(_floats_joint, sum_field),
        is_additive=False,
        adds_up=False,
    )


def _by_type(whole: Algebra, floats: Algebra, types: Types) -> Algebra:
    return floats if pa.types.is_floating(types[0]) else whole


_WHOLE_TOTAL = Algebra(
    "total", _total_fields, _total_delta, _total_merge, is_additive=True, adds_up=True, streams=True, version=2
)
TOTAL = replace(_WHOLE_TOTAL, specialised=partial(_by_type, _WHOLE_TOTAL, _with_rest(_WHOLE_TOTAL, VALUE)))


def _average_fields(types: Types, sequence: Sequenced) -> FieldTypes:
    summed = total_type(types[0])
    mean = pa.float64()
    if pa.types.is_decimal(types[0]):
        mean = pa.decimal128(min(MAX_DIGITS, types[0].precision + 4), min(MAX_DIGITS, types[0].scale + 4))
    return {VALUE: mean, "sum": summed, "count": pa.int64()}


def _average_merge(old: Accumulator, delta: Delta) -> Merged:
    counted = old["count"].fill_null(0) + delta["count"]
    summed = _summed(old["sum"], counted, delta)
    return {VALUE: mean(summed, counted, old[VALUE]), "sum": summed, "count": counted}


def _floats_average_merge(old: Accumulator, delta: Delta) -> Merged:
    merged = _floats_merge("sum", old, delta)
    means = map_columns(limbs.mean, pl.Float64(), sums=delta["joint"], counts=merged["count"])
    return {VALUE: pl.when(merged["count"] != 0).then(means), **merged}


_WHOLE_AVERAGE = Algebra(
    "average", _average_fields, _total_delta, _average_merge, is_additive=True, adds_up=True, streams=True, version=2
)
_FLOATS_AVERAGE = replace(_with_rest(_WHOLE_AVERAGE, "sum"), merge=_floats_average_merge)
AVERAGE = replace(_WHOLE_AVERAGE, specialised=partial(_by_type, _WHOLE_AVERAGE, _FLOATS_AVERAGE))
