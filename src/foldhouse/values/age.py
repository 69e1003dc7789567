"""Converts an age or a time, as people write them, to a moment."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta

from foldhouse.errors import InvalidData

OlderThan = datetime | date | timedelta | str | None
"""A moment (UTC where no zone is given), or an age: `timedelta(days=7)`, `"7d"`, `"12h"`, `"30m"`."""

_MOST_DIGITS = 6
# Matches `90m`, `36h` and `7d`.
_AGE = re.compile(r"(\d+)([dhm])")
_UNIT = {"d": timedelta(days=1), "h": timedelta(hours=1), "m": timedelta(minutes=1)}


def moment_before(older_than: datetime | date | timedelta | str, now: datetime) -> datetime:
    """Return the moment before which something is old enough.

    | older_than | moment |
    |---|---|
    | `timedelta(days=7)`, `"7d"` | a week before now; hours are `h`, minutes `m` |
    | `date(2024, 3, 4)`, `"2024-03-04"` | its beginning, in UTC |
    | `"2024-03-04T12:00:00Z"` | that moment |

    Raises:
        InvalidData: a text that is neither an age nor a time, or a negative age.
    """
    if isinstance(older_than, str):
        older_than = _parsed(older_than)
    if isinstance(older_than, timedelta):
        if older_than < timedelta():
            raise InvalidData(f"{older_than} is no age; an age is not below zero")
        try:
            return now - older_than
        except OverflowError:
            raise InvalidData(f"{older_than} is longer ago than any calendar goes back") from None
    if not isinstance(older_than, datetime):
        older_than = datetime(older_than.year, older_than.month, older_than.day)
    return older_than if older_than.tzinfo else older_than.replace(tzinfo=UTC)


def span_of(text: str) -> timedelta:
    """Return the time that a text such as `30d`, `12h` or `30m` means.

    Raises:
        InvalidData: the text means anything else.
    """
    found = _parsed(text) if _AGE.fullmatch(text) else None
    if not isinstance(found, timedelta):
        raise InvalidData(f"{text!r} is not a time span such as 30d, 12h or 30m")
    return found


def _parsed(text: str) -> datetime | timedelta:
    if (found := _AGE.fullmatch(text)) and len(found[1]) <= _MOST_DIGITS:
        return int(found[1]) * _UNIT[found[2]]
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise InvalidData(
            f"{text!r} is no age such as 7d, 12h or 30m, and no time such as 2024-03-04T12:00:00Z"
        ) from None
