"""What proving and tracing return: differences, the first wrong commit, lag, the story of a key."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from foldhouse.values.readable import Readable


@dataclass(frozen=True)
class Difference:
    """A key whose row is not what a batch job gives.

    Args:
        key: key column -> value.
        found: column -> stored value; `None` if the table does not have the key.
        expected: column -> value of the batch job; `None` if the table must not have the key.
    """

    key: dict[str, Any]
    found: dict[str, Any] | None
    expected: dict[str, Any] | None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns whose values are not equal; empty if one side has no row."""
        if self.found is None or self.expected is None:
            return ()
        return tuple(name for name, value in self.found.items() if value != self.expected[name])


@dataclass(frozen=True, repr=False)
class FirstWrong(Readable):
    """The first commit at which keys of a table are wrong.

    Args:
        snapshot_id: the commit.
        committed_at: when it was made.
        is_ours: whether foldhouse made it.
        run_id: the run that made it; `None` for a commit of another tool.
        last_right: the commit before it; `None` if no earlier commit can be computed again.
        differences: the first wrong keys at this commit.
        steps: the commits that were computed again to find it.
        source_rows_read: the source rows that this took, of all steps together; of a file that must be read to find
            them, only those of the keys are counted.
    """

    snapshot_id: int
    committed_at: datetime
    is_ours: bool
    run_id: str | None
    last_right: int | None
    differences: tuple[Difference, ...] = ()
    steps: int = 0
    source_rows_read: int = 0


@dataclass(frozen=True, repr=False)
class SourceLag(Readable):
    """How far a table is behind one of its sources.

    Args:
        name: the source.
        position: the snapshot id up to which it is folded; `None` if it had no snapshot.
        commits_behind: commits of the source that are not folded, without those that expired since; `None` if the
            position is not in its history, because it was rolled back, dropped, or expired.
        rows_behind: rows that these commits added, as their summaries count them.
        seconds_behind: how long the oldest of them has been waiting.
        sources: the same of the source's own sources, up to the streams.
    """

    name: str
    position: int | None
    commits_behind: int | None
    rows_behind: int | None
    seconds_behind: float | None
    sources: tuple[SourceLag, ...] = ()

    @property
    def is_behind(self) -> bool:
        """Whether a commit of the source, or of a source above it, is not folded yet."""
        return self.commits_behind != 0 or any(one.is_behind for one in self.sources)


def in_short(sources: tuple[SourceLag, ...]) -> str:
    """Describe in one line how far a table is behind.

    2 commits behind s.orders; up to date with s.rates
    up to date with s.orders, which is 3 commits behind s.events
    """
    behind = [one for one in sources if one.commits_behind != 0]
    level = [one for one in sources if one.commits_behind == 0]
    stale = [one for one in level if one.is_behind]
    fresh = [one.name for one in level if not one.is_behind]
    said = [_lag(one) + _above(one) for one in behind]
    said += [f"up to date with {one.name}{_above(one)}" for one in stale]
    return "; ".join(said + ([f"up to date with {', '.join(fresh)}"] if fresh else []))


def _lag(one: SourceLag) -> str:
    behind = one.commits_behind
    if behind is None:
        return f"elsewhere in {one.name}"
    return f"{behind} commit{'s' if behind > 1 else ''} behind {one.name}"


def _above(one: SourceLag) -> str:
    """Describe how far a source is behind its own sources; empty if it is not."""
    late = [source for source in one.sources if source.is_behind]
    if not late:
        return ""
    texts = [
        f"{_lag(source) if source.commits_behind != 0 else f'up to date with {source.name}'}{_above(source)}"
        for source in late
    ]
    return f", which is {' and '.join(texts)}"


@dataclass(frozen=True, repr=False)
class Verified(Readable):
    """The result of comparing a table with a batch job of Spark.

    Args:
        table: the table's name.
        snapshot_id: the commit that was compared.
        position: source name -> the snapshot id up to which its rows were used.
        share: the share of the keys that was compared.
        since: the commit since which keys changed that were compared; `None` for all keys.
        keys_since: the number of these keys; `None` for all keys, also if it is unknown which ones changed.
        columns: the compared columns.
        unproven: columns that Spark cannot compute: those of `custom`, of maps, and `latest` of nested values.
        estimated: columns that are estimates, and may differ by a tenth: those of `distinct`.
        wrong: the number of keys that differ.
        differences: the first of them.
        first_wrong: since when they differ; `None` if no key does, or it was not searched for.
        seconds: the duration.
    """

    table: str
    snapshot_id: int
    position: dict[str, int | None]
    share: float = 1.0
    since: int | None = None
    keys_since: int | None = None
    columns: tuple[str, ...] = ()
    unproven: tuple[str, ...] = ()
    estimated: tuple[str, ...] = ()
    wrong: int = 0
    differences: tuple[Difference, ...] = ()
    first_wrong: FirstWrong | None = None
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether no compared key differs."""
        return not self.wrong


@dataclass(frozen=True, repr=False)
class TracedChange(Readable):
    """What one commit did to the rows of a key.

    Args:
        table: the table or stream.
        snapshot_id: the commit.
        committed_at: when it became the head.
        is_ours: whether foldhouse made it.
        run_id: the run that made it, if it says so.
        spans_expired: whether commits before it were expired, so that it also shows what they did.
        before: the rows that it removed.
        after: the rows that it added.
    """

    table: str
    snapshot_id: int
    committed_at: datetime
    is_ours: bool
    run_id: str | None
    spans_expired: bool
    before: tuple[dict[str, Any], ...] = ()
    after: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, repr=False)
class Trace(Readable):
    """The story of the rows of a key, through all tables that have to do with it.

    Args:
        table: the table that was asked for.
        key: column -> value.
        changes: what each commit did, in the order of time.
        untraced: sources and consumers that cannot be followed -> why not.
    """

    table: str
    key: dict[str, Any]
    changes: tuple[TracedChange, ...] = ()
    untraced: dict[str, str] = field(default_factory=dict)
