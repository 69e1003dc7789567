"""Groups of direct logic: `GROUP BY`, aggregates and `DISTINCT` as Polars expressions.

Only aggregates whose value no order of the rows can change are translated: counts, exact sums, the least and the
greatest. A sum is added up in more digits than its type has. If any part of it may not fit its type, the evaluation
fails, and Spark decides whether that is an error: Spark adds up longs in the order in which it reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from foldhouse.kernel.grouped import grouped
from foldhouse.kernel.plan import polars_type
from foldhouse.logic.expressions import condition, translated
from foldhouse.logic.plan import Expression, Node
from foldhouse.logic.typed import DIGITS, FLOATS, Columns, Typed, UnknownLogic, arrow_type, comparable, decimal_size

_FIRST_GROUP, _FIRST_CALL = -1_000, -1_000_000
"""Stand for the numbers of columns that are grouped by, and of aggregates: Spark numbers none below zero."""
_MOST_DIGITS, _MORE_DIGITS = 38, 10
"""A sum of decimals has so many digits more than its values: no ten billion of them overflow it."""
_GREATEST, _LEAST = ("Max", "BoolOr"), ("Min", "BoolAnd")
AGGREGATES = ("Count", "CountIf", "Sum", *_GREATEST, *_LEAST)
"""Those that are translated."""


@dataclass(frozen=True, eq=False)
class Groups:
    """An aggregate as expressions over the columns of its input.

    Args:
        given: the columns to group by and the arguments of the aggregates, computed before.
        keys: the names of the columns to group by; one group of all rows if there are none.
        calls: the aggregates.
        outputs: Spark's number of an output column -> the column, over keys and aggregates.
    """

    given: Sequence[pl.Expr] = field(repr=False)
    keys: Sequence[str]
    calls: Sequence[pl.Expr] = field(repr=False)
    outputs: dict[int, Typed]

    def of(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return a row for each group, with keys and aggregates."""
        rows = rows.with_columns(self.given)
        if not self.keys:
            return rows.select(self.calls) if self.calls else pl.select(pl.lit(0))  # one row, even of no rows
        return grouped(rows, self.keys, self.calls)


def groups_of(node: Node, columns: Columns) -> Groups:
    """Translate an `Aggregate` over the columns of its input.

    Raises:
        UnknownLogic: a part of it is not known to give the same values in Polars.
    """
    groups = node.of("groupingExpressions")
    keys = {_FIRST_GROUP - place: translated(one, columns) for place, one in enumerate(groups)}
    found: list[Expression] = []
    listed = [(one.id, _over_groups(one, groups, found)) for one in node.of("aggregateExpressions")]
    calls = {_FIRST_CALL - place: call_of(one, _name(_FIRST_CALL - place), columns) for place, one in enumerate(found)}
    there = {number: Typed(pl.col(_name(number)), typed.type) for number, typed in keys.items()}
    there |= {number: one.after for number, one in calls.items()}
    outputs = {number: translated(one, there) for number, one in listed if number is not None}
    if len(outputs) != len(listed) or any(one.type == "void" for one in outputs.values()):
        raise UnknownLogic("a column that is selected twice, or has no type")
    given = [comparable(typed).alias(_name(number)) for number, typed in keys.items()]
    given += [one.argument.alias(_name(number)) for number, one in calls.items() if one.argument is not None]
    return Groups(given, list(map(_name, keys)), [one.made for one in calls.values()], outputs)


def _name(number: int) -> str:
    return f"g{-number}"


def _over_groups(one: Expression, groups: Sequence[Expression], found: list[Expression]) -> Expression:
    """Replace what is grouped by, and each aggregate, by a column; add the aggregates to `found`."""
    for place, group in enumerate(groups):
        if one == group or (one.kind == group.kind == "AttributeReference" and one.id == group.id):
            return Expression("AttributeReference", id=_FIRST_GROUP - place)
    if one.kind == "AggregateExpression":
        found.append(one)
        return Expression("AttributeReference", id=_FIRST_CALL - len(found) + 1)
    return replace(one, children=tuple(_over_groups(child, groups, found) for child in one.children))


@dataclass(frozen=True, eq=False)
class Call:
    """One aggregate: its argument, the aggregate over the column of that, and the value over the column of this."""

    argument: pl.Expr | None
    made: pl.Expr
    after: Typed


def call_of(one: Expression, name: str, columns: Columns) -> Call:
    """Translate an `AggregateExpression`; its argument becomes the column `name`, and so does its value.

    Raises:
        UnknownLogic: it is not known to give the same value in Polars.
    """
    function, *filters = one.children
    is_distinct = one.facts.get("isDistinct")
    if is_distinct not in (True, False) or function.kind not in AGGREGATES:
        raise UnknownLogic(function.kind)
    tests = [condition(test, columns) for test in filters]
    if function.kind == "CountIf":
        tests.append(condition(function.children[0], columns))
        if is_distinct:
            raise UnknownLogic("a count of distinct conditions")
        return _count_of_rows(name, tests)
    if function.kind == "Count":
        return _count(name, [translated(child, columns) for child in function.children], tests, is_distinct=is_distinct)
    (given,) = function.children
    if not given.references:
        raise UnknownLogic(f"{function.kind} of a literal")
    column, value = pl.col(name), _where(tests, translated(given, columns))
    arrow_type(value.type)
    if function.kind in (*_GREATEST, *_LEAST):
        if value.type in FLOATS:  # of 0.0 and -0.0, Spark returns the one that it reads first
            raise UnknownLogic(f"{function.kind} of floats")
        made = column.max() if function.kind in _GREATEST else column.min()
        return Call(value.made, made, Typed(column, value.type))
    if is_distinct:
        raise UnknownLogic(function.kind)
    kind = _total_type(value.type)
    if kind == "long":
        return _sum_of_integers(name, value)
    # Of no values, a sum is null.
    made = pl.when(column.count() > 0).then(column.sum())
    wide = polars_type(arrow_type(kind))
    return Call(value.made.cast(wide), made.alias(name), Typed(column.cast(wide), kind))


def _where(tests: Sequence[pl.Expr], value: Typed) -> Typed:
    """Return a value that is null where not all tests are true; aggregates pass over nulls."""
    return Typed(pl.when(*tests).then(value.made), value.type) if tests else value


def _sum_of_integers(name: str, value: Typed) -> Call:
    """Add up the values above and below zero; if either sum is no long, a part of Spark's sum may overflow."""
    column = pl.col(name)
    sides = [
        pl.when(column > 0).then(column).sum().alias("above"),
        pl.when(column < 0).then(column).sum().alias("below"),
    ]
    made = pl.when(column.count() > 0).then(pl.struct(sides)).alias(name)
    above, below = (column.struct.field(side).cast(pl.Int64) for side in ("above", "below"))
    return Call(value.made.cast(pl.Int128), made, Typed(above + below, "long"))


def _count(name: str, values: Sequence[Typed], tests: Sequence[pl.Expr], *, is_distinct: bool) -> Call:
    column = pl.col(name)
    if any(one.constant is not None and not one.constant.is_valid for one in values):  # Spark counts nothing
        raise UnknownLogic("a count of null")
    varying = [one for one in values if one.constant is None]
    if not is_distinct:
        return _count_of_rows(name, [*tests, *(one.made.is_not_null() for one in varying)])
    if len(varying) != 1 or len(values) != 1:
        raise UnknownLogic("a count of distinct literals, or of several columns")
    counted = column.drop_nulls().n_unique().cast(pl.Int64)
    return Call(comparable(_where(tests, varying[0])), counted, Typed(column, "long"))


def _count_of_rows(name: str, tests: Sequence[pl.Expr]) -> Call:
    """Count the rows for which all tests are true."""
    column = pl.col(name)
    if not tests:
        return Call(None, pl.len().cast(pl.Int64).alias(name), Typed(column, "long"))
    return Call(pl.all_horizontal(tests).fill_null(value=False), column.sum().cast(pl.Int64), Typed(column, "long"))


def _total_type(kind: str) -> str:
    """Return the type of a sum, as Spark's."""
    if kind in DIGITS:
        return "long"
    size = decimal_size(kind)
    if size is None or size[0] + _MORE_DIGITS > _MOST_DIGITS:
        raise UnknownLogic(f"a sum of {kind}")
    return f"decimal({size[0] + _MORE_DIGITS},{size[1]})"
