"""Translate expressions of an analysed plan into Polars expressions that give the same values, or refuse to.

A translated expression gives Spark's value for every input, or it fails and Spark evaluates the logic instead: integers
that overflow do, and a division by zero. Left to Spark are collated text, casts that can fail, and every function that
is not listed here.

Floats: one operation on two values is rounded in the same way everywhere. NaN equals NaN and is greater than all other
values, and -0.0 equals 0.0, to Spark as to Polars. Values that are grouped, joined or looked up are made canonical
first, because equal ones have to be found by their bits.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial, reduce

import polars as pl

from foldhouse.kernel.plan import polars_type
from foldhouse.logic.arithmetic import CALCULATIONS, calculated
from foldhouse.logic.casts import cast, constant
from foldhouse.logic.parts import MOST_PARTS, parts_of
from foldhouse.logic.plan import Expression
from foldhouse.logic.text_and_time import FUNCTIONS
from foldhouse.logic.typed import (
    DIGITS,
    FLOATS,
    MOMENTS,
    Columns,
    Typed,
    UnknownLogic,
    arrow_type,
    comparable,
    decimal_size,
    of_type,
)

_COMMON = -1
"""Stands for the number of a column, where the columns include the common part of an expression."""
# Only this form: other years and finer fractions are not the same in Python, Polars and Spark.
_LITERAL_TIME = re.compile(r"\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d(\.\d{1,6})?)?")
"""How Spark prints a date or a timestamp of the years 0001 to 9999; it prints one without a zone as a number."""


def translated(expression: Expression, columns: Columns) -> Typed:
    """Translate an expression over the columns of a frame.

    Raises:
        UnknownLogic: an expression in it is not known to give the same values in Polars.
    """
    if expression.kind not in _TRANSLATIONS or expression.plan is not None or not expression.is_of_utc:
        raise UnknownLogic(expression.kind)
    if parts_of(expression) > MOST_PARTS:
        raise UnknownLogic("an expression of many parts")
    return _TRANSLATIONS[expression.kind](expression, columns)


def condition(expression: Expression, columns: Columns) -> pl.Expr:
    """Translate a condition.

    Raises:
        UnknownLogic: see `translated`; or it is no condition.
    """
    return of_type(translated(expression, columns), "boolean").made


def _with(expression: Expression, columns: Columns) -> Typed:
    """Translate an expression with one common part, such as BETWEEN: the part is its second child."""
    made, *common = expression.children
    # A reference does not say which common part it means, so there may be only one.
    if len(common) != 1 or any(one.kind == "With" for one in made.walk()):
        raise UnknownLogic("several common parts")
    return translated(made, {**columns, _COMMON: _first(common[0], columns)})


def _reference(expression: Expression, columns: Columns) -> Typed:
    if _COMMON not in columns:
        raise UnknownLogic("a reference")
    return columns[_COMMON]


def _attribute(expression: Expression, columns: Columns) -> Typed:
    if expression.id is None or expression.id not in columns:
        raise UnknownLogic(f"column {expression.name}")
    return columns[expression.id]


def _first(expression: Expression, columns: Columns) -> Typed:
    return translated(expression.children[0], columns)


def _literal(expression: Expression, columns: Columns) -> Typed:
    kind, text = expression.type, expression.value
    if text is None or kind == "void":
        return Typed(pl.lit(None), "void") if kind == "void" else constant(None, kind)
    if kind in DIGITS:
        return constant(int(text), kind)
    if kind == "string":
        return constant(text, kind)
    if kind == "boolean" and text in ("true", "false", "True", "False"):
        return constant(text.lower() == "true", kind)
    if kind in ("date", "timestamp") and _LITERAL_TIME.fullmatch(text):
        return constant(_moment(text, kind), kind)
    if decimal_size(kind):
        return constant(Decimal(text), kind)
    # Not a float: Python would round its text twice. And no -0.0, which Spark leaves as it is where it groups by it.
    if kind == "double" and not (float(text) == 0 and text.startswith("-")):
        return constant(float(text), kind)
    raise UnknownLogic(f"literal of type {kind}")


def _moment(text: str, kind: str) -> date:
    try:
        return date.fromisoformat(text) if kind == "date" else datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError as failure:  # Spark has a year 0000, and Python does not
        raise UnknownLogic(f"{kind} {text}") from failure


def _cast(expression: Expression, columns: Columns) -> Typed:
    return cast(_first(expression, columns), expression.type)


def _day(expression: Expression, columns: Columns) -> Typed:
    given = _first(expression, columns)
    if len(expression.children) != 1 or given.type not in ("date", *MOMENTS):
        raise UnknownLogic("to_date of a text")
    return given if given.type == "date" else Typed(given.made.dt.date(), "date")


def _pair(expression: Expression, columns: Columns) -> tuple[Typed, Typed]:
    """Translate two operands of one type that can be compared."""
    one, other = (translated(child, columns) for child in expression.children)
    arrow_type(one.type)
    return one, of_type(other, one.type)


def _compare(compared: Callable[[pl.Expr, pl.Expr], pl.Expr], expression: Expression, columns: Columns) -> Typed:
    one, other = _pair(expression, columns)
    return Typed(compared(one.made, other.made), "boolean")


def _combine(combined: Callable[[pl.Expr, pl.Expr], pl.Expr], expression: Expression, columns: Columns) -> Typed:
    one, other = (condition(child, columns) for child in expression.children)
    return Typed(combined(one, other), "boolean")


def _not(expression: Expression, columns: Columns) -> Typed:
    return Typed(~condition(expression.children[0], columns), "boolean")


def _is_null(expression: Expression, columns: Columns) -> Typed:
    return Typed(_first(expression, columns).made.is_null(), "boolean")


def _is_nan(expression: Expression, columns: Columns) -> Typed:
    given = _first(expression, columns)
    if given.type not in FLOATS:
        raise UnknownLogic(f"isnan of {given.type}")
    return Typed(given.made.is_nan().fill_null(value=False), "boolean")


def _is_not_null(expression: Expression, columns: Columns) -> Typed:
    return Typed(_first(expression, columns).made.is_not_null(), "boolean")


def _in(expression: Expression, columns: Columns) -> Typed:
    """Translate `a IN (x, y)` as `a = x OR a = y`, which is null if no value is equal and one of them is null."""
    one, *others = _same_type(expression, columns)
    if not others:
        raise UnknownLogic("IN without values, which is false of a null, and null by a setting")
    kind = arrow_type(one.type)
    listed = [other.constant for other in others if other.constant is not None]
    # A comparison for each of thousands of values would take minutes to plan.
    if len(listed) == len(others) and expression.children[0].references:
        values = pl.Series([scalar.as_py() for scalar in listed if scalar.is_valid], dtype=polars_type(kind))
        if one.type in FLOATS:
            values = pl.select(comparable(Typed(pl.lit(values), one.type))).to_series()
        found_one = comparable(one).is_in(values.implode())
        is_known = len(values) == len(others)  # of a null in the list, it is not known whether it is equal
        return Typed(found_one if is_known else pl.when(found_one).then(pl.lit(True)), "boolean")
    return Typed(reduce(pl.Expr.or_, [one.made == other.made for other in others]), "boolean")


def _same_type(expression: Expression, columns: Columns) -> list[Typed]:
    found = [translated(child, columns) for child in expression.children]
    return [of_type(one, found[0].type) for one in found]


def _coalesce(expression: Expression, columns: Columns) -> Typed:
    found = _same_type(expression, columns)
    arrow_type(found[0].type)
    return Typed(pl.coalesce([one.made for one in found]), found[0].type)


def _extreme(is_better: Callable[[pl.Expr, pl.Expr], pl.Expr], expression: Expression, columns: Columns) -> Typed:
    """Translate `least` and `greatest`, which skip nulls."""
    found = _same_type(expression, columns)
    arrow_type(found[0].type)
    return Typed(reduce(partial(_better, is_better), [one.made for one in found]), found[0].type)


def _better(is_better: Callable[[pl.Expr, pl.Expr], pl.Expr], one: pl.Expr, other: pl.Expr) -> pl.Expr:
    return pl.when(is_better(other, one).fill_null(one.is_null())).then(other).otherwise(one)


def _case(expression: Expression, columns: Columns) -> Typed:
    """Translate CASE WHEN: conditions and values in turn, then the value of ELSE, if there is one."""
    *branches, last = expression.children if len(expression.children) % 2 else (*expression.children, None)
    values = [translated(value, columns) for value in branches[1::2] if value is not None]
    kind = values[0].type
    arrow_type(kind)
    otherwise = constant(None, kind) if last is None else of_type(translated(last, columns), kind)
    made = otherwise.made
    for test, value in reversed(list(zip(branches[::2], values, strict=True))):
        assert test is not None
        made = pl.when(condition(test, columns)).then(of_type(value, kind).made).otherwise(made)
    return Typed(made, kind)


def _if(expression: Expression, columns: Columns) -> Typed:
    test, *branches = expression.children
    one, other = (translated(branch, columns) for branch in branches)
    arrow_type(one.type)
    return Typed(pl.when(condition(test, columns)).then(one.made).otherwise(of_type(other, one.type).made), one.type)


def _calculation(expression: Expression, columns: Columns) -> Typed:
    return calculated(expression.kind, [translated(child, columns) for child in expression.children])


def _function(expression: Expression, columns: Columns) -> Typed:
    function, operands = FUNCTIONS[expression.kind]
    if len(expression.children) not in operands:
        raise UnknownLogic(f"{expression.kind} of {len(expression.children)}")
    return function([translated(child, columns) for child in expression.children])


_TRANSLATIONS: dict[str, Callable[[Expression, Columns], Typed]] = {
    "AttributeReference": _attribute,
    "Alias": _first,
    "Nvl": _first,
    "Nvl2": _first,
    "ZeroIfNull": _first,
    "Between": _first,
    "With": _with,
    "CommonExpressionRef": _reference,
    "Literal": _literal,
    "Cast": _cast,
    "ParseToDate": _day,
    "EqualTo": partial(_compare, pl.Expr.eq),
    "EqualNullSafe": partial(_compare, pl.Expr.eq_missing),
    "LessThan": partial(_compare, pl.Expr.lt),
    "LessThanOrEqual": partial(_compare, pl.Expr.le),
    "GreaterThan": partial(_compare, pl.Expr.gt),
    "GreaterThanOrEqual": partial(_compare, pl.Expr.ge),
    "And": partial(_combine, pl.Expr.and_),
    "Or": partial(_combine, pl.Expr.or_),
    "Not": _not,
    "IsNull": _is_null,
    "IsNotNull": _is_not_null,
    "IsNaN": _is_nan,
    "In": _in,
    "Coalesce": _coalesce,
    "Least": partial(_extreme, pl.Expr.lt),
    "Greatest": partial(_extreme, pl.Expr.gt),
    "CaseWhen": _case,
    "If": _if,
    **dict.fromkeys(CALCULATIONS, _calculation),
    **dict.fromkeys(FUNCTIONS, _function),
}
