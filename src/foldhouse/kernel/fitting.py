"""Checks whether a Python value fits an Arrow type, because a user's function may return anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Any

import pyarrow as pa

Check = Callable[[Any], bool]


def fits(value: Any, kind: pa.DataType) -> bool:
    """Whether the value can be stored as this type without loss. Null fits every type.

    Args:
        value: a Python value; structs and maps are dicts, lists are lists or tuples.
        kind: one of Iceberg's types.
    """
    return value is None or _check_of(kind)(value)


@cache
def _check_of(kind: pa.DataType) -> Check:
    """Return the check of one type; cached, because it runs for every row."""
    if pa.types.is_integer(kind):
        least, most = -(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1)
        return lambda value: isinstance(value, int) and not isinstance(value, bool) and least <= value < most
    if pa.types.is_floating(kind):
        return lambda value: isinstance(value, int | float) and not isinstance(value, bool)
    if pa.types.is_decimal(kind):
        return _decimal(kind.precision, kind.scale)
    if pa.types.is_fixed_size_binary(kind):
        return lambda value: isinstance(value, bytes) and len(value) == kind.byte_width
    if pa.types.is_timestamp(kind):
        return lambda value: isinstance(value, datetime) and (value.tzinfo is None) == (kind.tz is None)
    if pa.types.is_date(kind):
        return lambda value: isinstance(value, date) and not isinstance(value, datetime)
    if pa.types.is_nested(kind):
        return _nested(kind)
    plain = {pa.bool_(): bool, pa.string(): str, pa.binary(): bytes, pa.time64("us"): time}.get(kind)
    return lambda value: plain is not None and isinstance(value, plain)


def _decimal(precision: int, scale: int) -> Check:
    def check(value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | Decimal) or not Decimal(value).is_finite():
            return False
        unscaled = Fraction(value) * 10**scale
        return bool(unscaled.denominator == 1 and abs(unscaled) < 10**precision)

    return check


def _nested(kind: pa.DataType) -> Check:
    if pa.types.is_map(kind):
        key_type, item_type = kind.key_type, kind.item_type
        return lambda value: (
            isinstance(value, Mapping)
            and all(key is not None and fits(key, key_type) and fits(item, item_type) for key, item in value.items())
        )
    if pa.types.is_struct(kind):
        types = {field.name: field.type for field in kind}
        return lambda value: (
            isinstance(value, Mapping)
            and value.keys() == types.keys()
            and all(fits(value[name], one) for name, one in types.items())
        )
    return lambda value: isinstance(value, list | tuple) and all(fits(one, kind.value_type) for one in value)
