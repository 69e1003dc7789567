"""The bytes of a landing file, and the ways in which a whole file cannot be read."""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from pathlib import Path

from foldhouse.errors import UnreadableFile
from foldhouse.landing.format import CsvFormat

_GZIP = b"\x1f\x8b"
_UTF_8_MARK = b"\xef\xbb\xbf"
_UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_FIRST_LINE = re.compile(rb"[^\r\n]*")


def content_of(path: Path) -> bytes:
    """Return the uncompressed bytes of a file, read once.

    Raises:
        UnreadableFile: a file that is gone or not readable, empty, no gzip, or a truncated or corrupt one.
    """
    try:
        stored = path.read_bytes()
    except OSError as error:
        raise _unreadable(path, f"cannot be read ({error.strerror})", "see that it is there and may be read") from error
    content = _decompressed(path, stored) if path.suffix == ".gz" else stored
    if content.startswith(_GZIP):
        raise _unreadable(path, "is gzip where CSV was expected", "compress it once, and name it .csv.gz")
    if not content:
        raise _unreadable(path, "is empty", "land it again; a day without events is a file with the header alone")
    return content


def body_of(path: Path, content: bytes, format: CsvFormat) -> bytes:
    """Return the bytes after the header, known to be UTF-8 without NUL bytes.

    Raises:
        UnreadableFile: another encoding, NUL bytes, or another header.
    """
    if content.startswith(_UTF_16_MARKS):
        raise _unreadable(path, "is UTF-16", "save it as UTF-8")
    if (nul := content.find(b"\0")) >= 0:
        raise _unreadable(path, f"has a NUL byte {_place(content, nul)}", "save it as UTF-8 text")
    try:
        content.decode()
    except UnicodeDecodeError as error:
        found = f"is not UTF-8: byte 0x{content[error.start]:02x} {_place(content, error.start)}"
        raise _unreadable(path, found, "save it as UTF-8, for example with `iconv -f LATIN1 -t UTF-8`") from None
    header = content.removeprefix(_UTF_8_MARK)
    line = _FIRST_LINE.match(header)[0]  # type: ignore[index]  # the pattern matches anything
    if next(csv.reader([line.decode()], delimiter=format.delimiter), []) != format.header:
        expected = format.delimiter.join(format.header)
        found = f"has the header {shown(line.decode(), at_most_characters=1000)}, expected {expected!r}"
        raise _unreadable(path, found, "correct the file, or the columns of its format")
    return header[len(line) :]


def shown(text: str, at_most_characters: int = 80) -> str:
    """Return text as a message shows it: quoted, escaped, and cut where it is long."""
    return repr(text if len(text) <= at_most_characters else f"{text[:at_most_characters]}…")


def _decompressed(path: Path, stored: bytes) -> bytes:
    try:
        return gzip.decompress(stored)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        if stored.startswith(_GZIP):
            raise _unreadable(path, f"is a truncated or corrupt gzip ({error})", "land it again, whole") from error
        raise _unreadable(path, "is not gzip", "compress it, or name it .csv") from error


def _unreadable(path: Path, found: str, way_out: str) -> UnreadableFile:
    return UnreadableFile(f"{path} {found}; {way_out}. Nothing of it was landed")


def _place(content: bytes, offset: int) -> str:
    """Say where a byte is: the offset counted from 0, the physical line from 1."""
    line = content.count(b"\n", 0, offset) + 1
    return f"at byte offset {offset}, line {line}"
