"""Casts that fail for no value of their type and round at most to the nearest float, translated for Polars."""

from __future__ import annotations

from decimal import Decimal

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from foldhouse.kernel.plan import polars_type
from foldhouse.logic.typed import DIGITS, FLOATS, MOMENTS, Typed, UnknownLogic, arrow_type, decimal_size

_EXACT_INTEGER, _EXACT_POWER = 2**53, 22
"""A double has every integer up to the first, and every power of ten up to the second one's."""


def constant(value: object, kind: str) -> Typed:
    """Return a literal of a type.

    Raises:
        UnknownLogic: the type is only passed on.
    """
    scalar = pa.scalar(value, arrow_type(kind))
    return Typed(pl.lit(value, polars_type(scalar.type)), kind, scalar)


def cast(given: Typed, kind: str) -> Typed:
    """Translate a cast.

    Raises:
        UnknownLogic: it can fail, or its value is not known to be that of Spark.
    """
    if given.type == kind:
        return given
    if given.type == "void":
        return constant(None, kind)
    if given.constant is not None and (given.type in DIGITS or decimal_size(given.type)):
        return _constant_as(given.constant.as_py(), kind)
    if given.type in MOMENTS and kind == "date":
        return Typed(given.made.dt.date(), kind)
    if kind == "string":
        return _as_text(given)
    if kind == "double" and (size := decimal_size(given.type)):
        return _double_of_decimal(given, size[1])
    is_rounded = kind in FLOATS and given.type in (*DIGITS, *FLOATS)
    if not (is_rounded or _is_wider(given.type, kind)):
        raise UnknownLogic(f"cast from {given.type} to {kind}")
    return Typed(given.made.cast(polars_type(arrow_type(kind))), kind)


def _constant_as(value: int | Decimal | None, kind: str) -> Typed:
    try:
        if kind in DIGITS and not isinstance(value, Decimal):
            return constant(value, kind)
        if decimal_size(kind):
            return constant(None if value is None else Decimal(value), kind)
        if kind == "double":
            return constant(None if value is None else float(value), kind)
    except (pa.ArrowInvalid, OverflowError) as failure:  # more digits than the type has
        raise UnknownLogic(f"cast of a literal to {kind}") from failure
    raise UnknownLogic(f"cast of a literal to {kind}")


def _as_text(given: Typed) -> Typed:
    if given.type == "boolean":
        return Typed(pl.when(given.made).then(pl.lit("true")).when(~given.made).then(pl.lit("false")), "string")
    if given.type not in DIGITS:
        raise UnknownLogic(f"cast from {given.type} to string")
    return Typed(given.made.cast(pl.String), "string")


def _double_of_decimal(given: Typed, scale: int) -> Typed:
    """Translate a cast that rounds once, as Java does; it fails for a number that would be rounded twice here."""
    if scale > _EXACT_POWER:
        raise UnknownLogic(f"cast of a decimal with {scale} decimal places to double")

    def rounded(values: pl.Series) -> pl.Series:
        whole = values.to_physical()
        if not whole.is_between(-_EXACT_INTEGER, _EXACT_INTEGER).all():
            raise pa.ArrowInvalid("a decimal of many digits as a double")
        # Not with Polars, which multiplies by the reciprocal of a number, and so rounds twice.
        made = pl.from_arrow(pc.divide(whole.cast(pl.Float64).to_arrow(), 10.0**scale))
        assert isinstance(made, pl.Series)
        return made

    made = given.made.map_batches(rounded, return_dtype=pl.Float64, is_elementwise=True)
    return Typed(made, "double")


def _is_wider(one: str, other: str) -> bool:
    """Whether every value of a number's type is, unchanged, a value of another type."""
    integers = list(DIGITS)
    if one in DIGITS and other in DIGITS:
        return integers.index(one) < integers.index(other)
    wide = decimal_size(other)
    if wide is None:
        return False
    digits, scale = wide
    if one in DIGITS:
        return digits - scale >= DIGITS[one]
    narrow = decimal_size(one)
    return narrow is not None and scale >= narrow[1] and digits - scale >= narrow[0] - narrow[1]
