"""Functions of texts, dates and times, translated for Polars where that gives Spark's value, or fails.

Failing leaves a window to Spark: the case of letters beyond ASCII depends on the version of Unicode, and Polars cannot
count with days before the year 1 or after 9999.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from functools import partial
from typing import Any

import polars as pl
import pyarrow as pa

from foldhouse.logic.typed import MOMENTS, Typed, UnknownLogic, of_type

_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""The first of January of the year 1 and the last day of 9999, in days since 1970."""
_DAY_US = 86_400_000_000
_LARGEST_INTEGER = 2**31 - 1
_UNITS = {
    **dict.fromkeys(("year", "yyyy", "yy"), "1y"),
    "quarter": "1q",
    **dict.fromkeys(("month", "mon", "mm"), "1mo"),
    "week": "1w",
    **dict.fromkeys(("day", "dd"), "1d"),
    "hour": "1h",
    "minute": "1m",
    "second": "1s",
}
"""Unit of Spark's `date_trunc`, in small letters -> that of Polars."""
_DATE_UNITS = ("1y", "1q", "1mo", "1w")
"""Those that `trunc` of a date has."""


def _of_texts(values: Sequence[Typed], made: Callable[..., pl.Expr], kind: str = "string") -> Typed:
    return Typed(made(*(of_type(one, "string").made for one in values)), kind)


def _concat(values: Sequence[Typed]) -> Typed:
    return _of_texts(values, lambda *texts: pl.concat_str(texts, ignore_nulls=False))


def _length(values: Sequence[Typed]) -> Typed:
    return _of_texts(values, lambda text: text.str.len_chars().cast(pl.Int32), "integer")


def _contains(made: Callable[..., pl.Expr], values: Sequence[Typed]) -> Typed:
    """Translate a search for a literal, which Polars finds by its bytes, as Spark does."""
    text, part = (of_type(one, "string") for one in values)
    if part.constant is None or not part.constant.is_valid:
        raise UnknownLogic("a search for a text that is no literal")
    return Typed(made(text.made, part.constant.as_py()), "boolean")


def _in_case(change: Callable[[pl.Series], pl.Series], values: Sequence[Typed]) -> Typed:
    def changed(texts: pl.Series) -> pl.Series:
        if (texts.str.len_bytes() != texts.str.len_chars()).any():
            raise pa.ArrowInvalid("letters that are not ASCII")
        return change(texts)

    return _of_texts(values, lambda text: text.map_batches(changed, return_dtype=pl.String, is_elementwise=True))


def _trimmed(made: Callable[..., pl.Expr], values: Sequence[Typed]) -> Typed:
    return _of_texts(values, lambda text: made(text, " "))  # Spark removes blanks, no other white space


def _substring(values: Sequence[Typed]) -> Typed:
    text, start, length = values
    first, count = (None if one.constant is None else one.constant.as_py() for one in (start, length))
    if first is None or count is None or first < 1:
        raise UnknownLogic("a part of a text that is not from a literal place on")
    return Typed(of_type(text, "string").made.str.slice(first - 1, max(0, count)), "string")


def _within(given: Typed) -> pl.Expr:
    """Return a date or time that fails where Polars cannot tell its parts."""
    factor = 1 if given.type == "date" else _DAY_US

    def checked(values: pl.Series) -> pl.Series:
        if not values.to_physical().is_between(_FIRST_DAY * factor, (_LAST_DAY + 1) * factor, closed="left").all():
            raise pa.ArrowInvalid("a day before the year 1 or after 9999")
        return values

    kinds = {"date": pl.Date(), "timestamp": pl.Datetime("us", "UTC"), "timestamp_ntz": pl.Datetime("us")}
    return given.made.map_batches(checked, return_dtype=kinds[given.type], is_elementwise=True)


def _part(made: Callable[[Any], pl.Expr], kinds: Sequence[str], values: Sequence[Typed]) -> Typed:
    (given,) = values
    return Typed(made(_within(of_type(given, *kinds)).dt).cast(pl.Int32), "integer")


def _unit(given: Typed) -> str:
    text = None if given.constant is None else given.constant.as_py()
    # Python's lower case has an ASCII letter for the sign of Kelvin, and Java's has not.
    if not isinstance(text, str) or not text.isascii() or text.lower() not in _UNITS:
        raise UnknownLogic("a unit of time")
    return _UNITS[text.lower()]


def _truncated_time(values: Sequence[Typed]) -> Typed:
    unit, given = _unit(values[0]), of_type(values[1], *MOMENTS)
    if given.type != "timestamp":
        raise UnknownLogic("a time without a zone")
    return Typed(_within(given).dt.truncate(unit), given.type)


def _truncated_date(values: Sequence[Typed]) -> Typed:
    given, unit = of_type(values[0], "date"), _unit(values[1])
    if unit not in _DATE_UNITS:  # of which Spark makes null
        raise UnknownLogic("a unit of less than a week")
    return Typed(_within(given).dt.truncate(unit), "date")


def _moved(sign: int, values: Sequence[Typed]) -> Typed:
    day, days = of_type(values[0], "date"), of_type(values[1], "byte", "short", "integer")
    moved = day.made.to_physical().cast(pl.Int64) + sign * days.made.cast(pl.Int64)
    return Typed(moved.map_batches(_fitting, return_dtype=pl.Int32, is_elementwise=True).cast(pl.Date), "date")


def _days_between(values: Sequence[Typed]) -> Typed:
    end, start = (of_type(one, "date").made.to_physical().cast(pl.Int64) for one in values)
    return Typed((end - start).map_batches(_fitting, return_dtype=pl.Int32, is_elementwise=True), "integer")


def _fitting(numbers: pl.Series) -> pl.Series:
    if not numbers.is_between(-_LARGEST_INTEGER, _LARGEST_INTEGER).all():
        raise pa.ArrowInvalid("a number of days that is no integer")
    return numbers.cast(pl.Int32)


_DATE = ("date",)
_Function = Callable[[Sequence[Typed]], Typed]
_OF_ONE: dict[str, _Function] = {
    "Length": _length,
    "Upper": partial(_in_case, lambda texts: texts.str.to_uppercase()),
    "Lower": partial(_in_case, lambda texts: texts.str.to_lowercase()),
    "StringTrim": partial(_trimmed, lambda text, blank: text.str.strip_chars(blank)),
    "StringTrimLeft": partial(_trimmed, lambda text, blank: text.str.strip_chars_start(blank)),
    "StringTrimRight": partial(_trimmed, lambda text, blank: text.str.strip_chars_end(blank)),
    "Year": partial(_part, lambda parts: parts.year(), _DATE),
    "Quarter": partial(_part, lambda parts: parts.quarter(), _DATE),
    "Month": partial(_part, lambda parts: parts.month(), _DATE),
    "DayOfMonth": partial(_part, lambda parts: parts.day(), _DATE),
    "DayOfYear": partial(_part, lambda parts: parts.ordinal_day(), _DATE),
    "Hour": partial(_part, lambda parts: parts.hour(), MOMENTS),
    "Minute": partial(_part, lambda parts: parts.minute(), MOMENTS),
    "Second": partial(_part, lambda parts: parts.second(), MOMENTS),
}
_OF_TWO: dict[str, _Function] = {
    "StartsWith": partial(_contains, lambda text, part: text.str.starts_with(part)),
    "EndsWith": partial(_contains, lambda text, part: text.str.ends_with(part)),
    "Contains": partial(_contains, lambda text, part: text.str.contains(part, literal=True)),
    "TruncTimestamp": _truncated_time,
    "TruncDate": _truncated_date,
    "DateAdd": partial(_moved, 1),
    "DateSub": partial(_moved, -1),
    "DateDiff": _days_between,
}
FUNCTIONS: dict[str, tuple[_Function, Container[int]]] = {
    "Concat": (_concat, range(1, 1_000)),
    "Substring": (_substring, (3,)),
    **{kind: (function, (1,)) for kind, function in _OF_ONE.items()},
    **{kind: (function, (2,)) for kind, function in _OF_TWO.items()},
}
"""Kind of an expression -> its translation from the translated operands, and how many it may have."""
