"""Results: what an operation came to, in numbers. Named for what was done."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime

from foldhouse.values.window import Coverage


@dataclass(frozen=True)
class PartitionCounts:
    """Rows of one partition: how many there are now, and how many of them this run wrote and took out."""

    rows: int = 0
    rows_written: int = 0
    rows_deleted: int = 0


@dataclass(frozen=True)
class Appended:
    """What an append or a replacement came to.

    Args:
        table: the stream's name.
        committed: whether a snapshot was committed.
        snapshot_id: the stream's head afterwards.
        rows_added, rows_removed: events of the files that came and went.
        partitions: by day, for the partitions asked for (of a replacement).
    """

    table: str
    committed: bool
    snapshot_id: int | None
    rows_added: int = 0
    rows_removed: int = 0
    partitions: dict[date, PartitionCounts] = field(default_factory=dict)


@dataclass(frozen=True)
class Refreshed:
    """What a refresh, backfill or rebuild came to.

    Args:
        table: its name.
        committed: whether a snapshot was committed; a run that finds nothing new commits none.
        snapshot_id: the table's head afterwards; of a rebuild that is not published, the head of its branch.
        position: source name -> snapshot id up to which it is folded now.
        coverage: the partitions that exist now.
        rows_read, files_read: of the source.
        rows_recomputed: source rows read again for keys that could not be merged.
        rows_written: new and changed rows.
        rows_carried: unchanged rows written again beside them, where a file was rewritten.
        rows_deleted: held rows that were changed or disappeared.
        rows: rows of the table now.
        null_key_rows: source rows (net, of this run) left out because a key is null.
        null_sequence_rows: source rows (net, of this run) left out because a part of their sequence is null.
        partitions: by day, for the partitions that were touched or asked for.
        seconds: how long it took.
    """

    table: str
    committed: bool
    snapshot_id: int | None
    position: dict[str, int | None]
    coverage: Coverage
    rows_read: int = 0
    files_read: int = 0
    rows_recomputed: int = 0
    rows_written: int = 0
    rows_carried: int = 0
    rows_deleted: int = 0
    rows: int = 0
    null_key_rows: int = 0
    null_sequence_rows: int = 0
    partitions: dict[date, PartitionCounts] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True)
class Compacted:
    """What a compaction came to.

    Args:
        table: its name.
        committed: whether a snapshot was committed; where nothing is worth it, none is.
        snapshot_id: the table's head afterwards.
        partitions: in how many partitions files were written anew.
        files_removed: data and delete files that the head names no more.
        files_added: data files in their place.
        bytes_removed, bytes_added: the sizes of the data files among them.
        rows_written: rows of the new files.
        seconds: how long it took.
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


@dataclass(frozen=True)
class Expired:
    """What an expiry came to.

    Args:
        table: its name.
        committed: whether anything changed; with nothing old enough, and all tags right, nothing does.
        snapshots_removed: how many snapshots went.
        snapshots_left: how many there are now.
        held: tag -> snapshot id, for the positions of all consumers.
        tags_dropped: tags of consumers that no longer exist, or no longer stand at a snapshot of this table; tags and
            branches that are older than `history.expire.max-ref-age-ms` lets them get.
        files_deleted, bytes_freed: of data, delete and metadata files that no snapshot names any more.
        files_outside: files that no snapshot names any more, left because they lie outside the table's location.
        seconds: how long it took.
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
    """A file that nothing names.

    Args:
        path: where it is.
        bytes: its size.
        written_at: when it was last written, by the file system.
    """

    path: str
    bytes: int
    written_at: datetime


@dataclass(frozen=True)
class Orphans:
    """The orphans of a table.

    Args:
        table: its name.
        files: those found, sorted by path.
        deleted: how many of them were deleted.
    """

    table: str
    files: tuple[Orphan, ...] = ()
    deleted: int = 0

    @property
    def bytes(self) -> int:
        """The size of all of them."""
        return sum(one.bytes for one in self.files)
