"""Parsing of table properties and summaries, which any tool may have written."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from foldhouse.errors import FoldhouseError, ForeignCommit
from foldhouse.values.given import shown

_UNREADABLE = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError)


@contextlib.contextmanager
def said(key: str, text: object) -> Iterator[None]:
    """Translate errors of parsing a stored text into `ForeignCommit`.

    Args:
        key: the key of the property or the summary.
        text: its value.

    Raises:
        ForeignCommit: foldhouse did not write the text.
    """
    try:
        yield
    except FoldhouseError:
        raise
    except _UNREADABLE as failure:
        raise ForeignCommit(
            f"the metadata holds {key} = {shown(text)}, which foldhouse did not write "
            f"({type(failure).__name__}: {failure}): another tool changed it. Roll the table back to a commit before "
            "that, or run `foldhouse rebuild`; a property is put right with the tool that set it"
        ) from failure


def number(key: str, text: str) -> int:
    """Parse a count of 0 or more.

    Raises:
        ForeignCommit: the text is not a count.
    """
    with said(key, text):
        if not text.isascii() or not text.isdigit() or len(text) > 18:
            raise ValueError("a count is needed")
        return int(text)


def is_id(value: object) -> bool:
    """Whether a parsed value is an id (a whole number of 0 or more) or null."""
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0)


def is_text(value: object) -> bool:
    """Whether a parsed value is a text."""
    return isinstance(value, str)
