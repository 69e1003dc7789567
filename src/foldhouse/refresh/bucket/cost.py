"""The rules that decide when files are written again: by a refresh, of a bucket, and by a compaction.

Position deletes cost what the change costs; every reader pays for them afterwards. Measured with 5M rows, a layer of
20 % deleted positions makes a read about half as slow again, so that is about where a file is written anew. Where a
bucket's files become many, its small ones are written as one, in steps that grow: a row is carried along a few times on
its way into a large file, however many refreshes there are. A compaction has the time to do it from five files on,
where that leaves fewer.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from foldhouse.storage.live import Slice
from foldhouse.values.tuning import Tuning


@dataclass(frozen=True)
class Stored:
    """A data file as it is after a change, if it is left where it is.

    Args:
        rows: the rows it has.
        deleted: how many of them are deleted then.
        patience: from 0 to 1, how long it is left, see `Tuning.patience_least_share`.
    """

    rows: int
    deleted: int
    patience: float = 0.25

    @property
    def live(self) -> int:
        """The rows that are not."""
        return self.rows - self.deleted


def files_to_rewrite(
    files: Sequence[Stored], rows_added: int, tuning: Tuning, *, leaves_deletes: bool = True
) -> list[int]:
    """Which data files of a bucket are better written anew, together with the rows that are added.

    Args:
        files: its data files.
        rows_added: new and changed rows.
        tuning: how many deletes and small files are too many.
        leaves_deletes: whether deleted rows may be left in a file; else every file that has one is written anew.

    Returns:
        Places in `files`, ascending: those of which much is deleted, and small ones once there are many.
    """
    share = tuning.deleted_share if leaves_deletes else 0
    least, spread = tuning.patience_least_share, tuning.patience_spread_share
    chosen = [
        place for place, one in enumerate(files) if one.deleted > one.rows * share * (least + spread * one.patience)
    ]
    others = sorted(set(range(len(files))).difference(chosen), key=lambda place: files[place].live)
    together = rows_added + sum(files[place].live for place in chosen)
    small = []
    for place in others:
        if files[place].live > max(tuning.small_rows_factor * together, tuning.always_small_rows):
            break
        small.append(place)
        together += files[place].live
    chosen += small if len(small) >= tuning.merged_small_files else []
    return sorted(chosen)


def patience_of(path: str) -> float:
    """How long a file is left, alike whenever it is asked for; different for each file."""
    return zlib.crc32(path.encode()) / 2**32


def merging_deletes_pays(delete_files: int, tuning: Tuning) -> bool:
    """Whether so many delete files of a bucket are better written as one."""
    return delete_files >= tuning.merged_delete_files


def is_small(one: Slice, target_bytes: int, tuning: Tuning) -> bool:
    """Whether a file is so much smaller than the size aimed at that it is better written together with others."""
    return one.file.size_bytes < tuning.small_file_share * target_bytes


def is_worn(rows_stored: int, rows_deleted: int, tuning: Tuning) -> bool:
    """Whether so large a share of the stored rows is deleted that readers pay for it."""
    return rows_deleted > tuning.deleted_share * rows_stored


def compacting_pays(files: int, files_after: int, rows_stored: int, rows_deleted: int, tuning: Tuning) -> bool:
    """Whether writing some files anew leaves readers with noticeably less to do.

    Args:
        files: data and delete files that are there.
        files_after: data files there will be.
        rows_stored: rows of the data files, deleted ones among them.
        rows_deleted: how many of them are deleted.
        tuning: how many files are worth it for their number alone.
    """
    return is_worn(rows_stored, rows_deleted, tuning) or (files >= tuning.compacted_files and files_after < files)
