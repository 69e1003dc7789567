"""Translate expressions of an analysed plan into Polars expressions that give the same values, or refuse to.

A translated expression gives Spark's value for every input, or it fails and Spark evaluates the logic instead: integers
that overflow do. Left to Spark are numbers with a floating point (NaN and -0.0 compare differently), collated text,
casts that can fail or round, and every function that is not listed here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial, reduce
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from foldhouse.kernel.plan import polars_type
from foldhouse.logic.parts import MOST_PARTS, parts_of
from foldhouse.logic.plan import Expression

_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 19}
"""Integer type -> the digits of its largest value; in the order of widening casts."""
_TYPES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
# Matches the type as Spark prints it, without a blank.
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_MOST_DIGITS = 38
_MOST_NEGATED_DIGITS = 34
"""Spark rounds `-x` and `abs(x)` of a decimal to so many digits."""
_COMMON = -1
"""Stands for the number of a column, where the columns include the common part of an expression."""
# Only this form: other years and finer fractions are not the same in Python, Polars and Spark.
_LITERAL_TIME = re.compile(r"\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d(\.\d{1,6})?)?")
"""How Spark prints a date or a timestamp of the years 0001 to 9999; it prints one without a zone as a number."""


class UnknownLogic(Exception):
    """A part of a plan is not translated; Spark evaluates the logic."""


@dataclass(frozen=True, eq=False)
class Typed:
    """A translated expression.

    Args:
        made: the Polars expression.
        type: its type as Spark prints it; empty for a type that is only passed on, such as a list or a double.
        constant: its value, if it is a literal.
    """

    made: pl.Expr
    type: str
    constant: pa.Scalar | None = None


Columns = Mapping[int, Typed]
"""Spark's number of a column -> how the column is read from the frame."""


def arrow_type(kind: str) -> pa.DataType:
    """Return the Arrow type of a Spark type that expressions may use.

    Raises:
        UnknownLogic: for any other type.
    """
    if found := _DECIMAL.fullmatch(kind):
        return pa.decimal128(int(found[1]), int(found[2]))
    if kind not in _TYPES:
        raise UnknownLogic(f"type {kind}")
    return _TYPES[kind]


def translated(expression: Expression, columns: Columns) -> Typed:
    """Translate an expression over the columns of a frame.

    Raises:
        UnknownLogic: an expression in it is not known to give the same values in Polars.
    """
    if expression.kind not in _TRANSLATIONS or expression.plan is not None:
        raise UnknownLogic(expression.kind)
    if parts_of(expression) > MOST_PARTS:
        raise UnknownLogic("an expression of many parts")
    return _TRANSLATIONS[expression.kind](expression, columns)


def condition(expression: Expression, columns: Columns) -> pl.Expr:
    """Translate a condition.

    Raises:
        UnknownLogic: see `translated`; or it is no condition.
    """
    return _of_type(translated(expression, columns), "boolean").made


def _of_type(given: Typed, kind: str) -> Typed:
    if given.type != kind:
        raise UnknownLogic(f"{given.type or 'a type that is only passed on'} instead of {kind}")
    return given


def _constant(value: Any, kind: str) -> Typed:
    scalar = pa.scalar(value, arrow_type(kind))
    return Typed(pl.lit(value, polars_type(scalar.type)), kind, scalar)


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
        return Typed(pl.lit(None), "void") if kind == "void" else _constant(None, kind)
    if kind in _DIGITS:
        return _constant(int(text), kind)
    if kind == "string":
        return _constant(text, kind)
    if kind == "boolean" and text in ("true", "false", "True", "False"):
        return _constant(text.lower() == "true", kind)
    if kind in ("date", "timestamp") and _LITERAL_TIME.fullmatch(text):
        return _constant(_moment(text, kind), kind)
    if _DECIMAL.fullmatch(kind):
        return _constant(Decimal(text), kind)
    raise UnknownLogic(f"literal of type {kind}")


def _moment(text: str, kind: str) -> date:
    try:
        return date.fromisoformat(text) if kind == "date" else datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError as failure:  # Spark has a year 0000, and Python does not
        raise UnknownLogic(f"{kind} {text}") from failure


def _cast(expression: Expression, columns: Columns) -> Typed:
    """Translate a cast that neither fails nor rounds, for any value of the type."""
    given, kind = _first(expression, columns), expression.type
    if given.type == kind:
        return given
    if given.type == "void":
        return _constant(None, kind)
    if given.constant is not None and (given.type in _DIGITS or _DECIMAL.fullmatch(given.type)):
        return _cast_constant(given.constant.as_py(), kind)
    if given.type in ("timestamp", "timestamp_ntz") and kind == "date":
        return Typed(given.made.dt.date(), kind)
    if not _is_wider(given.type, kind):
        raise UnknownLogic(f"cast from {given.type} to {kind}")
    return Typed(given.made.cast(polars_type(arrow_type(kind))), kind)


def _cast_constant(value: int | Decimal | None, kind: str) -> Typed:
    try:
        if kind in _DIGITS and not isinstance(value, Decimal):
            return _constant(value, kind)
        if _DECIMAL.fullmatch(kind):
            return _constant(None if value is None else Decimal(value), kind)
    except (pa.ArrowInvalid, OverflowError) as failure:  # more digits than the type has
        raise UnknownLogic(f"cast of a literal to {kind}") from failure
    raise UnknownLogic(f"cast of a literal to {kind}")


def _is_wider(one: str, other: str) -> bool:
    """Whether every value of a number's type is, unchanged, a value of another type."""
    integers = list(_DIGITS)
    if one in _DIGITS and other in _DIGITS:
        return integers.index(one) < integers.index(other)
    wide = _DECIMAL.fullmatch(other)
    if wide is None:
        return False
    digits, scale = int(wide[1]), int(wide[2])
    if one in _DIGITS:
        return digits - scale >= _DIGITS[one]
    narrow = _DECIMAL.fullmatch(one)
    return narrow is not None and scale >= int(narrow[2]) and digits - scale >= int(narrow[1]) - int(narrow[2])


def _day(expression: Expression, columns: Columns) -> Typed:
    given = _first(expression, columns)
    if len(expression.children) != 1 or given.type not in ("date", "timestamp", "timestamp_ntz"):
        raise UnknownLogic("to_date of a text")
    return given if given.type == "date" else Typed(given.made.dt.date(), "date")


def _pair(expression: Expression, columns: Columns) -> tuple[Typed, Typed]:
    """Translate two operands of one type that can be compared."""
    one, other = (translated(child, columns) for child in expression.children)
    arrow_type(one.type)
    return one, _of_type(other, one.type)


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


def _is_not_null(expression: Expression, columns: Columns) -> Typed:
    return Typed(_first(expression, columns).made.is_not_null(), "boolean")


def _in(expression: Expression, columns: Columns) -> Typed:
    """Translate `a IN (x, y)` as `a = x OR a = y`, which is null if no value is equal and one of them is null."""
    one, *others = _same_type(expression, columns)
    kind = arrow_type(one.type)
    listed = [other.constant for other in others if other.constant is not None]
    # A comparison for each of thousands of values would take minutes to plan.
    if len(listed) == len(others) and expression.children[0].references:
        values = pl.Series([scalar.as_py() for scalar in listed if scalar.is_valid], dtype=polars_type(kind))
        found_one = one.made.is_in(values.implode())
        is_known = len(values) == len(others)  # of a null in the list, it is not known whether it is equal
        return Typed(found_one if is_known else pl.when(found_one).then(pl.lit(True)), "boolean")
    found = [one.made == other.made for other in others]
    return Typed(reduce(lambda a, b: a | b, found, pl.lit(False)), "boolean")


def _same_type(expression: Expression, columns: Columns) -> list[Typed]:
    found = [translated(child, columns) for child in expression.children]
    return [_of_type(one, found[0].type) for one in found]


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
    otherwise = _constant(None, kind) if last is None else _of_type(translated(last, columns), kind)
    made = otherwise.made
    for test, value in reversed(list(zip(branches[::2], values, strict=True))):
        assert test is not None
        made = pl.when(condition(test, columns)).then(_of_type(value, kind).made).otherwise(made)
    return Typed(made, kind)


def _if(expression: Expression, columns: Columns) -> Typed:
    test, *branches = expression.children
    one, other = (translated(branch, columns) for branch in branches)
    arrow_type(one.type)
    return Typed(pl.when(condition(test, columns)).then(one.made).otherwise(_of_type(other, one.type).made), one.type)


def _arithmetic(function: Callable[..., Any], expression: Expression, columns: Columns) -> Typed:
    """Translate a calculation with Arrow's checked functions, which fail where an integer overflows."""
    operands = [translated(child, columns) for child in expression.children]
    variable = [one for one in operands if one.constant is None]
    if not variable:
        raise UnknownLogic("a calculation of literals")
    kind = _result_type(expression.kind, [one.type for one in operands])
    expected = arrow_type(kind)
    made = pl.map_batches(
        [one.made for one in variable],
        partial(_calculated, function, tuple(one.constant for one in operands), expected),
        return_dtype=polars_type(expected),
        is_elementwise=True,
    )
    return Typed(made, kind)


def _calculated(
    function: Callable[..., Any], constants: Sequence[pa.Scalar | None], kind: pa.DataType, given: Sequence[pl.Series]
) -> pl.Series:
    arrays = iter(one.to_arrow() for one in given)
    result = function(*(next(arrays) if one is None else one for one in constants))
    if result.type != kind:
        raise UnknownLogic(f"{result.type} instead of {kind}")
    made = pl.from_arrow(result)
    assert isinstance(made, pl.Series)
    return made


def _result_type(kind: str, types: Sequence[str]) -> str:
    """Return the type of a calculation, which is exact: a decimal of more than 38 digits would be rounded."""
    if types[0] in _DIGITS and len(set(types)) == 1:
        return types[0]
    found = [_DECIMAL.fullmatch(one) for one in types]
    parts = [(int(one[1]), int(one[2])) for one in found if one is not None]
    if len(parts) < len(types):
        raise UnknownLogic(f"{kind} of {', '.join(types)}")
    if len(parts) == 1:
        if parts[0][0] > _MOST_NEGATED_DIGITS:
            raise UnknownLogic(f"{kind} with {parts[0][0]} digits")
        return types[0]
    (p1, s1), (p2, s2) = parts
    scale = s1 + s2 if kind == "Multiply" else max(s1, s2)
    digits = p1 + p2 + 1 if kind == "Multiply" else max(p1 - s1, p2 - s2) + scale + 1
    if digits > _MOST_DIGITS:
        raise UnknownLogic(f"{kind} with {digits} digits")
    return f"decimal({digits},{scale})"


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
    "In": _in,
    "Coalesce": _coalesce,
    "Least": partial(_extreme, pl.Expr.lt),
    "Greatest": partial(_extreme, pl.Expr.gt),
    "CaseWhen": _case,
    "If": _if,
    "Add": partial(_arithmetic, pc.add_checked),
    "Subtract": partial(_arithmetic, pc.subtract_checked),
    "Multiply": partial(_arithmetic, pc.multiply_checked),
    "UnaryMinus": partial(_arithmetic, pc.negate_checked),
    "Abs": partial(_arithmetic, pc.abs_checked),
}
