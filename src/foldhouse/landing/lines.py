"""The lines of a file as text, block by block: parsed by Arrow if all are well-formed, else one by one.

Both ways give the same lines, which `records` defines. Arrow is many times faster, and parses nearly every block.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from foldhouse.landing.format import CsvFormat
from foldhouse.landing.limits import MIB
from foldhouse.landing.records import Record, Scanner

_BLOCK = 4 * MIB
_LINE_END = re.compile(rb"[\r\n]")


@dataclass(frozen=True)
class Lines:
    """Consecutive lines of a file, counted from 1 after the header.

    Args:
        text: the columns of the well-formed lines.
        numbers: the line number of each row of `text`.
        first: the number of the first line.
        count: how many lines there are, malformed ones included.
        malformed: line number -> what is wrong, for lines that are not the CSV of the format.
        content: the bytes of the lines.
    """

    text: pa.Table
    numbers: Sequence[int]
    first: int
    count: int
    malformed: Mapping[int, str]
    content: bytes

    def raw(self, numbers: Iterable[int], format: CsvFormat) -> dict[int, str]:
        """Return the text of lines without their ends, cut where it is longer than the limit of the format."""
        asked, keep = set(numbers), format.limits.evidence_bytes
        found: dict[int, str] = {}
        if asked:
            scanner = Scanner(_ended(self.content), _delimiter(format), format.limits.line_bytes, is_final=True)
            for number, record in enumerate(scanner.records(), self.first):
                if number in asked:
                    found[number] = _evidence(self.content, record.start, record.end, keep)
                if len(found) == len(asked):
                    break
        return found


@dataclass(frozen=True)
class Told:
    """The lines of a text that were parsed one by one.

    Args:
        lines: the lines.
        is_cut: the text ends inside of the last line, and what follows up to the next line end belongs to it.
    """

    lines: Lines
    is_cut: bool


class LineReader:
    """Cuts the body of a file into blocks of whole lines.

    Args:
        format: the columns and limits of the file.
    """

    def __init__(self, format: CsvFormat) -> None:
        self._format = format
        self._longest = format.limits.line_bytes
        self._next = 1
        self._rest = b""
        self._is_skipping = False

    def read(self, pieces: Iterable[bytes]) -> Iterator[Lines]:
        """Yield the lines of the body, in blocks of some 4 MiB.

        Args:
            pieces: the bytes after the header, known to be UTF-8.
        """
        held: list[bytes] = []
        for piece in pieces:
            held.append(piece)
            if sum(map(len, held)) >= max(_BLOCK, self._longest):
                yield from self._block(b"".join(held), is_final=False)
                held.clear()
        yield from self._block(b"".join([*held, b"\n"]), is_final=True)

    def _block(self, new: bytes, *, is_final: bool) -> Iterator[Lines]:
        content = self._rest + self._after_skipped(new)
        if fast := read_fast(content, self._format, self._next):
            self._next += fast.count
            content = content[len(fast.content) :]
            yield fast
        if len(content) > self._longest or (is_final and content):
            told = read_exactly(content, self._format, self._next, is_final=is_final)
            self._next += told.lines.count
            self._is_skipping = told.is_cut
            content = content[len(told.lines.content) :]
            yield told.lines
        self._rest = content

    def _after_skipped(self, new: bytes) -> bytes:
        """Drop the rest of a line that was too long and began in an earlier block."""
        if not self._is_skipping:
            return new
        end = _LINE_END.search(new)
        self._is_skipping = end is None
        return new[end.start() :] if end else b""


def read_fast(content: bytes, format: CsvFormat, first: int) -> Lines | None:
    """Parse whole lines at the beginning of a text with Arrow, up to the first that Arrow would parse differently.

    Args:
        content: bytes from the beginning of a line.
        format: the columns and limits of the file.
        first: the number of the first line.

    Returns:
        The lines, or None where there are none, or one has another number of columns, or may be too long.
    """
    whole = content[: _clean_end(content, _delimiter(format))]
    if not whole:
        return None
    try:
        text = _arrow(whole, format)
    except pa.ArrowInvalid:
        return None
    if 2 * _longest_row(text) + 3 * text.num_columns > format.limits.line_bytes:
        return None
    return Lines(text, range(first, first + text.num_rows), first, text.num_rows, {}, whole)


def read_exactly(content: bytes, format: CsvFormat, first: int, *, is_final: bool) -> Told:
    """Parse the lines of a text one by one, and separate those that are not the CSV of the format.

    Args:
        content: bytes from the beginning of a line; with a line end at the end where they are final.
        format: the columns and limits of the file.
        first: the number of the first line.
        is_final: whether nothing follows.
    """
    scanner = Scanner(content, _delimiter(format), format.limits.line_bytes, is_final=is_final)
    good: list[bytes] = []
    numbers, malformed = array("q"), {}
    number, is_cut = first - 1, False
    for number, record in enumerate(scanner.records(), first):
        is_cut = record.is_cut
        if reason := _reason(record, format):
            malformed[number] = reason
            if len(malformed) > format.limits.bad_lines:
                break  # the file is refused
        else:
            numbers.append(number)
            line = content[record.start : record.end]
            good.append(_quoted(line, format) if record.is_loose else line)
    text = _arrow(b"\n".join([*good, b""]), format)
    return Told(Lines(text, numbers, first, number - first + 1, malformed, content[: scanner.at]), is_cut)


def _reason(record: Record, format: CsvFormat) -> str:
    size, longest = record.end - record.start, format.limits.line_bytes
    if record.fault:
        return f"quotes: found {record.fault}, expected every quoted field to be closed before a delimiter"
    if size > longest:
        return f"line: found {'more than ' if record.is_cut else ''}{size:,} bytes, expected at most {longest:,}"
    if record.columns != len(format.columns):
        return f"columns: found {record.columns}, expected {len(format.columns)}"
    return ""


def _clean_end(content: bytes, delimiter: bytes) -> int:
    """Return the end of the last whole line before the first that is badly quoted or incomplete."""
    if b'"' not in content:
        return max(content.rfind(b"\n"), content.rfind(b"\r")) + 1
    apart = re.escape(delimiter)
    # Possessive repeats (++, *+) never backtrack, so a hostile text takes linear time.
    field = rb'(?:"(?:[^"]++|"")*+"|[^"%b\r\n]*+)' % apart
    lines = re.compile(rb"(?:%b(?:%b%b)*+[\r\n])*+" % (field, apart, field))
    return lines.match(content).end()  # type: ignore[union-attr]  # the pattern matches anything


def _quoted(line: bytes, format: CsvFormat) -> bytes:
    """Return a line with literal quotes in the form that Arrow parses: each field quoted."""
    delimiter = _delimiter(format)
    # Group 1 is a quoted field, with its quotes still doubled; group 2 is an unquoted field.
    field = re.compile(rb'"((?:[^"]++|"")*+)"|([^%b\r\n]*+)' % re.escape(delimiter))
    fields, at = [], 0
    while at <= len(line):
        found = field.match(line, at)
        assert found is not None  # the pattern matches anything
        inside, bare = found.groups()
        fields.append(bare.replace(b'"', b'""') if inside is None else inside)
        at = found.end() + 1
    return delimiter.join(b'"%b"' % one for one in fields)


def _arrow(content: bytes, format: CsvFormat) -> pa.Table:
    names = [column.name for column in format.columns]
    if not content.strip(b"\r\n"):
        return pa.table({name: pa.array([], pa.string()) for name in names})
    return arrow_csv.read_csv(
        pa.BufferReader(content),
        arrow_csv.ReadOptions(column_names=names, use_threads=False, block_size=len(content) + 1),
        arrow_csv.ParseOptions(delimiter=format.delimiter, newlines_in_values=True),
        arrow_csv.ConvertOptions(column_types={name: pa.string() for name in names}),
    )


def _longest_row(text: pa.Table) -> int:
    """Return the bytes of the values of the longest row."""
    if not text.num_rows:
        return 0
    sizes = pc.binary_length(text.column(0))
    for column in text.columns[1:]:
        sizes = pc.add(sizes, pc.binary_length(column))
    longest: int = pc.max(sizes).as_py()
    return longest


def _ended(content: bytes) -> bytes:
    return content if content.endswith((b"\n", b"\r")) else content + b"\n"


def _evidence(content: bytes, start: int, end: int, keep: int) -> str:
    text = content[start : min(end, start + keep)].decode(errors="ignore")
    return text if end - start <= keep else f"{text}… ({end - start:,} bytes)"


def _delimiter(format: CsvFormat) -> bytes:
    return format.delimiter.encode()
