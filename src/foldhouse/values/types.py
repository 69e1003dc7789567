"""Iceberg types as text: `decimal(18,4)`, `list<string>`, `struct<word: string, units: int>`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from foldhouse.errors import DefinitionError
from foldhouse.values.given import shown

MOST_NESTED = 30
"""The most lists, maps and structs that a type may contain."""
_PLAIN = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "string": pa.string(),
    "binary": pa.binary(),
    "uuid": pa.binary(16),
}
# Matches `decimal(12,2)`, and a fixed type as Iceberg writes it, `fixed[16]`, or as people do, `fixed(16)`.
_SIZED = re.compile(r"(decimal)\((\d{1,2}),(\d{1,2})\)|(fixed)[\[(](\d{1,9})[\])]")
_NESTED = re.compile(r"(list|map|struct)<(.*)>")
MOST_FIXED_BYTES = 2**20
"""Of a fixed binary value; Arrow counts them with 32 bits, and a row this long is a mistake."""
_FIELD = re.compile(r"(\w+):(.+)")


def arrow_type(kind: str | pa.DataType, *, keeps_uuids: bool = False) -> pa.DataType:
    """Return the Arrow type of an Iceberg type.

        decimal(18,4)                          -> decimal128(18, 4)
        map<string, list<int>>                 -> map<string, list<int32>>
        struct<word: string, units: long>      -> struct<word: string, units: int64>

    Args:
        kind: the type as text. An Arrow type is returned unchanged.
        keeps_uuids: whether a UUID has Arrow's type for UUIDs, of which Arrow cannot make values from Python's. By
            default it has the type of its 16 bytes.

    Raises:
        DefinitionError: the text is not a type.
    """
    if isinstance(kind, pa.DataType):
        return kind
    is_text = isinstance(kind, str) and kind.count("<") <= MOST_NESTED
    plain = {**_PLAIN, "uuid": pa.uuid()} if keeps_uuids else _PLAIN
    found = _parsed(re.sub(r"\s", "", kind), plain) if is_text else None
    if found is None:
        raise DefinitionError(
            f"{shown(kind)} is not a type; an Iceberg type is needed, such as {', '.join(_PLAIN)}, decimal(18,4), "
            "fixed[16], list<string>, map<string, long> or struct<word: string, units: int>, with no more than "
            f"{MOST_NESTED} of the last three"
        )
    return found


def _parsed(text: str, plain: Mapping[str, pa.DataType]) -> pa.DataType | None:
    if text in plain:
        return plain[text]
    sized, nested = _SIZED.fullmatch(text), _NESTED.fullmatch(text)
    if sized and sized[1]:
        return _decimal(int(sized[2]), int(sized[3]))
    if sized:
        return _fixed(int(sized[5]))
    return _nested(nested[1], _parts(nested[2]), plain) if nested else None


def _decimal(precision: int, scale: int) -> pa.DataType | None:
    return pa.decimal128(precision, scale) if scale <= precision and 0 < precision <= 38 else None


def _fixed(size: int) -> pa.DataType | None:
    return pa.binary(size) if 0 < size <= MOST_FIXED_BYTES else None


def _nested(shape: str, parts: list[str], plain: Mapping[str, pa.DataType]) -> pa.DataType | None:
    if shape == "struct":
        fields = [_FIELD.fullmatch(part) for part in parts]
        named = [(field[1], _parsed(field[2], plain)) for field in fields if field]
        is_whole = len(named) == len(parts) and all(kind is not None for _, kind in named)
        return pa.struct(named) if is_whole and len({name for name, _ in named}) == len(parts) else None
    kinds = [_parsed(part, plain) for part in parts]
    if None in kinds or len(kinds) != (1 if shape == "list" else 2):
        return None
    return pa.list_(kinds[0]) if shape == "list" else pa.map_(*kinds)


def _parts(text: str) -> list[str]:
    """Return the texts between commas outside brackets: a regular expression cannot match nested brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "<([") - (letter in ">)]")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def names_twice(columns: Iterable[pa.Field]) -> list[str]:
    """Return the names that two columns have, if one of them is within another: `s.x`, and `x` of the struct `s`."""
    names = [name for column in columns for name in _names(column.name, column.type)]
    return sorted(name for name, count in Counter(names).items() if count > 1)


def _names(name: str, kind: pa.DataType) -> Iterator[str]:
    """Yield the names that Iceberg gives a column and the columns within it."""
    yield name
    inner: list[tuple[str, pa.DataType]] = []
    if pa.types.is_struct(kind):
        inner = [(field.name, field.type) for field in kind]
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = [("element", kind.value_type)]
    elif pa.types.is_map(kind):
        inner = [("key", kind.key_type), ("value", kind.item_type)]
    for part, of_part in inner:
        yield from _names(f"{name}.{part}", of_part)


def unknown_fields(path: str, given: pa.DataType, wanted: pa.DataType) -> Iterator[str]:
    """Yield the nested fields that a type has and another one lacks, or has twice; a cast would drop them silently.

    unknown_fields("s", struct<a, c>, struct<a, b>)  -> s.c
    """
    if pa.types.is_struct(given) and pa.types.is_struct(wanted):
        known = {field.name: field.type for field in wanted}
        names = [field.name for field in given]
        for field in given:
            if field.name not in known or names.count(field.name) > 1:
                yield f"{path}.{field.name}"
            else:
                yield from unknown_fields(f"{path}.{field.name}", field.type, known[field.name])
    elif pa.types.is_map(given) and pa.types.is_map(wanted):
        yield from unknown_fields(f"{path}.key", given.key_type, wanted.key_type)
        yield from unknown_fields(f"{path}.value", given.item_type, wanted.item_type)
    elif _is_list(given) and _is_list(wanted):
        yield from unknown_fields(f"{path}.element", given.value_type, wanted.value_type)


def _is_list(kind: pa.DataType) -> bool:
    return any(is_one(kind) for is_one in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list))


def unknown_key(path: str, value: Any, kind: pa.DataType) -> str | None:
    """Return a key of a dict within a value of Python's that its type has no field for; Arrow would leave it out."""
    inner: Iterable[tuple[str, Any, pa.DataType]] = ()
    if value is None:
        return None
    if pa.types.is_struct(kind) and isinstance(value, Mapping):
        known = {field.name: field.type for field in kind}
        strange = next((key for key in value if key not in known), None)
        if strange is not None:
            return f"{path}.{strange}"
        inner = [(f"{path}.{key}", one, known[key]) for key, one in value.items()]
    elif pa.types.is_map(kind) and isinstance(value, Iterable):
        pairs = value.items() if isinstance(value, Mapping) else value
        inner = [
            (f"{path}.value", pair[1], kind.item_type)
            for pair in pairs
            if isinstance(pair, tuple | list) and len(pair) == 2
        ]
    elif _is_list(kind) and isinstance(value, Iterable):
        inner = ((f"{path}.element", one, kind.value_type) for one in value)
    return next(filter(None, (unknown_key(*one) for one in inner)), None)
