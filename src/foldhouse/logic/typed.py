"""The types of translated expressions: what this process compares and computes as Spark does."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl
import pyarrow as pa

from foldhouse.kernel.canonical import canonical
from foldhouse.kernel.plan import polars_type

DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 19}
"""Integer type -> the digits of its largest value; in the order of widening casts."""
FLOATS = ("float", "double")
MOMENTS = ("timestamp", "timestamp_ntz")
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
    "float": pa.float32(),
    "double": pa.float64(),
}
# Matches the type as Spark prints it, without a blank.
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


class UnknownLogic(Exception):
    """A part of a plan is not translated; Spark evaluates the logic."""


@dataclass(frozen=True, eq=False)
class Typed:
    """A translated expression.

    Args:
        made: the Polars expression.
        type: its type as Spark prints it; empty for a type that is only passed on, such as a list.
        constant: its value, if it is a literal.
    """

    made: pl.Expr
    type: str
    constant: pa.Scalar | None = None


Columns = Mapping[int, Typed]
"""Spark's number of a column -> how the column is read from the frame."""


def decimal_size(kind: str) -> tuple[int, int] | None:
    """Return the precision and scale of a decimal type; `None` for any other type."""
    found = _DECIMAL.fullmatch(kind)
    return (int(found[1]), int(found[2])) if found else None


def arrow_type(kind: str) -> pa.DataType:
    """Return the Arrow type of a Spark type that expressions may use.

    Raises:
        UnknownLogic: for any other type.
    """
    if size := decimal_size(kind):
        return pa.decimal128(*size)
    if kind not in _TYPES:
        raise UnknownLogic(f"type {kind}")
    return _TYPES[kind]


def of_type(given: Typed, *kinds: str) -> Typed:
    """Return an expression that has one of some types.

    Raises:
        UnknownLogic: it has another type.
    """
    if given.type not in kinds:
        raise UnknownLogic(f"{given.type or 'a type that is only passed on'} instead of {' or '.join(kinds)}")
    return given


def comparable(given: Typed) -> pl.Expr:
    """Return a value so that equal ones have equal bits, as Spark makes what it groups by or joins on.

    Raises:
        UnknownLogic: its type is only passed on.
    """
    kind = arrow_type(given.type)
    return canonical(given.made, kind).cast(polars_type(kind)) if given.type in FLOATS else given.made
