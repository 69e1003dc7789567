"""The stock folds: each a function that makes a value, and the algebra behind it.

| fold | insert | retraction |
|---|---|---|
| `count`, `total`, `average`, `distinct_exact` | merge | merge (subtract) |
| `minimum`, `maximum` | merge | recompute the key when the retracted value is the extreme one |
| `latest`, `earliest` | merge | recompute the key when the retracted row is the one published |
| `distinct` (HLL sketch) | merge | recompute the key |
| `top` | merge | recompute the key when the row is in a full list |

A null argument is left out of every fold but `latest` and `earliest`, as SQL's aggregates do; a column without any
value is null.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from decimal import ROUND_HALF_UP, Decimal, localcontext
from functools import partial
from typing import Any

import polars as pl
import pyarrow as pa

from foldhouse.errors import DefinitionError
from foldhouse.kernel import sketch
from foldhouse.kernel.rowwise import map_rows
from foldhouse.values.fold import Algebra, ColumnFold, Expression, Fields, Inputs

__all__ = ["average", "count", "distinct", "distinct_exact", "earliest", "latest", "maximum", "minimum", "top", "total"]

_Types = list[pa.DataType]
_Sequence = Mapping[str, pa.DataType]
_MAX_DIGITS = 38


def count(value: Expression | None = None) -> ColumnFold:
    """How many rows, or how many rows where `value` is not null. A long; merges and subtracts."""
    return ColumnFold(_COUNT, () if value is None else (value,))


def total(value: Expression) -> ColumnFold:
    """The sum of a number.

    Integers give a long and decimals keep their scale with ten more digits, both exactly: what does not fit is an
    error, never a wrap. Floats give a double whose last digits depend on the order of arrival.
    """
    return ColumnFold(_TOTAL, (value,))


def average(value: Expression) -> ColumnFold:
    """The mean of a number: a double, or for decimals an exact quotient with four more digits, rounded half up."""
    return ColumnFold(_AVERAGE, (value,))


def minimum(value: Expression) -> ColumnFold:
    """The smallest value."""
    return ColumnFold(_MINIMUM, (value,))


def maximum(value: Expression) -> ColumnFold:
    """The largest value."""
    return ColumnFold(_MAXIMUM, (value,))


def latest(value: Expression) -> ColumnFold:
    """The value in the row that is last by the table's `sequence_by`, null or not.

    All columns of a table that are folded by `latest` come from one and the same row. Ties of the sequence go to the
    greater row by value, so that no answer depends on the order of arrival.
    """
    return ColumnFold(_LATEST, (value,))


def earliest(value: Expression) -> ColumnFold:
    """The value in the row that is first by the table's `sequence_by`; the mirror of `latest`."""
    return ColumnFold(_EARLIEST, (value,))


def distinct(value: Expression) -> ColumnFold:
    """About how many different values: an HLL sketch of 4,096 registers, 1.6 % standard error. A long.

    The answer depends on the set of values alone, not on the order or the batches in which they came.
    Source: Heule et al. 2013 for the sketch (Apache DataSketches), Ertl 2017 for the estimate.
    """
    return ColumnFold(_DISTINCT, (value,))


def distinct_exact(value: Expression) -> ColumnFold:
    """Exactly how many different values. A long; its state holds every value of a key with its number of rows."""
    return ColumnFold(_DISTINCT_EXACT, (value,))


def top(n: int, *values: str, by: str) -> ColumnFold:
    """The `n` rows with the largest `by`, best first, as a list of structs `(*values, by)`.

        top(10, "stock_code", by="units")   -> [{stock_code: "85123A", units: 454}, ...]

    Ties go to the smaller `values`.

    Args:
        n: how many rows at the most.
        values: columns of the rows to publish.
        by: the column that ranks; rows without it are left out.

    Raises:
        DefinitionError: `n` below 1, or no values.
    """
    if n < 1 or not values:
        raise DefinitionError(
            f"top({n}, {', '.join(map(repr, values))}) needs n of at least 1 and a column beside `by`"
        )
    names = (*values, by)
    algebra = Algebra(
        name="top",
        fields=partial(_top_fields, names),
        delta=partial(_top_delta, n, names),
        merge=partial(_top_merge, n, names),
        unresolved=partial(_top_unresolved, n, names),
    )
    return ColumnFold(algebra, names, options=(("n", n), ("by", by)))


def _flat(fold: str, kind: pa.DataType) -> pa.DataType:
    if pa.types.is_nested(kind):
        raise DefinitionError(
            f"{fold} cannot compare {kind} values; name one of their fields, for example 'address.city'"
        )
    return kind


def _inserted(row: Inputs, value: pl.Expr) -> pl.Expr:
    return value.filter(row.weight > 0)


def _retracted(row: Inputs, value: pl.Expr) -> pl.Expr:
    return value.filter(row.weight < 0)


# count


def _count_delta(row: Inputs) -> dict[str, pl.Expr]:
    counted = pl.when(row.values[0].is_not_null()).then(row.weight).otherwise(0) if row.values else row.weight
    return {"count": counted.sum()}


_COUNT = Algebra(
    name="count",
    fields=lambda types, sequence: {"value0": pa.int64()},
    delta=_count_delta,
    merge=lambda old, delta: {"value0": old["value0"].fill_null(0) + delta["count"]},
)


# total


def total_type(argument: pa.DataType) -> pa.DataType:
    """The type of a sum: long, decimal with ten more digits (as Spark's), or double.

    Raises:
        DefinitionError: the argument is not a number.
    """
    if pa.types.is_integer(argument):
        return pa.int64()
    if pa.types.is_decimal(argument):
        return pa.decimal128(min(_MAX_DIGITS, argument.precision + 10), argument.scale)
    if pa.types.is_floating(argument):
        return pa.float64()
    raise DefinitionError(f"total and average need a number; the argument is {argument}")


def _total_delta(row: Inputs) -> dict[str, pl.Expr]:
    given = row.values[0].is_not_null()
    return {"sum": row.values[0].sum(), "count": pl.when(given).then(row.weight).otherwise(0).sum()}


def _summed(held: pl.Expr, counted: pl.Expr, delta: Fields) -> pl.Expr:
    """The new sum, in the delta's wide type; what does not fit the published type fails where it is narrowed."""
    added = delta["sum"]
    return pl.when(counted != 0).then(pl.when(held.is_null()).then(added).otherwise(added + held))


def _total_merge(old: Fields, delta: Fields) -> dict[str, pl.Expr]:
    counted = old["count"].fill_null(0) + delta["count"]
    return {"value0": _summed(old["value0"], counted, delta), "count": counted}


def _floats_delta(row: Inputs) -> dict[str, pl.Expr]:
    return {**_total_delta(row), "retracted": (row.weight < 0).any()}


def _floats_unresolved(sum_field: str, old: Fields, delta: Fields) -> pl.Expr:
    """An infinity or a NaN cannot be subtracted again."""
    is_finite = (old[sum_field].fill_null(0.0) + delta["sum"].fill_null(0.0)).is_finite()
    return delta["retracted"] & ~is_finite


def _by_type(algebra: Algebra, sum_field: str, types: _Types) -> Algebra:
    if not pa.types.is_floating(types[0]):
        return algebra
    return replace(algebra, delta=_floats_delta, unresolved=partial(_floats_unresolved, sum_field))


def _total_fields(types: _Types, sequence: _Sequence) -> dict[str, pa.DataType]:
    return {"value0": total_type(types[0]), "count": pa.int64()}


_EXACT_TOTAL = Algebra("total", _total_fields, _total_delta, _total_merge, is_additive=True)
_TOTAL = replace(_EXACT_TOTAL, specialised=partial(_by_type, _EXACT_TOTAL, "value0"))


# average


def _average_fields(types: _Types, sequence: _Sequence) -> dict[str, pa.DataType]:
    summed = total_type(types[0])
    mean = pa.float64()
    if pa.types.is_decimal(types[0]):
        mean = pa.decimal128(min(_MAX_DIGITS, types[0].precision + 4), min(_MAX_DIGITS, types[0].scale + 4))
    return {"value0": mean, "sum": summed, "count": pa.int64()}


def _quotient(row: dict[str, Any]) -> Decimal | float | None:
    if not row["count"]:
        return None
    if not isinstance(row["sum"], Decimal):
        return float(row["sum"]) / float(row["count"])
    scale = Decimal(1).scaleb(max(int(row["sum"].as_tuple().exponent) - 4, -_MAX_DIGITS))
    with localcontext(prec=2 * _MAX_DIGITS):
        return Decimal(row["sum"] / row["count"]).quantize(scale, ROUND_HALF_UP)


def _average_merge(old: Fields, delta: Fields) -> dict[str, pl.Expr]:
    counted = old["count"].fill_null(0) + delta["count"]
    summed = _summed(old["sum"], counted, delta)
    return {"value0": map_rows(_quotient, old["value0"], sum=summed, count=counted), "sum": summed, "count": counted}


_EXACT_AVERAGE = Algebra("average", _average_fields, _total_delta, _average_merge, is_additive=True)
_AVERAGE = replace(_EXACT_AVERAGE, specialised=partial(_by_type, _EXACT_AVERAGE, "sum"))


# minimum and maximum


def _extreme_delta(is_maximum: bool, row: Inputs) -> dict[str, pl.Expr]:
    def extreme(values: pl.Expr) -> pl.Expr:
        # NaN is greater than every number, as in Spark; Polars' max() leaves it out.
        largest = values.nan_max() if pa.types.is_floating(row.types[0]) else values.max()
        return largest if is_maximum else values.min()

    return {"inserted": extreme(_inserted(row, row.values[0])), "retracted": extreme(_retracted(row, row.values[0]))}


def _reaches(is_maximum: bool, value: pl.Expr, other: pl.Expr) -> pl.Expr:
    """Whether `value` is as extreme as `other`, or more so; false where either is null."""
    return ((value >= other) if is_maximum else (value <= other)).fill_null(False)


def _extreme_merge(is_maximum: bool, old: Fields, delta: Fields) -> dict[str, pl.Expr]:
    new, held = delta["inserted"], old["value0"]
    return {"value0": pl.when(held.is_null() | _reaches(is_maximum, new, held)).then(new).otherwise(held)}


def _extreme_unresolved(is_maximum: bool, old: Fields, delta: Fields) -> pl.Expr:
    lost = _reaches(is_maximum, delta["retracted"], old["value0"])
    return lost & ~_reaches(is_maximum, delta["inserted"], delta["retracted"])


def _extreme(name: str, is_maximum: bool) -> Algebra:
    return Algebra(
        name=name,
        fields=lambda types, sequence: {"value0": _flat(name, types[0])},
        delta=partial(_extreme_delta, is_maximum),
        merge=partial(_extreme_merge, is_maximum),
        unresolved=partial(_extreme_unresolved, is_maximum),
    )


_MINIMUM = _extreme("minimum", is_maximum=False)
_MAXIMUM = _extreme("maximum", is_maximum=True)


# latest and earliest: one unit for all columns of a table, with the sequence of the published row as its state


def _ordered_fields(types: _Types, sequence: _Sequence) -> dict[str, pa.DataType]:
    fields = {f"value{i}": _flat("latest and earliest", kind) for i, kind in enumerate(types)}
    return {**fields, "sequence": pa.struct(list(sequence.items()))}


def _edge(rows: pl.Expr, order: list[pl.Expr], is_latest: bool) -> pl.Expr:
    return rows.sort_by(order, nulls_last=False).last() if is_latest else rows.sort_by(order, nulls_last=False).first()


def _ordered_delta(is_latest: bool, row: Inputs) -> dict[str, pl.Expr]:
    fields = {f"s{i}": s for i, s in enumerate(row.sequence)} | {f"v{i}": v for i, v in enumerate(row.values)}
    whole = pl.struct([expression.alias(name) for name, expression in fields.items()])
    order = list(fields.values())
    return {
        side: _edge(whole.filter(chosen), [o.filter(chosen) for o in order], is_latest)
        for side, chosen in (("inserted", row.weight > 0), ("retracted", row.weight < 0))
    }


def _precedes(left: list[pl.Expr], right: list[pl.Expr]) -> pl.Expr:
    """Whether the tuple `left` is before `right` or equal to it; null comes before every value."""
    answer: pl.Expr = pl.lit(True)
    for one, other in reversed(list(zip(left, right, strict=True))):
        before = (one.is_null() & other.is_not_null()) | (one < other).fill_null(False)
        answer = before | (one.eq_missing(other) & answer)
    return answer


def _order_of(whole: pl.Expr, fields: Fields) -> list[pl.Expr]:
    values = sum(name.startswith("value") for name in fields)
    sequence = sum(name.startswith("sequence.") for name in fields)
    return [whole.struct.field(f"s{i}") for i in range(sequence)] + [whole.struct.field(f"v{i}") for i in range(values)]


def _published_order(old: Fields) -> list[pl.Expr]:
    sequence = [old[name] for name in old if name.startswith("sequence.")]
    return sequence + [old[name] for name in old if name.startswith("value")]


def _wins(is_latest: bool, challenger: list[pl.Expr], holder: list[pl.Expr]) -> pl.Expr:
    return _precedes(holder, challenger) if is_latest else _precedes(challenger, holder)


def _ordered_merge(is_latest: bool, old: Fields, delta: Fields) -> dict[str, pl.Expr]:
    new = delta["inserted"]
    held = _published_order(old)
    offered = _order_of(new, old)
    takes = new.is_not_null() & (old["sequence"].is_null() | _wins(is_latest, offered, held))
    merged = [pl.when(takes).then(n).otherwise(o) for n, o in zip(offered, held, strict=True)]
    names = [name.removeprefix("sequence.") for name in old if name.startswith("sequence.")]
    values = merged[len(names) :]
    sequence = pl.struct([column.alias(name) for name, column in zip(names, merged, strict=False)])
    return {**{f"value{i}": v for i, v in enumerate(values)}, "sequence": sequence}


def _ordered_unresolved(is_latest: bool, old: Fields, delta: Fields) -> pl.Expr:
    gone, new = delta["retracted"], delta["inserted"]
    lost = gone.is_not_null() & _wins(is_latest, _order_of(gone, old), _published_order(old))
    replaced = new.is_not_null() & _wins(is_latest, _order_of(new, old), _order_of(gone, old))
    return lost & ~replaced


def _ordered(name: str, is_latest: bool) -> Algebra:
    return Algebra(
        name=name,
        fields=_ordered_fields,
        delta=partial(_ordered_delta, is_latest),
        merge=partial(_ordered_merge, is_latest),
        unresolved=partial(_ordered_unresolved, is_latest),
        is_ordered=True,
    )


_LATEST = _ordered("latest", is_latest=True)
_EARLIEST = _ordered("earliest", is_latest=False)


# distinct


def _distinct_delta(row: Inputs) -> dict[str, pl.Expr]:
    value = row.values[0]
    return {
        "inserted": _inserted(row, value).drop_nulls().unique().sort().implode(),
        "retracted": _retracted(row, value).is_not_null().any(),
    }


def _distinct_merge(old: Fields, delta: Fields) -> dict[str, pl.Expr]:
    merged = map_rows(sketch.extended, pl.Binary(), old=old["sketch"], new=delta["inserted"])
    return {"value0": map_rows(sketch.estimate, pl.Int64(), sketch=merged), "sketch": merged}


def _distinct_fields(types: _Types, sequence: _Sequence) -> dict[str, pa.DataType]:
    _flat("distinct", types[0])
    return {"value0": pa.int64(), "sketch": pa.binary()}


_DISTINCT = Algebra(
    name="distinct",
    fields=_distinct_fields,
    delta=_distinct_delta,
    merge=_distinct_merge,
    unresolved=lambda old, delta: delta["retracted"],
)


# distinct_exact: a multiset of values

_NAN = float("nan")
"""The one NaN of a multiset: equal to itself, by identity."""


def _multiset_fields(types: _Types, sequence: _Sequence) -> dict[str, pa.DataType]:
    entry = pa.struct([("value", _flat("distinct_exact", types[0])), ("count", pa.int64())])
    return {"value0": pa.int64(), "counts": pa.list_(entry)}


def _multiset_delta(row: Inputs) -> dict[str, pl.Expr]:
    given = row.values[0].is_not_null()
    return {"counts": pl.struct(value=row.values[0], count=row.weight).filter(given).implode()}


def _multiset_added(parts: dict[str, Any]) -> list[dict[str, Any]]:
    counts: dict[Any, int] = {}
    for entry in (*(parts["old"] or ()), *(parts["new"] or ())):
        value = _NAN if isinstance(entry["value"], float) and math.isnan(entry["value"]) else entry["value"]
        counts[value] = counts.get(value, 0) + entry["count"]
    in_order = sorted(counts, key=lambda value: (value is _NAN, 0.0 if value is _NAN else value))
    return [{"value": value, "count": counts[value]} for value in in_order if counts[value] != 0]


def _multiset_merge(old: Fields, delta: Fields) -> dict[str, pl.Expr]:
    merged = map_rows(_multiset_added, old["counts"], old=old["counts"], new=delta["counts"])
    return {"value0": merged.list.len().cast(pl.Int64), "counts": merged}


_DISTINCT_EXACT = Algebra(
    name="distinct_exact",
    fields=_multiset_fields,
    delta=_multiset_delta,
    merge=_multiset_merge,
)


# top


def _top_fields(names: tuple[str, ...], types: _Types, sequence: _Sequence) -> dict[str, pa.DataType]:
    return {"value0": pa.list_(pa.struct(list(zip(names, types, strict=True))))}


def _top_delta(n: int, names: tuple[str, ...], row: Inputs) -> dict[str, pl.Expr]:
    whole = pl.struct([v.alias(n) for n, v in zip(names, row.values, strict=True)], __weight=row.weight)
    ranked = row.values[-1].is_not_null()
    order = [row.values[-1], *row.values[:-1]]
    descending = [True] + [False] * (len(order) - 1)
    added, gone = ranked & (row.weight > 0), ranked & (row.weight < 0)
    best = whole.filter(added).sort_by([o.filter(added) for o in order], descending=descending, nulls_last=True).head(n)
    return {"inserted": best.implode(), "retracted": whole.filter(gone).implode()}


def _repeated(names: tuple[str, ...], entries: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    return [{name: entry[name] for name in names} for entry in entries or () for _ in range(abs(entry["__weight"]))]


def _best_first(names: tuple[str, ...], rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    *values, by = names
    ordered = sorted(rows, key=lambda one: [(one[v] is None, one[v]) for v in values])
    return sorted(ordered, key=lambda one: one[by], reverse=True)


def _top_updated(n: int, names: tuple[str, ...], parts: dict[str, Any]) -> list[dict[str, Any]]:
    rows = list(parts["old"] or ())
    for gone in _repeated(names, parts["retracted"]):
        if gone in rows:
            rows.remove(gone)
    return _best_first(names, [*rows, *_repeated(names, parts["inserted"])])[:n]


def _top_merge(n: int, names: tuple[str, ...], old: Fields, delta: Fields) -> dict[str, pl.Expr]:
    held, updated = old["value0"], partial(_top_updated, n, names)
    return {"value0": map_rows(updated, held, old=held, inserted=delta["inserted"], retracted=delta["retracted"])}


def _loses_from_full_list(n: int, names: tuple[str, ...], parts: dict[str, Any]) -> bool:
    held = parts["old"] or ()
    return len(held) == n and any(gone in held for gone in _repeated(names, parts["retracted"]))


def _top_unresolved(n: int, names: tuple[str, ...], old: Fields, delta: Fields) -> pl.Expr:
    loses = partial(_loses_from_full_list, n, names)
    return map_rows(loses, pl.Boolean(), old=old["value0"], retracted=delta["retracted"])
