"""The state of a table in one value: its head, lag, checks and upkeep, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from foldhouse.values.proofs import SourceLag
from foldhouse.values.readable import Readable

FINE = "fine"
BEHIND = "behind"
PAUSED = "paused"
REBUILD_WAITING = "rebuild waiting"
CLOCK_AHEAD = "clock ahead"
FOREIGN_COMMIT = "foreign commit"
FAILED_CHECKS = "failed checks"
UNREADABLE = "unreadable"

WRONG = frozenset({FOREIGN_COMMIT, FAILED_CHECKS, UNREADABLE})
"""The states in which something is wrong; in all others, a table is right but may wait for something."""


@dataclass(frozen=True, repr=False)
class TableStatus(Readable):
    """The state of a table or stream, read from metadata only.

    Args:
        table: its name.
        kind: `stream`, `table` or `foreign`; empty if the table cannot be read.
        health: one of the states of `foldhouse.values.status`; if several apply, the most serious.
        to_do: what to do about it, in one line; empty if the table is fine.
        snapshot_id: the head; `None` without a commit.
        committed_at: since when it is the head.
        age_seconds: how long ago that was.
        rows: rows of the head; `None` if the summary does not contain the number.
        coverage: the days that exist, as the summary has them; `None` for a table of another tool.
        run_id: the run that committed the head, if its summary has one.
        sources: how far the table is behind its sources, up to the streams.
        checks: `failed` if a commit was not published because of its checks, or is being checked; `passed` if the head
            passed blocking checks of its rows; `none` if its summary has none.
        files_to_compact: files that `compact` would replace for their number and size. Files with many deleted rows are
            not counted, because that takes reading them.
        snapshots_to_expire: snapshots that the table's own rules would remove; consumers may still need some of them.
        snapshots: snapshots that the metadata lists.
        data_files, delete_files, bytes: files of the head and their size, as its summary counts them; `None` if it does
            not.
        rows_read: source rows that the newest refresh read, including retracted ones; `None` for a stream.
        refresh_seconds: how long the newest refresh took, up to its commit; `None` for a stream.
    """

    table: str
    kind: str
    health: str = FINE
    to_do: str = ""
    snapshot_id: int | None = None
    committed_at: datetime | None = None
    age_seconds: float | None = None
    rows: int | None = None
    coverage: str | None = None
    run_id: str | None = None
    sources: tuple[SourceLag, ...] = ()
    checks: str = "none"
    files_to_compact: int = 0
    snapshots_to_expire: int = 0
    snapshots: int = 0
    data_files: int | None = None
    delete_files: int | None = None
    bytes: int | None = None
    rows_read: int | None = None
    refresh_seconds: float | None = None

    @property
    def is_wrong(self) -> bool:
        """Whether the table is unreadable, or has rows that were refused or that foldhouse did not commit."""
        return self.health in WRONG

    @property
    def is_behind(self) -> bool:
        """Whether a commit of a source, or of a source above it, is not folded yet."""
        return any(one.is_behind for one in self.sources)
