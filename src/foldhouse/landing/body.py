"""The bytes of a landing file after its header, known to be UTF-8 text."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator

from foldhouse.landing.content import Content
from foldhouse.landing.format import CsvFormat
from foldhouse.landing.opened import refused

_UTF_8_MARK = b"\xef\xbb\xbf"
_UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
# Lines also end with a carriage return alone, so `partition` by a newline would not do.
_FIRST_LINE = re.compile(rb"[^\r\n]*+")


def body_of(content: Content, format: CsvFormat) -> Iterator[bytes]:
    """Yield the bytes after the header, in pieces.

    Raises:
        UnreadableFile: what `Content.pieces` raises, another encoding, NUL bytes, or another header.
    """
    pieces, most = _text(content), format.limits.header_bytes
    head = b""
    for piece in pieces:
        head += piece
        if len(head) > most + len(_UTF_8_MARK) or b"\n" in head or b"\r" in head:
            break
    head = head.removeprefix(_UTF_8_MARK)
    line = _FIRST_LINE.match(head)[0]  # type: ignore[index]  # the pattern matches anything
    if len(line) > most:
        raise refused(content.path, f"has a header of more than {most:,} bytes", format.limits.raised("header_bytes"))
    if _fields(line, format) != format.header:
        expected = format.delimiter.join(format.header)
        found = f"has the header {shown(line.decode(), at_most_characters=1000)}, expected {expected!r}"
        raise refused(content.path, found, "correct the file, or the columns of its format")
    yield head[len(line) :]
    yield from pieces


def shown(text: str, at_most_characters: int = 80) -> str:
    """Return text as a message shows it: quoted, escaped, and cut where it is long."""
    return repr(text if len(text) <= at_most_characters else f"{text[:at_most_characters]}…")


def _fields(line: bytes, format: CsvFormat) -> list[str] | None:
    try:
        return next(csv.reader([line.decode()], delimiter=format.delimiter), [])
    except csv.Error:  # a name of more than 131,072 characters
        return None


def _text(content: Content) -> Iterator[bytes]:
    """Yield the pieces of a file as they are, once they are known to be UTF-8 without NUL bytes."""
    offset, lines, carried = 0, 1, b""
    for piece in content.pieces():
        if offset == 0 and piece.startswith(_UTF_16_MARKS):
            raise refused(content.path, "is UTF-16", "save it as UTF-8")
        if (nul := piece.find(b"\0")) >= 0:
            line = lines + piece.count(b"\n", 0, nul)
            found = f"has a NUL byte at byte offset {offset + nul}, line {line}"
            raise refused(content.path, found, "save it as UTF-8 text")
        text = carried + piece
        wrong = _first_wrong(text)
        carried = text[wrong.start :] if wrong else b""
        if wrong and not (wrong.end == len(text) and wrong.reason == "unexpected end of data"):
            line = lines + text.count(b"\n", 0, wrong.start)
            raise _not_utf_8(content, carried, offset + len(piece) - len(carried), line)
        yield piece
        offset += len(piece)
        lines += piece.count(b"\n")
    if carried:
        raise _not_utf_8(content, carried, offset - len(carried), lines)


def _first_wrong(text: bytes) -> UnicodeDecodeError | None:
    try:
        text.decode()
    except UnicodeDecodeError as error:
        return error
    return None


def _not_utf_8(content: Content, wrong: bytes, offset: int, line: int) -> Exception:
    found = f"is not UTF-8: byte 0x{wrong[0]:02x} at byte offset {offset}, line {line}"
    return refused(content.path, found, "save it as UTF-8, for example with `iconv -f LATIN1 -t UTF-8`")
