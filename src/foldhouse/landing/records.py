r"""Finds the end of each line of a text, even with wrong quotes, in time linear in the length of the text.

The delimiter separates fields; `\n`, `\r\n` or `\r` ends a line. A field that begins with a quote ends at its closing
quote, and `""` within it is one quote. A quote anywhere else is an ordinary character. Empty lines do not count. A line
with wrong quotes is one physical line, so a quote that is never closed costs no other line. Python's
`csv.reader(strict=True)` reads in the same way and is the oracle in the tests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

# All repeats are possessive (++, *+): they never backtrack, so no text can make them slow.
_PHYSICAL_LINE = re.compile(rb"[^\r\n]*+")
# The inside of a quoted field: two quotes stand for one.
_QUOTED = re.compile(rb'(?:[^"]++|"")*+')
_LINE_ENDS = b"\r\n"
_NOT_CLOSED = "a quote that is not closed"
_TEXT_AFTER = "text after a closing quote"


@dataclass(frozen=True)
class Record:
    """One line.

    Args:
        start: the offset of its first byte.
        end: the offset after its last byte, its line end left out.
        columns: how many fields it has; 0 for one that cannot be told apart into fields.
        fault: what is wrong with its quotes; empty where nothing is, and where it is only too long.
        is_loose: it has quotes that are characters like any other.
        is_cut: the text ends inside of it, and what follows up to the next line end belongs to it.
    """

    start: int
    end: int
    columns: int = 0
    fault: str = ""
    is_loose: bool = False
    is_cut: bool = False


@dataclass
class _Way:
    """One way to read lines up to an opening quote, and how far it has come.

    Args:
        at: the offset that was reached.
        is_quoted: whether this offset is inside a quoted field.
        fault: the fault at the offset; empty if the line was only too long.
    """

    at: int
    is_quoted: bool
    fault: str = ""


class Scanner:
    """Finds the lines of a text, one after the other.

    Two lines that reach the same opening quote continue alike from there. So the scanner remembers, at each quote that
    a wrong line opened, how far it read, and the next line that reaches the quote continues from that place. Each byte
    is read only a few times, even if every line opens a quote that is never closed.

    Args:
        text: the bytes, from the beginning of a line; with a line end at its end where it is final.
        delimiter: the byte between fields.
        longest: the bytes of the longest line that is read as one.
        is_final: whether nothing follows the text.
    """

    def __init__(self, text: bytes, delimiter: bytes, longest: int, *, is_final: bool) -> None:
        self.at = 0
        self.scanned = 0
        self._text = text
        self._delimiter = delimiter
        self._longest = longest
        self._is_final = is_final
        apart = re.escape(delimiter)
        field = rb'(?:[^"%b\r\n][^%b\r\n]*+)?' % (apart, apart)
        self._unquoted = re.compile(rb"(?:%b%b)*+%b" % (field, apart, field))
        self._ways: dict[int, _Way] = {}

    def records(self) -> Iterator[Record]:
        """Yield the lines that are whole; `at` is then where the first one begins that may go on after the text."""
        while self.at < len(self._text):
            record = self._record(self.at, self._ways)
            if record is None:
                return
            self.at = record.end + (not record.is_cut)  # the rest of a `\r\n` is an empty line, and does not count
            if record.end > record.start:
                yield record

    def _record(self, start: int, ways: dict[int, _Way]) -> Record | None:
        """Return the line at an offset, or None where it may go on after the text."""
        text, stop = self._text, start + self._longest
        at, columns, is_quoted, is_loose = start, 1, False, False
        opened: list[int] = []
        joined: list[_Way] = []
        while at <= stop:
            if is_quoted:
                at = self._reached(_QUOTED, at, stop + 1)
                if at > stop or at == len(text) or text[at : at + 2] == b'""':
                    break
                if at + 1 == len(text):
                    return None
                if text[at + 1] in self._delimiter:
                    at, columns, is_quoted = at + 2, columns + 1, False
                    continue
                if text[at + 1] not in _LINE_ENDS:
                    return self._wrong(start, opened, joined, _Way(at, True, _TEXT_AFTER))
                end = at + 1
            else:
                end = self._reached(self._unquoted, at, len(text))
                columns += text.count(self._delimiter, at, end)
                is_loose = is_loose or text.find(b'"', at, end) >= 0
                at = end
                if at == len(text):
                    break
                if text[at] not in _LINE_ENDS:
                    if way := ways.get(at):
                        joined.append(way)
                        at, is_quoted = way.at, way.is_quoted
                        if way.fault:
                            return self._wrong(start, opened, joined, way)
                    else:
                        opened.append(at)
                        at, is_quoted = at + 1, True
                    continue
            if end > stop:
                at, is_quoted = end, False
                break
            return self._record(start, {}) if joined else Record(start, end, columns, is_loose=is_loose)
        if at == len(text) and self._is_final:
            return self._wrong(start, opened, joined, _Way(at, True, _NOT_CLOSED))
        if at == len(text) and at <= stop:
            return None
        return self._wrong(start, opened, joined, _Way(at, is_quoted))

    def _wrong(self, start: int, opened: list[int], joined: list[_Way], way: _Way) -> Record | None:
        """Return the physical line at an offset as a wrong one, and remember how far it was followed."""
        for other in joined:
            other.at, other.is_quoted, other.fault = way.at, way.is_quoted, way.fault
        self._ways.update(dict.fromkeys(opened, way))
        end = self._reached(_PHYSICAL_LINE, start, len(self._text))
        is_cut = end == len(self._text)
        if is_cut and end - start <= self._longest:
            return None
        is_too_long = end - start > self._longest
        return Record(start, end, fault="" if is_too_long else way.fault or _NOT_CLOSED, is_cut=is_cut)

    def _reached(self, pattern: re.Pattern[bytes], at: int, stop: int) -> int:
        end = pattern.match(self._text, at, stop).end()  # type: ignore[union-attr]  # the patterns match anything
        self.scanned += end - at
        return end
