"""What a commit changed in rows that were already published, and the figures of the latest commits."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from foldhouse.values.readable import Readable


@dataclass(frozen=True)
class Correction:
    """A published row that a commit changed or removed.

    Args:
        key: key column -> value.
        before: the row's other columns -> value, of those that differ; of all, if the row is gone.
        after: the same columns -> value; `None` if the row is gone.
    """

    key: dict[str, Any]
    before: dict[str, Any]
    after: dict[str, Any] | None


@dataclass(frozen=True, repr=False)
class Corrections(Readable):
    """The published rows that a commit changed or removed.

    Args:
        table: the table's name.
        snapshot_id: the commit; `None` if the table has none.
        rows: the first of them, in the order of their keys.
        total: how many there are; `None` if the files that the commit changed have too many rows to compare.
    """

    table: str
    snapshot_id: int | None
    rows: tuple[Correction, ...] = ()
    total: int | None = 0


@dataclass(frozen=True)
class CommitFigures:
    """The figures of one commit of a table.

    Args:
        snapshot_id: the commit.
        committed_at: when it was made.
        rows: rows of the table afterwards.
        rows_read: rows of the sources that were read for it.
        rows_left_out: source rows that are left out of the table, by all commits up to this one, because a key or a
            part of their sequence is null.
        seconds: how long the refresh took; `None` if the commit does not say it.
        lag_seconds: how long the newest folded commit of a source had been waiting when this one was made; `None` if
            the source no longer has that commit.
    """

    snapshot_id: int
    committed_at: datetime
    rows: int
    rows_read: int
    rows_left_out: int = 0
    seconds: float | None = None
    lag_seconds: float | None = None
