"""Checks of arguments at the place where they are given: texts, names and numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from foldhouse.errors import DefinitionError

MOST_LETTERS = 1_000
"""A name or a type with more letters than this is a mistake; stores and engines refuse it late and unclearly."""


MOST_SQL = 100_000
"""And an expression with more characters."""


def shown(value: object) -> str:
    """A value as a message quotes it."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def text(what: str, value: Any) -> str:
    """Return the value if it is a text that every store and engine can hold.

    Args:
        what: the subject of the error message.
        value: the value to check.

    Raises:
        DefinitionError: it is not a text, is empty or too long, or has control characters or half a surrogate pair.
    """
    if not isinstance(value, str):
        raise DefinitionError(f"{what} is {shown(value)}; a text is needed")
    if not value.strip() or len(value) > MOST_LETTERS:
        raise DefinitionError(f"{what} is {shown(value)}; a text of 1 to {MOST_LETTERS} characters is needed")
    if any(ord(letter) < 32 or letter == "\x7f" for letter in value) or not _is_encodable(value):
        raise DefinitionError(f"{what} is {shown(value)}; it holds a control character, or one that is no character")
    return value


def prose(what: str, value: Any) -> str:
    """Return the value if it is a text for people, possibly of several lines.

    Raises:
        DefinitionError: it is not a text, or contains half a surrogate pair or a null character.
    """
    if not isinstance(value, str) or not _is_encodable(value) or "\0" in value:
        raise DefinitionError(f"{what} is {shown(value)}; a text is needed")
    return value


def texts(what: str, values: Any) -> tuple[str, ...]:
    """Return one text or several as a tuple, each checked by `text`.

    Raises:
        DefinitionError: the value is anything else.
    """
    if isinstance(values, str):
        return (text(what, values),)
    if not isinstance(values, Iterable) or isinstance(values, bytes | dict):
        raise DefinitionError(f"{what} is {shown(values)}; a name or a list of names is needed")
    return tuple(text(f"{what} {place}", value) for place, value in enumerate(values, start=1))


def whole(what: str, value: Any, least: int, most: int) -> int:
    """Return the value if it is a whole number from `least` to `most`, both included.

    Raises:
        DefinitionError: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise DefinitionError(f"{what} is {shown(value)}; a whole number from {least} to {most:,} is needed")
    return value


def number(what: str, value: Any, least: float, most: float) -> float:
    """A number between two bounds, both included.

    Raises:
        DefinitionError: another number, or none.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise DefinitionError(f"{what} is {shown(value)}; a number from {least} to {most} is needed")
    return value


def expression(what: str, value: Any) -> Any:
    """Return the value if it is an expression: SQL text, or a function that returns a Spark column.

    Raises:
        DefinitionError: it is not.
    """
    if isinstance(value, str):
        is_one = bool(value.strip()) and len(value) <= MOST_SQL and "\0" not in value and _is_encodable(value)
    else:
        is_one = callable(value) and not isinstance(value, type)
    if not is_one:
        raise DefinitionError(
            f"{what} is {shown(value)}; a column's name, an expression in SQL, or a function that returns a Spark "
            "column is needed"
        )
    return value


def _is_encodable(value: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in value)
