"""What appending and refreshing return: rows, commits, checks."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
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
        files_added: of `add_files`, the files that the stream did not have yet, without empty ones.
    """

    table: str
    committed: bool
    snapshot_id: int | None
    rows_added: int = 0
    rows_removed: int = 0
    partitions: dict[date, PartitionCounts] = field(default_factory=dict)
    states: dict[date, str] = field(default_factory=dict, repr=False)
    files_added: int = 0


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
        against: other table that was read -> its snapshot; `None` is a table without one.
    """

    name: str
    check: str
    severity: str
    passed: bool
    said: str
    failing: int = 0
    sample: tuple[dict[str, Any], ...] = ()
    against: dict[str, int | None] = field(default_factory=dict)

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
        restored_id: the earlier snapshot of the table whose files were restored, because the sources went back to its
            positions; `None` if rows were folded.
        rows_written: new and changed rows; of a restored snapshot, all rows of files that came back.
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
    restored_id: int | None = None
    rows_written: int = 0
    rows_carried: int = 0
    rows_deleted: int = 0
    rows: int = 0
    null_key_rows: int = 0
    null_sequence_rows: int = 0
    partitions: dict[date, PartitionCounts] = field(default_factory=dict)
    checks: tuple[Checked, ...] = ()
    seconds: float = 0.0
