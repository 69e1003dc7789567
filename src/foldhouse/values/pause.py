"""A pause of a table: since when, by whom, and why no refresh may move it."""

from __future__ import annotations

import getpass
import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime

from foldhouse.values import stored
from foldhouse.values.metadata_names import PAUSED
from foldhouse.values.moment_text import utc_text


@dataclass(frozen=True)
class Pause:
    """Why a table is not refreshed.

    Args:
        since_ms: since when, in ms since 1970.
        by: who paused it.
        reason: why, in words.
    """

    since_ms: int
    by: str
    reason: str

    @property
    def since(self) -> datetime:
        """Since when, in UTC."""
        return datetime.fromtimestamp(self.since_ms / 1000, UTC)

    def __str__(self) -> str:
        """Return the outcome of a refresh: `paused since 2024-03-18T09:00:00Z by ada: the feed is wrong`."""
        why = f": {self.reason}" if self.reason else ""
        return f"paused since {utc_text(self.since, 'seconds')} by {self.by}{why}"


def user_name() -> str:
    """Return the name of the user of this process."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user id without a name, as in some containers
        return f"user {os.getuid()}"


def to_json(pause: Pause) -> str:
    """Return the value of the table property `foldhouse.paused`."""
    return json.dumps({"since_ms": pause.since_ms, "by": pause.by, "reason": pause.reason}, separators=(",", ":"))


def parse(text: str) -> Pause:
    """Read the value of the table property.

    Raises:
        ForeignCommit: foldhouse did not write the text.
    """
    with stored.said(PAUSED, text):
        held = json.loads(text)
        found = Pause(held["since_ms"], held["by"], held["reason"])
        if not stored.is_id(found.since_ms) or not stored.is_text(found.by) or not stored.is_text(found.reason):
            raise ValueError("it needs since_ms, by and reason")
        str(found)  # a moment beyond the calendar raises here, and nowhere later
        return found
