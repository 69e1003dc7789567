"""The subject of a forget: whose rows they are, by values of some columns of a stream."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from foldhouse.errors import InvalidData
from foldhouse.logic.shape import Origin
from foldhouse.refresh.window.pruning import pieces_with_keys
from foldhouse.storage.file_ref import Constants
from foldhouse.storage.live import Piece
from foldhouse.storage.opened_file import open_file
from foldhouse.storage.schema import Layout
from foldhouse.values.exact import exact_array

_LONG = 6
"""Characters from which on a value is also found within a longer word."""
_LONG_NUMBER = 9
"""Digits from which on a whole number is looked for in texts: shorter ones are also counts, sizes and ids of fields."""


@dataclass(frozen=True)
class Subject:
    """Whose rows are forgotten: those that have all of some values.

    Args:
        values: column -> value, with the type of the column in the stream.
    """

    values: Mapping[str, pa.Scalar]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the key."""
        return tuple(self.values)

    def among(self, rows: pa.Table) -> pa.ChunkedArray:
        """Return which of some rows are the subject's, as booleans without nulls."""
        found = pa.chunked_array([pa.repeat(pa.scalar(True), rows.num_rows)])
        for name, value in self.values.items():
            found = pc.and_(found, pc.fill_null(pc.equal(rows[name], value), False))
        return found

    def rows_in(self, layout: Layout, path: str, constants: Constants = ()) -> int:
        """Count the subject's rows in a data file, deleted rows included.

        Args:
            layout: of the table.
            path: of the file.
            constants: see `FileRef`.
        """
        file = open_file(layout, path, constants=constants)
        return int(pc.sum(self.among(file.read(layout, self.columns))).as_py() or 0)

    def may_be_in(self, layout: Layout, pieces: Iterable[Piece]) -> list[Piece]:
        """Return the pieces whose files can have rows of the subject, by their bounds."""
        wanted = {name: [value.as_py()] for name, value in self.values.items()}
        return pieces_with_keys(list(pieces), layout.schema, {name: Origin(name) for name in wanted}, wanted)

    @property
    def unsearched(self) -> tuple[str, ...]:
        """The columns whose values are not looked for in texts: neither texts, nor UUIDs, nor long whole numbers."""
        return tuple(name for name, one in self.values.items() if not _text_of(one).strip())

    def is_named_in(self, text: str) -> bool:
        """Whether a text contains a value of the key; a short value, and a number, must be a whole word.

        Numbers of fewer digits than `_LONG_NUMBER` are not looked for, because counts and ids are everywhere.
        """
        plain = [one for one in map(_text_of, self.values.values()) if one.strip()]
        return any(
            one in text if len(one) >= _LONG and not one.lstrip("-").isdecimal() else _has_word(text, one)
            for one in plain
        )


def _text_of(value: pa.Scalar) -> str:
    """Return a value as it is looked for in texts; empty if it is not."""
    plain = value.as_py()
    if isinstance(plain, str | UUID):
        return str(plain)
    is_whole = isinstance(plain, int) and not isinstance(plain, bool)
    return str(plain) if is_whole and len(str(abs(plain))) >= _LONG_NUMBER else ""


def _has_word(text: str, word: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) is not None


def subject_of(name: str, layout: Layout, key: Mapping[str, Any]) -> Subject:
    """Return the subject that a key names, with the types of a stream's columns.

    Args:
        name: of the stream.
        layout: of the stream.
        key: column -> value, at least one.

    Raises:
        InvalidData: the stream does not have a column, a value does not fit its type, or cannot be compared.
    """
    given: Any = key
    if not isinstance(given, Mapping) or not given:
        raise InvalidData(f"forget: name at least one column of {name} with its value, such as {{'customer_id': 42}}")
    return Subject({column: _typed(name, layout, column, value) for column, value in given.items()})


def _typed(name: str, layout: Layout, column: Any, value: Any) -> pa.Scalar:
    if column not in layout.visible:
        raise InvalidData(f"forget: {name} has no column {column!r}; it has {', '.join(layout.visible)}")
    kind = layout.arrow.field(column).type
    if value is None or value != value:
        raise InvalidData(f"forget: the value of {name}.{column} is {value!r}, which names no subject; give a {kind}")
    if isinstance(value, bool) and not pa.types.is_boolean(kind):
        raise InvalidData(f"forget: the value of {name}.{column} is {value!r}, but the column is {kind}")
    try:
        found = exact_array([value], kind)
        if not pc.equal(found, found[0])[0].as_py():
            raise pa.ArrowInvalid("it does not equal itself")
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as failure:
        # Without the value: messages end up in logs.
        raise InvalidData(
            f"forget: a value of type {type(value).__name__} does not fit {name}.{column}, which is {kind}, or such "
            f"values cannot be compared; give a {kind}, or name another column"
        ) from failure
    return found[0]
