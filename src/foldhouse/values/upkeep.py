"""What compacting, expiring and looking for orphans return."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from foldhouse.values.readable import Readable


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
