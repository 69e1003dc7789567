r"""The lines of a file as text: read by Arrow where all of them are well-formed, one by one where some are not.

Both ways read the same. Fields stand apart by the delimiter, lines by `\n`, `\r\n` or `\r`. A field that begins with a
quote ends at the quote that closes it, `""` in it being one quote; a quote anywhere else is a character like any other.
Empty lines do not count. This is how Python's `csv.reader(strict=True)` reads, which is the second way.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from foldhouse.landing.format import CsvFormat

_PHYSICAL_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_LINE_END = re.compile(r"(?:\r\n|\r|\n)\Z")


@dataclass(frozen=True)
class Lines:
    """The lines of a file, counted from 1 after the header.

    Args:
        text: the columns of the well-formed lines.
        numbers: the line number of each row of `text`.
        count: how many lines there are, malformed ones included.
        malformed: line number -> what is wrong, for lines that are not the CSV of the format.
        raw: the text of every line without its end, line 1 first; empty where Arrow read the file.
    """

    text: pa.Table
    numbers: Sequence[int]
    count: int
    malformed: Mapping[int, str]
    raw: Sequence[str]


def read_fast(body: bytes, format: CsvFormat) -> Lines | None:
    """Read with Arrow; None where a line is malformed, or where Arrow would not read as `read_exactly` does."""
    if _has_loose_quotes(body, format.delimiter.encode()):
        return None
    names = [column.name for column in format.columns]
    try:
        text = arrow_csv.read_csv(
            pa.BufferReader(body),
            arrow_csv.ReadOptions(column_names=names, use_threads=False),
            arrow_csv.ParseOptions(delimiter=format.delimiter, newlines_in_values=True),
            arrow_csv.ConvertOptions(column_types={name: pa.string() for name in names}),
        )
    except pa.ArrowInvalid:
        return None
    longest_characters = max(pc.max(pc.utf8_length(column)).as_py() or 0 for column in text.columns)
    if longest_characters > csv.field_size_limit():
        return None
    return Lines(text, range(1, text.num_rows + 1), text.num_rows, {}, ())


def read_exactly(body: bytes, format: CsvFormat) -> Lines:
    """Read line by line, keep the raw text, and set the malformed lines aside."""
    raw: list[str] = []
    rows: list[list[str]] = []
    numbers: list[int] = []
    malformed: dict[int, str] = {}
    for text, fields in _records(_PHYSICAL_LINE.findall(body.decode()), format.delimiter):
        if not fields:
            continue
        raw.append(_LINE_END.sub("", text))
        if isinstance(fields, str):
            malformed[len(raw)] = f"quotes: found {fields}, expected every quoted field to be closed before a delimiter"
        elif len(fields) != len(format.columns):
            malformed[len(raw)] = f"columns: found {len(fields)}, expected {len(format.columns)}"
        else:
            rows.append(fields)
            numbers.append(len(raw))
    names = [column.name for column in format.columns]
    text = pa.table({name: pa.array([row[at] for row in rows], pa.string()) for at, name in enumerate(names)})
    return Lines(text, numbers, len(raw), malformed, raw)


def _has_loose_quotes(body: bytes, delimiter: bytes) -> bool:
    """Say whether a quote is anything but one end of a quoted field, or doubled inside of one."""
    if b'"' not in body:
        return False
    other = b"[^%b\r\n]" % re.escape(delimiter)
    quoted_field = rb'"(?<!%b")(?:[^"]++|"")*+"(?!%b)' % (other, other)  # the literal first: it is searched for faster
    return b'"' in re.sub(quoted_field, b"", body)


def _records(physical: Sequence[str], delimiter: str) -> Iterator[tuple[str, list[str] | str]]:
    """Yield each line's raw text with its fields, or with what is wrong with its quotes.

    A line with wrong quotes is one physical line, so that a quote that is never closed takes no other line with it.
    """
    at = 0
    while at < len(physical):
        start = at
        reader = csv.reader(islice(physical, start, None), delimiter=delimiter, strict=True)
        try:
            for fields in reader:
                end = start + reader.line_num
                yield "".join(physical[at:end]), fields
                at = end
        except csv.Error as error:
            yield physical[at], str(error)
            at += 1
