"""The folds as Spark's own aggregates: a second, independent definition of what each fold means.

None of the code that folds is used here. Only the plan of a fold is: which arguments each column takes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from foldhouse.kernel.plan import FoldPlan, Unit, argument_column, sequence_column
from foldhouse.values.fold import ColumnFold, Fold

ESTIMATE_SHARE = 0.1
"""By how much an estimated count may differ: six times its standard error."""
LARGEST = sys.float_info.max
"""The largest finite double. Spark compares NaN as greater than it."""
_FLOAT_SHARE = 1e-9
"""By how much a float may differ, as a share of the sum of the magnitudes: Spark rounds every intermediate sum."""
_SCALE = 2.0**64
"""By how much large doubles are divided before they are added: fewer than 2**63 rows then stay below the largest."""


@dataclass(frozen=True)
class Aggregate:
    """One published column as an aggregate.

    Args:
        value: the aggregate.
        within: how far the stored value may be from it; `None` if the two must be equal.
        is_estimate: whether both are estimates of a count.
    """

    value: Column
    within: Column | None = None
    is_estimate: bool = False


@dataclass(frozen=True)
class _Call:
    """One column of a fold with everything that its aggregate uses.

    Args:
        arguments: the columns with its arguments.
        types: their types.
        options: as declared, such as a limit.
        sequence: the sequence columns, most significant first.
        deleted: whether an event deletes its key.
        place: the column's place among the columns that come from the same event.
        event: the arguments of all these columns, in order.
    """

    arguments: Sequence[Column]
    types: Sequence[pa.DataType]
    options: Mapping[str, Any]
    sequence: Sequence[Column]
    deleted: Column
    place: int = 0
    event: Sequence[Column] = field(default_factory=list)

    @property
    def value(self) -> Column:
        """The first argument."""
        return self.arguments[0]


def aggregates_of(plan: FoldPlan, fold: Fold) -> dict[str, Aggregate]:
    """Return the aggregate of each published column; a column that Spark cannot compute is missing."""
    declared = dict(fold.columns)
    found = {}
    for unit in plan.units:
        for place, name in enumerate(unit.outputs):
            make = _AGGREGATES.get(unit.algebra.name)
            if make is not None and not _has_map(unit, plan) and not _is_ordered_by_nested(unit, plan):
                found[name] = make(_call(plan, unit, place, declared[name]))
    return found


def exists(plan: FoldPlan) -> Column:
    """Return whether a key is in the table: its last event does not delete it."""
    if plan.delete_argument is None:
        return F.lit(True)
    order = F.struct(*_sequence(plan), _deleted(plan).alias("d"))
    return ~F.max(order)["d"]


def _call(plan: FoldPlan, unit: Unit, place: int, column: ColumnFold) -> _Call:
    is_one_event = unit.algebra.is_shared or len(unit.outputs) > 1
    chosen = (unit.arguments[place],) if is_one_event else unit.arguments
    return _Call(
        [F.col(argument_column(i)) for i in chosen],
        [plan.argument_types[i] for i in chosen],
        dict(column.options),
        _sequence(plan),
        _deleted(plan),
        place,
        [F.col(argument_column(i)) for i in unit.arguments],
    )


def _sequence(plan: FoldPlan) -> list[Column]:
    return [F.col(sequence_column(i)).alias(f"s{i}") for i in range(len(plan.sequence))]


def _deleted(plan: FoldPlan) -> Column:
    if plan.delete_argument is None:
        return F.lit(False)
    return F.coalesce(F.col(argument_column(plan.delete_argument)), F.lit(False))


def _has_map(unit: Unit, plan: FoldPlan) -> bool:
    """Whether a value contains a map, which Spark can neither compare nor order."""
    return any(_contains_map(plan.argument_types[i]) for i in unit.arguments)


def _contains_map(kind: pa.DataType) -> bool:
    return pa.types.is_map(kind) or any(_contains_map(kind.field(place).type) for place in range(kind.num_fields))


def _is_ordered_by_nested(unit: Unit, plan: FoldPlan) -> bool:
    """Whether events of equal sequence are ordered by nested values, which Spark orders in another way."""
    return unit.algebra.is_ordered and any(pa.types.is_nested(plan.argument_types[i]) for i in unit.arguments)


def _count(call: _Call) -> Aggregate:
    return Aggregate(F.count(call.value) if call.arguments else F.count(F.lit(1)))


def _total(call: _Call) -> Aggregate:
    if pa.types.is_floating(call.types[0]):
        return _of_floats(call.value, F.sum)
    if pa.types.is_integer(call.types[0]):
        return Aggregate(F.sum(call.value.cast("decimal(38,0)")))
    return Aggregate(F.sum(call.value))


def _average(call: _Call) -> Aggregate:
    if pa.types.is_decimal(call.types[0]):
        return Aggregate(F.avg(call.value))
    return _of_floats(call.value, F.avg)


def _of_floats(given: Column, added: Callable[[Column], Column]) -> Aggregate:
    """Return a total or an average of floats (`added` is `F.sum` or `F.avg`), with its tolerance.

    NaN and infinities decide alone, as in IEEE 754. Finite values whose magnitudes add up to more than a double are
    added after a division, because a sum of Spark can overflow where the exact sum or average is finite.
    """
    value = given.cast("double")
    is_finite = F.abs(value) <= LARGEST
    special = F.sum(F.when(~is_finite, value))
    finite = F.when(is_finite, value)
    result, magnitude = added(finite), added(F.abs(finite))
    scaled, scaled_within = added(finite / _SCALE), added(F.abs(finite) / _SCALE) * _FLOAT_SHARE
    # Within the tolerance of the largest double, the expected value is that double: the stored one may be an infinity.
    edge = LARGEST / _SCALE
    is_beyond = F.abs(scaled) - scaled_within > edge
    large = F.when(is_beyond, scaled).otherwise(F.greatest(F.least(scaled, F.lit(edge)), F.lit(-edge))) * _SCALE
    overflows = magnitude > LARGEST
    return Aggregate(
        F.coalesce(special, F.when(overflows, large).otherwise(result)),
        F.when(overflows, scaled_within * _SCALE).otherwise(magnitude * _FLOAT_SHARE),
    )


def _minimum(call: _Call) -> Aggregate:
    return Aggregate(F.min(call.value))


def _maximum(call: _Call) -> Aggregate:
    return Aggregate(F.max(call.value))


def _by(extreme: Callable[[Column], Column]) -> Callable[[_Call], Aggregate]:
    def aggregate(call: _Call) -> Aggregate:
        value, by = call.arguments
        return Aggregate(extreme(F.when(by.isNotNull(), F.struct(by.alias("by"), value.alias("v"))))["v"])

    return aggregate


def _edge(extreme: Callable[[Column], Column]) -> Callable[[_Call], Aggregate]:
    """Of whole events: the first or the last by sequence, then a delete, then the values."""

    def aggregate(call: _Call) -> Aggregate:
        deleted = call.deleted.alias("d")
        if not call.options.get("ignore_nulls"):
            values = [value.alias(f"v{i}") for i, value in enumerate(call.event)]
            return Aggregate(extreme(F.struct(*call.sequence, deleted, *values))[f"v{call.place}"])
        # Each column by itself; a delete is an update of every column, which takes its value away.
        given = call.value.isNotNull() | call.deleted
        event = F.struct(*call.sequence, deleted, F.when(~call.deleted, call.value).alias("v"))
        return Aggregate(extreme(F.when(given, event))["v"])

    return aggregate


def _distinct(call: _Call) -> Aggregate:
    number = F.count_distinct(call.value)
    return Aggregate(number, F.greatest(F.lit(2.0), number * ESTIMATE_SHARE), is_estimate=True)


def _distinct_exact(call: _Call) -> Aggregate:
    return Aggregate(F.count_distinct(call.value))


def _collect(call: _Call) -> Aggregate:
    value, by = call.value, call.arguments[-1]
    if call.options.get("distinct"):
        # In the order of values, then of `by`: the first of equal values has the smallest `by`.
        pairs = F.sort_array(F.collect_list(F.when(value.isNotNull(), F.struct(value.alias("v"), by.alias("by")))))
        is_first = lambda pair, i: (i == 0) | ~pair["v"].eqNullSafe(F.get(pairs, i - 1)["v"])  # noqa: E731
        firsts = F.filter(pairs, is_first)
        entries = F.sort_array(F.transform(firsts, lambda pair: F.struct(pair["by"].alias("by"), pair["v"].alias("v"))))
    else:
        entries = F.sort_array(F.collect_list(F.when(value.isNotNull(), F.struct(by.alias("by"), value.alias("v")))))
    kept = F.slice(entries, 1, call.options["limit"]) if "limit" in call.options else entries
    return Aggregate(F.transform(kept, lambda pair: pair["v"]))


def _top(call: _Call) -> Aggregate:
    *values, by = call.arguments
    names = [f"v{i}" for i in range(len(values))]
    row = F.struct(*(value.alias(name) for value, name in zip(values, names, strict=True)), by.alias("by"))

    def compared(one: Column, other: Column) -> Column:
        better = (one["by"] > other["by"], one["by"] < other["by"])
        # Null comes last here, but first in Spark's own order. Nulls inside a nested value come first in both.
        parts = ([part for name in names for part in (side[name].isNull(), side[name])] for side in (one, other))
        first, second = (F.struct(*(part.alias(f"p{i}") for i, part in enumerate(each))) for each in parts)
        order = F.when(better[0], -1).when(better[1], 1).when(first < second, -1).when(first > second, 1)
        return order.otherwise(0)

    best = F.slice(F.array_sort(F.collect_list(F.when(by.isNotNull(), row)), compared), 1, call.options["n"])
    return Aggregate(best)


_AGGREGATES: dict[str, Callable[[_Call], Aggregate]] = {
    "average": _average,
    "collect": _collect,
    "count": _count,
    "distinct": _distinct,
    "distinct_exact": _distinct_exact,
    "earliest": _edge(F.min),
    "latest": _edge(F.max),
    "maximum": _maximum,
    "maximum_by": _by(F.max),
    "minimum": _minimum,
    "minimum_by": _by(F.min),
    "top": _top,
    "total": _total,
}
"""Name of a fold -> its aggregate. `custom` is missing: it is Python code of the user, which Spark does not have."""
