"""From the text of the lines to typed events, and to the reason why a line cannot be one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc

from foldhouse.landing.content import shown
from foldhouse.landing.format import CsvColumn, CsvFormat
from foldhouse.landing.lines import Lines

_NULL = pa.scalar(None, pa.string())


@dataclass(frozen=True)
class Typed:
    """The events of a file by the schema of its format, and line number -> reason for the lines that are none."""

    events: pa.Table
    reasons: dict[int, str]


def typed(lines: Lines, format: CsvFormat, day: date, source_file: str) -> Typed:
    """Read every column by the rule of its type, and set aside the lines where one of them does not fit.

    Args:
        lines: the text.
        format: the columns, and which of them must fall on the day.
        day: the day of the file.
        source_file: the name that the events carry.
    """
    found = {number: [reason] for number, reason in lines.malformed.items()}
    values = []
    for column in format.columns:
        text = lines.text[column.name]
        value = _values(text, column)
        wrong, expected = _wrong(text, value, column), column.expected or column.rule.expected
        if column.name == format.day:
            elsewhere = pc.not_equal(value.cast(pa.date32(), safe=False), pa.scalar(day))
            wrong, expected = pc.or_(wrong, pc.fill_null(elsewhere, False)), f"{expected} on {day}"
        for row in pc.indices_nonzero(wrong).to_pylist():
            reason = f"{column.source}: found {shown(text[row].as_py())}, expected {expected}"
            found.setdefault(lines.numbers[row], []).append(reason)
        values.append(value)
    reasons = {number: "; ".join(found[number]) for number in sorted(found)}
    numbers = pa.array(lines.numbers, pa.int32())
    events = pa.table([*values, pa.repeat(pa.scalar(source_file), len(numbers)), numbers], schema=format.schema)
    if reasons:
        events = events.filter(pc.invert(pc.is_in(numbers, pa.array(reasons, pa.int32()))))
    return Typed(events, reasons)


def _values(text: pa.ChunkedArray, column: CsvColumn) -> pa.ChunkedArray:
    """Return a column's values, null where its text is empty or does not fit."""
    cleaned = column.clean(text) if column.clean else text
    rule = column.rule
    if pa.types.is_string(rule.type):
        return pc.if_else(pc.equal(cleaned, ""), _NULL, cleaned)
    fitting = pc.if_else(pc.match_substring_regex(cleaned, rule.pattern), cleaned, _NULL)
    if pa.types.is_decimal(rule.type):  # zeros at the end are not decimals too many
        fitting = pc.replace_substring_regex(fitting, r"(\.[0-9]*?)0+$", r"\1")
    return _cast(fitting, rule.type)


def _wrong(text: pa.ChunkedArray, value: pa.ChunkedArray, column: CsvColumn) -> pa.ChunkedArray:
    """Say line by line whether a value is missing that should be there."""
    if column.required:
        return pc.or_(pc.is_null(value), pc.match_substring_regex(text, r"^\s*$"))
    cleaned = column.clean(text) if column.clean else text
    return pc.and_(pc.is_null(value), pc.fill_null(pc.not_equal(cleaned, ""), True))


def _cast(text: pa.ChunkedArray, type: pa.DataType) -> pa.ChunkedArray:
    """Cast text, null where it cannot be: halving costs each failure a logarithm instead of every line a look."""
    try:
        return text.cast(type)
    except pa.ArrowInvalid:
        if len(text) == 1:
            return pa.chunked_array([pa.nulls(1, type)])
        half = len(text) // 2
        return pa.chunked_array([*_cast(text[:half], type).chunks, *_cast(text[half:], type).chunks], type)
