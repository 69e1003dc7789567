"""Checks names of tables and namespaces: a name that could act as a path is refused."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from foldhouse.errors import DefinitionError
from foldhouse.values.given import shown

# Matches `shop.orders` and `shop.eu.orders`: names that SQL needs no quotes for.
_DECLARED = re.compile(r"[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z][A-Za-z0-9_]*)+")
# A leading dot, a control character, a character that some file system gives a meaning, nothing, or outer blanks.
_UNSAFE = re.compile(r"^\.|[\x00-\x1f\x7f/\\:*?\"<>|%]|^$|^\s|\s$")
_MOST_LETTERS = 200
"""Of a declared name with all its parts."""
_MOST_BYTES = 200
"""Of one part; a file system takes 255 for the name of a folder."""


def is_pattern(column: str) -> bool:
    """Whether Polars takes the name of a column for a pattern that stands for other columns: `*`, and `^...$`."""
    return column == "*" or (column.startswith("^") and column.endswith("$"))


def check_declared(name: Any) -> None:
    """Refuse a declared name that cannot be the name of a table.

    Raises:
        DefinitionError: it is not `namespace.name` in letters, digits and underscores.
    """
    if not isinstance(name, str) or not _DECLARED.fullmatch(name) or len(name) > _MOST_LETTERS:
        raise DefinitionError(
            f"{shown(name)} is not a table name; it takes the form namespace.name in letters, digits and underscores, "
            f"{_MOST_LETTERS} of them at the most"
        )
    check_stored(name.split("."))


def check_stored(parts: Iterable[str]) -> None:
    """Refuse names that could point outside the folder that a catalog creates for them.

    Args:
        parts: the parts of the name of a table or a namespace.

    Raises:
        DefinitionError: a part is empty, begins with a dot, is too long, or contains a character with a meaning in
            paths.
    """
    for part in parts:
        if _UNSAFE.search(part) or len(part.encode("utf-8", "replace")) > _MOST_BYTES:
            shown = part if len(part) <= _MOST_BYTES else f"{part[:40]}..."
            raise DefinitionError(
                f"{shown!r} cannot be the name, or a part of the name, of a table or namespace: files are stored under "
                f"it. Take up to {_MOST_BYTES} letters, digits and underscores"
            )
