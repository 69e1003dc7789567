"""What a refresh, a restate or a rollback would do, before it is done."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date

from foldhouse.values.readable import Readable


@dataclass(frozen=True, repr=False)
class Planned(Readable):
    """What a refresh or backfill would do.

    Args:
        table: the table's name.
        is_new: whether it was never folded.
        has_news: whether there is anything to fold.
        full_recompute: whether it would be computed again from all rows of its sources, which is cheaper here.
        restores_id: the earlier snapshot of the table whose files it would restore, instead of reading rows.
        rows_read: source -> rows to read, added and removed ones; keys that cannot be merged may need more.
        files_read: the number of their files.
        bytes_read: the size of these files.
        runs: where it would run.
        days_added: the days that would be added.
        rows: rows of the table now.
        consumers: the tables downstream, which have something to fold afterwards.
        paused: since when, by whom and why the table is paused, so that a refresh is refused; `None` if it is not.
    """

    table: str
    is_new: bool = False
    has_news: bool = False
    full_recompute: bool = False
    restores_id: int | None = None
    rows_read: dict[str, int] = field(default_factory=dict)
    files_read: int = 0
    bytes_read: int = 0
    runs: str | None = None
    days_added: tuple[date, ...] = ()
    rows: int = 0
    consumers: tuple[str, ...] = ()
    paused: str | None = None


@dataclass(frozen=True, repr=False)
class PlannedRestate(Readable):
    """What folding covered days again would do.

    Args:
        table: the table's name.
        days: the days.
        rows_read: source -> rows to read, as they were at the table's position; files hold other days, too.
        files_read: the number of their files.
        bytes_read: the size of these files.
        runs: where it would run.
        keys: the stored rows of these days, one for each key; all are replaced.
        files_replaced: data files with these rows.
        bytes_replaced: the size of these files.
        rows: rows of the table now.
        is_foreign: whether the head is of another tool, so that the table is not refreshed until it is repaired.
        consumers: the tables downstream, which fold the difference at their next refresh.
        paused: since when, by whom and why the table is paused; it can be restated all the same.
    """

    table: str
    days: tuple[date, ...] = ()
    rows_read: dict[str, int] = field(default_factory=dict)
    files_read: int = 0
    bytes_read: int = 0
    runs: str | None = None
    keys: int = 0
    files_replaced: int = 0
    bytes_replaced: int = 0
    rows: int = 0
    is_foreign: bool = False
    consumers: tuple[str, ...] = ()
    paused: str | None = None


@dataclass(frozen=True, repr=False)
class PlannedRollback(Readable):
    """What a rollback would do.

    Args:
        table: the table's name.
        snapshot_id: the snapshot that would be the head.
        commits: how many commits it would undo.
        inserted: rows that would come back.
        deleted: rows that would go.
        updated: rows that would have other values.
        rows: rows of the table now.
        rows_then: rows afterwards.
        consumers: the tables downstream, which retract the difference at their next refresh.
        expired: sources in which the position of that snapshot has expired: afterwards, every refresh is refused until
            a rebuild.
    """

    table: str
    snapshot_id: int
    commits: int = 0
    inserted: int = 0
    deleted: int = 0
    updated: int = 0
    rows: int = 0
    rows_then: int = 0
    consumers: tuple[str, ...] = ()
    expired: tuple[str, ...] = ()
