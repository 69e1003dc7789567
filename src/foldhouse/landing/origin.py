"""A text that identifies what the events and bad lines of a day were read from: the file, and how it was read."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from typing import Any

from foldhouse.landing.format import CsvFormat

DIGEST_DIGITS = 32
"""So many digits of a file's digest are compared."""
_ADDRESS = " at 0x"  # in the text of an object that has none of its own


def origin_of(digest: str, format: CsvFormat, quarantine: str) -> str:
    """Return the origin of a day's events.

    A `clean` is identified by its bytecode and its closure, but not by globals that it reads. One that cannot be
    identified gives another text each time, so that a day lands once more.

    Args:
        digest: of the file's content.
        format: by which it was read.
        quarantine: what identifies the bad lines of the day, see `LandedDays.states`.
    """
    columns = [
        (one.source, one.name, one.type, one.required, one.expected, _function(one.clean)) for one in format.columns
    ]
    rules = (columns, format.day, format.max_bad_share, format.delimiter, format.limits)
    text = repr((digest[:DIGEST_DIGITS], rules, quarantine))
    return hashlib.sha256((secrets.token_hex() if _ADDRESS in text else text).encode()).hexdigest()


def _function(clean: Callable[..., Any] | None) -> object:
    code = getattr(clean, "__code__", None)
    if code is None:
        return clean
    held = [cell.cell_contents for cell in getattr(clean, "__closure__", None) or ()]
    return code.co_code, code.co_names, code.co_consts, held, getattr(clean, "__defaults__", None)
