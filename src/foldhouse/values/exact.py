"""Values as an Arrow array of a type, exactly or not at all.

Arrow refuses most values that do not fit a type, and cuts others without an error:

    1.5 or Decimal("1.5"), as long            -> 1       if the values are Python's
    2024-03-04 23:30, as date                 -> 2024-03-04
    5, as boolean                             -> true
    1.239 as double, as decimal(9,2)          -> 1.24
    1e300 as double, as float                 -> inf
    1709546400.5, as timestamp                -> 1970-01-01 00:28:29.546400, if the values are Python's
    10**15 microseconds, as time              -> 01:46:40, or null for other readers
    2024-03-04 23:30, as time                 -> 23:30
    "1e400", as double                        -> inf

Here they raise `ArrowInvalid`, as Arrow itself does for others. A double is as exact as a decimal if they differ by no
more than the double's last bits: 0.1 is 0.10, and so is 0.1 + 0.2 - 0.2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, time
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from foldhouse.values.given import shown

_LEAST_DIGITS = {pa.float64(): 2.0**-50, pa.float32(): 2.0**-21}
"""Type -> which part of a value are its last two bits: sums of floats are off by as much, and so are Arrow's casts."""
_GREATEST_FLOAT = (2 - 2.0**-23) * 2.0**127
_IN_A_DAY = {"s": 86_400, "ms": 86_400 * 10**3, "us": 86_400 * 10**6, "ns": 86_400 * 10**9}
"""Unit of a time -> how many of them a day has."""
Cuts = Callable[[Any], bool]
"""Whether Arrow would cut a value, which is not null."""


def exact_array(values: Sequence[Any], kind: pa.DataType | None) -> pa.Array:
    """Return Python values as an Arrow array; of the type that Arrow chooses for `None`.

    Raises:
        pa.ArrowInvalid: a value does not fit the type; or other exceptions of Arrow, `TypeError` or `ValueError`.
    """
    made = pa.array(values, kind)
    cuts = None if kind is None else _cuts(kind)
    if cuts is not None:
        cut = next((value for value in values if _is_cut(cuts, value)), None)
        if cut is not None:
            raise pa.ArrowInvalid(f"{shown(cut)} would be cut to fit {kind}")
    return made


def _is_cut(cuts: Cuts, value: Any) -> bool:
    return value is not None and cuts(value)


def _cuts(kind: pa.DataType) -> Cuts | None:
    """Return what finds a value that Arrow would cut; `None` for a type for which it cuts none."""
    if pa.types.is_integer(kind):
        return lambda value: not isinstance(value, int) and value != int(value)
    if pa.types.is_date(kind):
        return lambda value: isinstance(value, datetime) and value.time() != time()
    if pa.types.is_timestamp(kind):
        # A number with a part is no count of microseconds. `nanosecond` is of a timestamp of pandas.
        return lambda value: isinstance(value, float) or getattr(value, "nanosecond", 0) != 0
    if pa.types.is_time(kind):
        end = _IN_A_DAY[kind.unit]
        return lambda value: isinstance(value, float) or (isinstance(value, int) and not 0 <= value < end)
    if pa.types.is_float32(kind):
        return lambda value: not math.isinf(value) and abs(value) > _GREATEST_FLOAT
    if pa.types.is_struct(kind):
        return _of_struct({field.name: _cuts(field.type) for field in kind})
    if pa.types.is_map(kind):
        return _of_parts([_cuts(kind.key_type), _cuts(kind.item_type)], _pairs)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _of_parts([_cuts(kind.value_type)], lambda value: ((one,) for one in value))
    return None


def _of_struct(fields: Mapping[str, Cuts | None]) -> Cuts | None:
    known = {name: cuts for name, cuts in fields.items() if cuts is not None}

    def cuts(value: Any) -> bool:
        given = value if isinstance(value, Mapping) else dict(value)
        return any(_is_cut(of_field, given.get(name)) for name, of_field in known.items())

    return cuts if known else None


def _of_parts(parts: Sequence[Cuts | None], rows: Callable[[Any], Iterable[Sequence[Any]]]) -> Cuts | None:
    def cuts(value: Any) -> bool:
        return any(
            part is not None and _is_cut(part, one) for row in rows(value) for part, one in zip(parts, row, strict=True)
        )

    return cuts if any(part is not None for part in parts) else None


def _pairs(value: Any) -> Iterable[Sequence[Any]]:
    return value.items() if isinstance(value, Mapping) else value


def exact_cast(given: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Return a column as another type.

    Raises:
        pa.ArrowInvalid, pa.ArrowNotImplementedError: a value does not fit the type, or there is no such cast.
    """
    if given.type == kind:
        return given
    made = [chunk.cast(kind) for chunk in given.chunks]
    for one, other in zip(given.chunks, made, strict=True):
        _check(one, other)
    return pa.chunked_array(made, kind)


def _check(given: pa.Array, made: pa.Array) -> None:
    """Refuse values of which a cast kept a part only."""
    if pa.types.is_dictionary(given.type):
        given = given.dictionary_decode()
    have, want = given.type, made.type
    if have == want:
        return
    if pa.types.is_struct(want) and pa.types.is_struct(have):
        for field, column in zip(want, made.flatten(), strict=True):
            place = have.get_field_index(field.name)
            if place >= 0:  # a missing field is null
                _check(given.flatten()[place], column)
    elif pa.types.is_map(want) and pa.types.is_map(have):
        for one, other in zip(_of_map(given), _of_map(made), strict=True):
            _check(one, other)
    elif _is_list(want) and _is_list(have):
        _check(given.flatten(), made.flatten())
    elif (kept := _kept(given, made)) is not None and not pc.all(kept, min_count=0).as_py():
        at = pc.index(kept, False).as_py()
        # A time that is outside of the day cannot be shown.
        cut = f"fit {want}" if pa.types.is_time(want) else made[at]
        raise pa.ArrowInvalid(f"{given[at]} would be cut to {cut}")


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _of_map(given: pa.MapArray) -> tuple[pa.Array, pa.Array]:
    """Return the keys and the values of maps, which may be a slice of others."""
    if not len(given):
        return given.keys.slice(0, 0), given.items.slice(0, 0)
    first, last = given.offsets[0].as_py(), given.offsets[-1].as_py()
    return given.keys.slice(first, last - first), given.items.slice(first, last - first)


def _kept(given: pa.Array, made: pa.Array) -> pa.Array | None:
    """Return which values a cast kept, null for null; `None` for a cast that Arrow checks itself."""
    have, want = given.type, made.type
    if pa.types.is_date(want) and pa.types.is_timestamp(have):
        local = given if have.tz is None else pc.local_timestamp(given)
        return pc.equal(made.cast(local.type), local)
    is_number = pa.types.is_integer(have) or pa.types.is_floating(have)
    if pa.types.is_boolean(want) and is_number:
        return pc.equal(made.cast(pa.int8()).cast(have), given)
    if pa.types.is_decimal(want) and pa.types.is_floating(have):
        off = pc.abs(pc.subtract(made.cast(pa.float64()), given.cast(pa.float64())))
        return pc.less_equal(off, pc.multiply(pc.abs(given.cast(pa.float64())), _LEAST_DIGITS.get(have, 0.0)))
    if pa.types.is_time(want) and pa.types.is_integer(have):
        return pc.and_(pc.greater_equal(given, 0), pc.less(given, _IN_A_DAY[want.unit]))
    if pa.types.is_time(want) and pa.types.is_timestamp(have):  # of the day 0 there is nothing to lose
        local = given if have.tz is None else pc.local_timestamp(given)
        return pc.equal(pc.floor_temporal(local, unit="day").cast(pa.int64()), 0)
    if pa.types.is_floating(want) and _is_text(have):
        # The texts of an infinity have no digit.
        return pc.invert(pc.and_(pc.is_inf(made), pc.match_substring_regex(given.cast(pa.large_string()), "[0-9]")))
    if pa.types.is_float32(want):
        return pc.equal(pc.is_inf(made), pc.is_inf(given.cast(pa.float64())))
    return None
