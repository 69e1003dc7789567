"""The number of rows that Parquet footers say, without decoding all of each.

Decoding a footer takes longer than decoding the rows of a small file. Files with the same columns have footers that
begin with the same bytes, up to the number of rows: what is before it is gone through once for all of them.

Source: the compact protocol of Apache Thrift, and the struct `FileMetaData` of the Parquet format: a version, a schema,
and the number of rows as field 3.
"""

from __future__ import annotations

from collections.abc import Sequence

Bytes = bytes | memoryview

_ROWS = 3
"""The number of the field of `FileMetaData`."""
_STOP, _BYTE, _NUMBERS, _DOUBLE, _BINARY, _LISTS, _STRUCT = 0, 3, (4, 5, 6), 7, 8, (9, 10), 12
_BOOLEANS = (1, 2)
"""A field with a boolean has the value as its type; in a list, each is one byte."""
_MANY = 15
"""A list of so many elements says their number after it."""


def row_counts(footers: Sequence[Bytes]) -> list[int] | None:
    """Return the number of rows that each footer says.

    Args:
        footers: of Parquet files; at least one.

    Returns:
        The numbers; `None` if the footers do not begin alike, or with anything else than a version and a schema.
    """
    try:
        at = _place_of_rows(footers[0])
        beginning = footers[0][:at]
        return [_zigzag(one, at) for one in footers] if all(one[:at] == beginning for one in footers) else None
    except (IndexError, ValueError):
        return None


def _place_of_rows(footer: Bytes) -> int:
    """Return where the number of rows begins."""
    number, kind, at = _field(footer, 0, 0)
    while number < _ROWS:
        at = _after(footer, at, kind)
        number, kind, at = _field(footer, at, number)
    if number != _ROWS or kind not in _NUMBERS:
        raise ValueError(f"field {number} of type {kind}")
    return at


def _field(data: Bytes, at: int, before: int) -> tuple[int, int, int]:
    """Return the number and the type of a field, and where its value begins; `before` is the number of the last one."""
    first = data[at]
    if first == _STOP or first >> 4:
        return before + (first >> 4), first & 0xF, at + 1
    return _zigzag(data, at + 1), first & 0xF, _varint(data, at + 1)[1]


def _after(data: Bytes, at: int, kind: int) -> int:
    """Return where a value ends."""
    if kind in _BOOLEANS:
        return at
    if kind == _BYTE:
        return at + 1
    if kind in _NUMBERS:
        return _varint(data, at)[1]
    if kind == _DOUBLE:
        return at + 8
    if kind == _BINARY:
        size, at = _varint(data, at)
        return at + size
    if kind in _LISTS:
        size, kind, at = data[at] >> 4, data[at] & 0xF, at + 1
        if size == _MANY:
            size, at = _varint(data, at)
        if kind in _BOOLEANS:
            return at + size
        for _ in range(size):
            at = _after(data, at, kind)
        return at
    if kind != _STRUCT:
        raise ValueError(f"type {kind}")
    number, kind, at = _field(data, at, 0)
    while kind != _STOP:
        number, kind, at = _field(data, _after(data, at, kind), number)
    return at


def _zigzag(data: Bytes, at: int) -> int:
    """Read a number with a sign."""
    value = _varint(data, at)[0]
    return (value >> 1) ^ -(value & 1)


def _varint(data: Bytes, at: int) -> tuple[int, int]:
    """Read a number of seven bits a byte, and return where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
