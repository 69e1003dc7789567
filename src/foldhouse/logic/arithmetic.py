"""Calculations with numbers, by Arrow's checked functions: they fail where an integer overflows, and Spark decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from foldhouse.kernel.plan import polars_type
from foldhouse.logic.typed import DIGITS, FLOATS, Typed, UnknownLogic, arrow_type, decimal_size

_MOST_DIGITS = 38
_MOST_NEGATED_DIGITS = 34
"""Spark rounds `-x` and `abs(x)` of a decimal to so many digits."""


def calculated(kind: str, operands: Sequence[Typed]) -> Typed:
    """Translate a calculation.

    Args:
        kind: one of `CALCULATIONS`.
        operands: one or two.

    Raises:
        UnknownLogic: Spark may round it in a way of its own, or it has only literals.
    """
    variable = [one for one in operands if one.constant is None]
    if not variable:
        raise UnknownLogic("a calculation of literals")
    result = _result_type(kind, [one.type for one in operands])
    expected = arrow_type(result)
    made = pl.map_batches(
        [one.made for one in variable],
        partial(_calculated, CALCULATIONS[kind], tuple(one.constant for one in operands), expected),
        return_dtype=polars_type(expected),
        is_elementwise=True,
    )
    return Typed(made, result)


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


def _quotient(one: pa.Array | pa.Scalar, other: pa.Array | pa.Scalar) -> pa.Array:
    """Divide floats; fail for a division by zero, which Spark may refuse."""
    _check_divisor(one, other)
    return pc.divide(one, other)


def _remainder(one: pa.Array | pa.Scalar, other: pa.Array | pa.Scalar) -> pa.Array:
    """Return the rest of a division of integers, with the sign of the dividend."""
    _check_divisor(one, other)
    # The least integer divided by -1 overflows, and leaves nothing.
    by = pc.if_else(pc.equal(other, -1), pa.scalar(1, other.type), other)
    return pc.subtract(one, pc.multiply(pc.divide(one, by), by))


def _check_divisor(one: pa.Array | pa.Scalar, other: pa.Array | pa.Scalar) -> None:
    if pc.any(pc.and_(pc.equal(other, pa.scalar(0, other.type)), pc.is_valid(one))).as_py():
        raise pa.ArrowInvalid("a division by zero")


CALCULATIONS: dict[str, Callable[..., Any]] = {
    "Add": pc.add_checked,
    "Subtract": pc.subtract_checked,
    "Multiply": pc.multiply_checked,
    "Divide": _quotient,
    "Remainder": _remainder,
    "UnaryMinus": pc.negate_checked,
    "Abs": pc.abs_checked,
}
"""Kind of an expression -> the calculation of Arrow's arrays or scalars."""


def _result_type(kind: str, types: Sequence[str]) -> str:
    """Return the type of a calculation; a decimal of more than 38 digits would be rounded in ways of Spark's own."""
    if types[0] in FLOATS and len(set(types)) == 1 and kind != "Remainder":
        return types[0]
    if types[0] in DIGITS and len(set(types)) == 1 and kind != "Divide":
        return types[0]
    sizes = [size for one in types if (size := decimal_size(one)) is not None]
    if len(sizes) < len(types) or kind in ("Divide", "Remainder"):
        raise UnknownLogic(f"{kind} of {', '.join(types)}")
    if len(sizes) == 1:
        if sizes[0][0] > _MOST_NEGATED_DIGITS:
            raise UnknownLogic(f"{kind} with {sizes[0][0]} digits")
        return types[0]
    (p1, s1), (p2, s2) = sizes
    scale = s1 + s2 if kind == "Multiply" else max(s1, s2)
    digits = p1 + p2 + 1 if kind == "Multiply" else max(p1 - s1, p2 - s2) + scale + 1
    if digits > _MOST_DIGITS:
        raise UnknownLogic(f"{kind} with {digits} digits")
    return f"decimal({digits},{scale})"
