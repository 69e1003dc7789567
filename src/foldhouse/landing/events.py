"""From the text of the lines to typed events, and to the reason why a line cannot be one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc

from foldhouse.landing.body import shown
from foldhouse.landing.format import CsvColumn, CsvFormat
from foldhouse.landing.lines import Lines

_NULL = pa.scalar(None, pa.string())

# Text that shows nothing: separators, control and format characters, and invisible letters and marks. RE2 syntax.
_BLANK = (
    r"^[\pZ\p{Cc}\p{Cf}\x{034F}\x{115F}\x{1160}\x{17B4}\x{17B5}\x{180B}-\x{180F}"
    r"\x{2800}\x{3164}\x{FE00}-\x{FE0F}\x{FFA0}]*$"
)
_MOST_REASON = 1000


@dataclass(frozen=True)
class Typed:
    """The events among some lines by the schema of their format, and line number -> reason for those that are none."""

    events: pa.Table
    reasons: dict[int, str]


def typed(lines: Lines, format: CsvFormat, day: date, source_file: str) -> Typed:
    """Read every column by the rule of its type, and set aside the lines where one of them does not fit.

    Once more lines are bad than the limit of the format allows, the rest is not looked at: the file is refused.

    Args:
        lines: the text.
        format: the columns, and which of them must fall on the day.
        day: the day of the file.
        source_file: the name that the events carry.
    """
    most = format.limits.bad_lines
    found = {number: [reason] for number, reason in lines.malformed.items()}
    values = []
    for column in format.columns:
        text = lines.text[column.name]
        value = _values(text, column, most)
        wrong, expected = _wrong(text, value, column), column.expected or column.rule.expected
        if column.name == format.day:
            elsewhere = pc.not_equal(value.cast(pa.date32(), safe=False), pa.scalar(day))
            wrong, expected = pc.or_(wrong, pc.fill_null(elsewhere, False)), f"{expected} on {day}"
        for row in pc.indices_nonzero(wrong)[: most + 1].to_pylist():
            reason = f"{column.source}: found {shown(text[row].as_py())}, expected {expected}"
            found.setdefault(lines.numbers[row], []).append(reason)
        values.append(value)
    reasons = {number: _joined(found[number]) for number in sorted(found)}
    numbers = pa.array(lines.numbers, pa.int32())
    events = pa.table([*values, pa.repeat(pa.scalar(source_file), len(numbers)), numbers], schema=format.schema)
    if reasons:
        events = events.filter(pc.invert(pc.is_in(numbers, pa.array(reasons, pa.int32()))))
    return Typed(events, reasons)


def _joined(reasons: list[str]) -> str:
    text = "; ".join(reasons)
    return text if len(text) <= _MOST_REASON else f"{text[:_MOST_REASON]}…"


def _values(text: pa.ChunkedArray, column: CsvColumn, most: int) -> pa.ChunkedArray:
    """Return a column's values, null where its text is empty or does not fit."""
    cleaned = column.clean(text) if column.clean else text
    rule = column.rule
    if pa.types.is_string(rule.type):
        return pc.if_else(pc.equal(cleaned, ""), _NULL, cleaned)
    fitting = pc.if_else(pc.match_substring_regex(cleaned, rule.pattern), cleaned, _NULL)
    if pa.types.is_decimal(rule.type):  # zeros at the end are not decimals too many
        fitting = pc.replace_substring_regex(fitting, r"^(-?)\.", r"\10.")
        fitting = pc.replace_substring_regex(fitting, r"(\.[0-9]*?)0+$", r"\1")
    value = _cast(fitting, rule.type, [most])
    if pa.types.is_floating(rule.type):
        return pc.if_else(pc.is_finite(value), value, pa.scalar(None, rule.type))
    return value


def _wrong(text: pa.ChunkedArray, value: pa.ChunkedArray, column: CsvColumn) -> pa.ChunkedArray:
    """Say line by line whether a value is missing that should be there."""
    if column.required:
        shows_nothing = pc.match_substring_regex(text, _BLANK)
        if pa.types.is_string(value.type):  # what `clean` left of the text
            shows_nothing = pc.or_(shows_nothing, pc.fill_null(pc.match_substring_regex(value, _BLANK), True))
        return pc.or_(pc.is_null(value), shows_nothing)
    cleaned = column.clean(text) if column.clean else text
    return pc.and_(pc.is_null(value), pc.fill_null(pc.not_equal(cleaned, ""), True))


def _cast(text: pa.ChunkedArray, type: pa.DataType, most: list[int]) -> pa.ChunkedArray:
    """Cast text, null where it cannot be: halving costs each failure a logarithm instead of every line a look.

    Args:
        text: the text of a column.
        type: the type it becomes.
        most: how many more failures are looked for; once there are none left, the rest is null.
    """
    try:
        return text.cast(type)
    except pa.ArrowInvalid:
        if len(text) == 1 or most[0] < 0:
            most[0] -= len(text)
            return pa.chunked_array([pa.nulls(len(text), type)])
        half = len(text) // 2
        before = _cast(text[:half], type, most)
        return pa.chunked_array([*before.chunks, *_cast(text[half:], type, most).chunks], type)
