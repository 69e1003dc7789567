"""The result of following the positions through the history of a table."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from foldhouse.values.readable import Readable


@dataclass(frozen=True, repr=False)
class Break(Readable):
    """A commit that does not continue the one below it.

    Args:
        snapshot_id: the commit.
        committed_at: when it was made.
        is_ours: whether foldhouse made it.
        run_id: the run that made it; `None` for a commit of another tool.
        reason: what does not fit.
    """

    snapshot_id: int
    committed_at: datetime
    is_ours: bool
    run_id: str | None
    reason: str


@dataclass(frozen=True, repr=False)
class Gapless(Readable):
    """Whether the positions in the history of a table form one chain.

    Args:
        table: the table's name.
        snapshot_id: the head; `None` without a commit.
        commits: the number of commits that were looked at, from the head to the oldest one kept.
        unrecorded: how many of them do not say where they began, because an older foldhouse made them.
        spans_expired: how many stand on expired commits, so that what is below them is unknown.
        broken: how many commits do not continue the one below, and were not folded again since.
        mended: how many did not, before a rebuild folded the table again or a restatement their days.
        breaks: the first of these, the newest first.
    """

    table: str
    snapshot_id: int | None
    commits: int = 0
    unrecorded: int = 0
    spans_expired: int = 0
    broken: int = 0
    mended: int = 0
    breaks: tuple[Break, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether every commit that counts for the head continues the one below it, as far as is recorded and kept."""
        return not self.broken
