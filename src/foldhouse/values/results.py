"""Results of operations, in numbers; each is named for what was done."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

from foldhouse.values.readable import Readable
from foldhouse.values.window import Coverage


@dataclass(frozen=True, repr=False)
class PartitionCounts(Readable):
    """Counts of rows of one partition: present now, and written and deleted by this run."""

    rows: int = 0
    rows_written: int = 0
    rows_deleted: int = 0


@dataclass(frozen=True, repr=False)
class Appended(Readable):
    """The result of an append or a replacement.

    Args:
        table: the stream's name.
        committed: whether a snapshot was committed.
        snapshot_id: the stream's head afterwards.
        rows_added, rows_removed: the events in the added and removed files.
        partitions: counts by day; for a replacement, of the days that were given.
        states: of a replacement, day -> a text that identifies its data files.
    """

    table: str
    committed: bool
    snapshot_id: int | None
    rows_added: int = 0
    rows_removed: int = 0
    partitions: dict[date, PartitionCounts] = field(default_factory=dict)
    states: dict[date, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, repr=False)
class Checked(Readable):
    """The result of one check of a table.

    Args:
        name: the check's name.
        check: the condition, as it is declared.
        severity: `error` if a failure keeps the table from being published, or `warn`.
        passed: whether the rows meet the condition.
        said: what was found, in words.
        failing: the number of rows that fail; 0 for a check of the table as a whole.
        sample: the first of these rows, with the keys and the columns of the check.
    """

    name: str
    check: str
    severity: str
    passed: bool
    said: str
    failing: int = 0
    sample: tuple[dict[str, Any], ...] = ()

    @property
    def blocks(self) -> bool:
        """Whether a failure keeps the table from being published."""
        return self.severity == "error"


@dataclass(frozen=True, repr=False)
class Refreshed(Readable):
    """The result of a refresh, backfill or rebuild.

    Args:
        table: the table's name.
        committed: whether a snapshot was committed; a run with nothing new commits none.
        snapshot_id: the table's head afterwards; for an unpublished rebuild, the head of its branch.
        position: source name -> snapshot id up to which the source is folded now.
        coverage: the partitions that exist now.
        rows_read, files_read: rows and files of the sources that were read.
        rows_recomputed: source rows read again for keys that could not be merged.
        full_recompute: whether the table was computed again from all rows of its sources, because following the changes
            costs more; the commit contains only the rows that differ all the same.
        rows_written: new and changed rows.
        rows_carried: unchanged rows that were written again because their file was rewritten.
        rows_deleted: stored rows that changed or disappeared.
        rows: rows of the table now.
        null_key_rows: source rows that this run left out because a key is null, less the retracted ones.
        null_sequence_rows: the same, because a column of their sequence is null.
        partitions: counts by day, for the days that were changed or asked for.
        checks: the results of the table's checks; empty if nothing was committed.
        seconds: the duration of the run.
    """

    table: str
    committed: bool
    snapshot_id: int | None
    position: dict[str, int | None]
    coverage: Coverage
    rows_read: int = 0
    files_read: int = 0
    rows_recomputed: int = 0
    full_recompute: bool = False
    rows_written: int = 0
    rows_carried: int = 0
    rows_deleted: int = 0
    rows: int = 0
    null_key_rows: int = 0
    null_sequence_rows: int = 0
    partitions: dict[date, PartitionCounts] = field(default_factory=dict)
    checks: tuple[Checked, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True, repr=False)
class Planned(Readable):
    """What a refresh or backfill would do.

    Args:
        table: the table's name.
        is_new: whether it was never folded.
        has_news: whether there is anything to fold.
        full_recompute: whether it would be computed again from all rows of its sources, which is cheaper here.
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


@dataclass(frozen=True, repr=False)
class Compacted(Readable):
    """The result of a compaction.

    Args:
        table: the table's name.
        committed: whether a snapshot was committed; if no partition needs compaction, none is.
        snapshot_id: the table's head afterwards.
        partitions: the number of partitions in which files were rewritten.
        files_removed: data and delete files that the head no longer references.
        files_added: data files that replace them.
        bytes_removed, bytes_added: the sizes of the removed and added data files.
        rows_written: rows of the new files.
        seconds: the duration of the run.
    """

    table: str
    committed: bool
    snapshot_id: int | None
    partitions: int = 0
    files_removed: int = 0
    files_added: int = 0
    bytes_removed: int = 0
    bytes_added: int = 0
    rows_written: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, repr=False)
class Expired(Readable):
    """The result of an expiry.

    Args:
        table: the table's name.
        committed: whether anything changed; if no snapshot is old enough and all tags are right, nothing does.
        snapshots_removed: the number of removed snapshots.
        snapshots_left: the number of snapshots now.
        held: tag -> snapshot id, for the positions of all consumers.
        tags_dropped: tags of consumers that no longer exist or have no position in this table; tags and branches older
            than `history.expire.max-ref-age-ms`.
        files_deleted, bytes_freed: data, delete and metadata files that no snapshot references any more.
        files_outside: unreferenced files that were not deleted because they are outside the table's location.
        seconds: the duration of the run.
    """

    table: str
    committed: bool
    snapshots_removed: int = 0
    snapshots_left: int = 0
    held: dict[str, int] = field(default_factory=dict)
    tags_dropped: tuple[str, ...] = ()
    files_deleted: int = 0
    bytes_freed: int = 0
    files_outside: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Orphan:
    """A file that no snapshot references.

    Args:
        path: the path of the file.
        bytes: its size.
        written_at: the file system's time of the last write.
    """

    path: str
    bytes: int
    written_at: datetime


@dataclass(frozen=True, repr=False)
class Orphans(Readable):
    """The orphans of a table.

    Args:
        table: the table's name.
        files: the orphans, sorted by path.
        deleted: how many of them were deleted.
    """

    table: str
    files: tuple[Orphan, ...] = ()
    deleted: int = 0

    @property
    def bytes(self) -> int:
        """The size of all orphans together."""
        return sum(one.bytes for one in self.files)


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
        commits_behind: commits of the source that are not folded; `None` if the position is not in its history, because
            it was rolled back, dropped, or expired.
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
