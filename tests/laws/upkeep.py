"""Steps of a history: compaction and expiry, which change no row."""

from __future__ import annotations

from datetime import timedelta

from laws.crashes import Moment
from laws.history import History


def compact(history: History, moment: Moment | None = None) -> None:
    """Small and much-deleted files are written anew."""
    name = _any(history)
    if name == history.stream.name:
        history.put(lambda: history.lake.compact(name, min_files=2), history.held(), moment)
    elif name is not None:
        history.under(moment, lambda: history.lake.compact(name, min_files=2))


def expire(history: History, moment: Moment | None = None) -> None:
    """Old snapshots go, and the files that only they name; what a table stands at stays."""
    name = _any(history)
    if name is not None:
        keep = history.chance.randint(1, 3)
        history.tell(f"all but {keep}")
        now = timedelta(0)
        history.under(moment, lambda: history.lake.expire(name, older_than=now, keep_last=keep, in_use=now))


def _any(history: History) -> str | None:
    names = [name for name in (history.stream.name, *history.ledger.defined) if history.head(name) is not None]
    if not names:
        return None
    name = history.chance.choice(names)
    history.tell(name)
    return name
