"""Deltas that Spark adds up by key before it hands rows over: a row for each key crosses, and not one for each event.

    deltas_of(plan, rows) == read_sums(plan, summed_on_spark(plan, rows).toArrow()), if all rows are added ones

Only folds take part whose delta is the same whoever computes it, in any order: counts, sums of integers and decimals,
and extremes. Sums of floats, sketches and multisets are those of the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import polars as pl
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from foldhouse.kernel.canonical import canonical, holds_floats
from foldhouse.kernel.deltas import DELTA, SUMMED
from foldhouse.kernel.plan import FoldPlan, Unit, argument_column, polars_type
from foldhouse.refresh.rows.texts import Texts
from foldhouse.spark.named import literal

_HALF_BITS = 32
_MOST_SUMMED_DIGITS = 28
"""A sum has ten more digits, and Spark's decimals have 38: ten billion values cannot overflow it."""


@dataclass(frozen=True, eq=False)
class _Part:
    """One column of a delta: the aggregates that Spark computes for it, and how it is made from their values."""

    output: str
    label: str
    aggregates: Sequence[Column] = field(repr=False)
    made: Callable[..., pl.Expr] = field(repr=False)


def can_be_summed(plan: FoldPlan) -> bool:
    """Whether Spark computes the deltas of a plan that the kernel computes, from added rows."""
    if plan.sequence or plan.delete_argument is not None or not plan.counts_rows:
        return False
    keys = all(_is_simple(kind) and not holds_floats(kind) for _, kind in plan.keys)
    return keys and all(_can_be_summed(plan, unit) for unit in plan.units)


def _can_be_summed(plan: FoldPlan, unit: Unit) -> bool:
    types = [plan.argument_types[i] for i in unit.arguments]
    name = unit.algebra.name
    if name == "count":
        return True
    if not all(map(_is_simple, types)):
        return False
    if name in ("total", "average"):
        is_short = pa.types.is_decimal(types[0]) and types[0].precision <= _MOST_SUMMED_DIGITS
        return bool(pa.types.is_integer(types[0]) or is_short)
    by_another = name in ("minimum_by", "maximum_by") and not any(map(holds_floats, types))
    return by_another or name in ("minimum", "maximum")


def _is_simple(kind: pa.DataType) -> bool:
    """Whether Spark and Polars compare values of a type alike, and neither loses anything on the way."""
    is_number = pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_floating(kind)
    is_time = pa.types.is_date(kind) or pa.types.is_timestamp(kind)
    return bool(is_number or is_time or pa.types.is_boolean(kind) or pa.types.is_string(kind))


def are_collated(rows: DataFrame) -> bool:
    """Whether a text is compared by the rules of a language, which the kernel does not know."""
    return any("collate" in kind for _, kind in rows.dtypes)


def summed_on_spark(plan: FoldPlan, rows: DataFrame) -> DataFrame:
    """Return keys, the number of their rows and their aggregates, as numbered columns, for `read_sums`.

    Args:
        plan: a plan that `can_be_summed`.
        rows: added rows, without a text that is collated.
    """
    keys = [rows[literal(name)].alias(f"k{place}") for place, name in enumerate(plan.key_names)]
    made = [one for part in _parts(plan) for one in part.aggregates]
    numbered = [one.alias(f"c{place}") for place, one in enumerate(made)]
    return rows.groupBy(*keys).agg(F.count(F.lit(1)).alias("n"), *numbered)


def texts_of_sums(plan: FoldPlan, table: str) -> Texts:
    """Return the columns of `summed_on_spark` that must be UTF-8: keys and extremes.

    A text that is no extreme is not stored. Looking at it in Spark would cost a fifth of adding up.
    """
    keys = {f"k{place}": name for place, name in enumerate(plan.key_names)}
    found = {label: f"the key {name!r}" for label, name in keys.items()}
    made = [part.output for part in _parts(plan) for _ in part.aggregates]
    return Texts(found | {f"c{place}": f"the column {output!r}" for place, output in enumerate(made)}, keys, table)


def read_sums(plan: FoldPlan, handed: pl.DataFrame) -> pl.DataFrame:
    """Return the deltas of the kernel, with the keys, from the rows of `summed_on_spark`."""
    columns = [pl.col(f"k{place}").cast(polars_type(kind)).alias(name) for place, (name, kind) in enumerate(plan.keys)]
    columns.append(pl.col("n").cast(pl.Int64).alias(SUMMED))
    place = 0
    for part in _parts(plan):
        given = [pl.col(f"c{place + i}") for i in range(len(part.aggregates))]
        columns.append(part.made(*given).alias(part.label))
        place += len(given)
    return handed.select(columns)


def _parts(plan: FoldPlan) -> Iterator[_Part]:
    for unit in plan.units:
        label, output = f"{DELTA}{unit.name}_", unit.outputs[0]
        name, types = unit.algebra.name, [plan.argument_types[i] for i in unit.arguments]
        values = [F.col(argument_column(i)) for i in unit.arguments]
        if name in ("count", "total", "average"):
            counted = F.count(values[0]) if values else F.count(F.lit(1))
            yield _Part(output, f"{label}count", [counted], lambda count: count.cast(pl.Int64))
        if name in ("total", "average"):
            adding = _decimals if pa.types.is_decimal(types[0]) else _integers
            yield adding(output, label, values[0], types[0])
        if name in ("minimum", "maximum"):
            extreme = F.min(values[0]) if name == "minimum" else F.max(values[0])
            yield from _sides(output, label, extreme, polars_type(types[0]), partial(canonical, kind=types[0]))
        if name in ("minimum_by", "maximum_by"):
            value, by = values
            pair = F.when(by.isNotNull(), F.struct(by.alias("by"), value.alias("value")))
            kind = pl.Struct({"by": polars_type(types[1]), "value": polars_type(types[0])})
            yield from _sides(
                output, label, F.min(pair) if name == "minimum_by" else F.max(pair), kind, lambda one: one
            )


def _integers(output: str, label: str, value: Column, kind: pa.DataType) -> _Part:
    """Add up the upper and the lower halves of integers, neither of which can overflow a long."""
    whole = value.cast("long")
    halves = [F.sum(F.shiftright(whole, _HALF_BITS)), F.sum(whole.bitwiseAND(F.lit(2**_HALF_BITS - 1)))]

    def made(upper: pl.Expr, lower: pl.Expr) -> pl.Expr:
        shifted = upper.fill_null(0).cast(pl.Int128) * pl.lit(2**_HALF_BITS, pl.Int128)
        return shifted + lower.fill_null(0).cast(pl.Int128)

    return _Part(output, f"{label}sum", halves, made)


def _decimals(output: str, label: str, value: Column, kind: pa.DataType) -> _Part:
    wide = pl.Decimal(38, kind.scale)
    return _Part(output, f"{label}sum", [F.sum(value)], lambda total: total.cast(wide).fill_null(pl.lit(0).cast(wide)))


def _sides(
    output: str, label: str, extreme: Column, kind: pl.DataType, made: Callable[[pl.Expr], pl.Expr]
) -> Iterator[_Part]:
    yield _Part(output, f"{label}inserted", [extreme], lambda one: made(one.cast(kind)))
    yield _Part(output, f"{label}retracted", [], lambda: pl.lit(None, kind))
