"""The rules for rewriting files: those of a bucket during a refresh, and those of a partition during a compaction.

Writing position deletes costs in proportion to the change, but every later read pays for them. Measured with 5M rows,
a read is about 50 % slower with 20 % deleted positions, so a file is rewritten at about that point.

If a bucket has many small files, they are merged into one, in steps that grow. So a row is rewritten only a few times
on its way into a large file, however many refreshes there are. A compaction merges from five files on, if that leaves
fewer files.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from foldhouse.storage.live import Slice
from foldhouse.values.tuning import Tuning


@dataclass(frozen=True)
class Stored:
    """A data file as it would be after a change that does not rewrite it.

    Args:
        rows: rows of the file, including deleted ones.
        deleted: how many of these rows are deleted.
        patience: from 0 to 1, how long the file waits for a rewrite; see `Tuning.patience_least_share`.
    """

    rows: int
    deleted: int
    patience: float = 0.25

    @property
    def live(self) -> int:
        """The number of rows that are not deleted."""
        return self.rows - self.deleted


def files_to_rewrite(
    files: Sequence[Stored], rows_added: int, tuning: Tuning, *, leaves_deletes: bool = True
) -> list[int]:
    """Choose the data files of a bucket to rewrite together with the added rows.

    Args:
        files: the data files of the bucket.
        rows_added: number of new and changed rows.
        tuning: how many deleted rows and small files are too many.
        leaves_deletes: whether deleted rows may stay in a file; else every file with deleted rows is rewritten.

    Returns:
        Places in `files`, ascending: the files with many deleted rows, and the small files once there are many.
    """
    chosen = [place for place, one in enumerate(files) if is_worn_out(one, tuning, leaves_deletes=leaves_deletes)]
    others = sorted(set(range(len(files))).difference(chosen), key=lambda place: files[place].live)
    together = rows_added + sum(files[place].live for place in chosen)
    most = max(tuning.small_most_rows, tuning.small_most_share * (rows_added + sum(one.live for one in files)))
    small = []
    for place in others:
        if files[place].live > min(most, max(tuning.small_rows_factor * together, tuning.always_small_rows)):
            break
        small.append(place)
        together += files[place].live
    chosen += small if len(small) >= tuning.merged_small_files else []
    return sorted(chosen)


def is_worn_out(one: Stored, tuning: Tuning, *, leaves_deletes: bool = True) -> bool:
    """Whether a file has so many deleted rows that a refresh writes it again; see `files_to_rewrite`."""
    share = tuning.deleted_share if leaves_deletes else 0
    patience = tuning.patience_least_share + tuning.patience_spread_share * one.patience
    return one.deleted > one.rows * share * patience


def patience_of(path: str) -> float:
    """Return the patience of a file: a hash of its path, so that it never changes and differs between files."""
    return zlib.crc32(path.encode()) / 2**32


def merging_deletes_pays(delete_files: int, tuning: Tuning) -> bool:
    """Whether a bucket has so many delete files that one merged file is better."""
    return delete_files >= tuning.merged_delete_files


def is_small(one: Slice, target_bytes: int, tuning: Tuning) -> bool:
    """Whether a file is so much smaller than the target size that merging it with others pays."""
    return one.file.size_bytes < tuning.small_file_share * target_bytes


def is_worn(rows_stored: int, rows_deleted: int, tuning: Tuning) -> bool:
    """Whether so many of the stored rows are deleted that reads are noticeably slower."""
    return rows_deleted > tuning.deleted_share * rows_stored


def merged_together(sizes: Sequence[int], tuning: Tuning) -> list[int]:
    """Choose the files to merge by their sizes: the smallest ones, and no file that is much larger than these together.

    Else each compaction of a stream would write again what it merged before, as long as that is not a large file.

    Args:
        sizes: of the small files of a partition, in bytes.
        tuning: how much larger a file may be.

    Returns:
        Places in `sizes`, ascending.
    """
    order = sorted(range(len(sizes)), key=lambda place: sizes[place])
    count = together = 0
    for place, number in enumerate(order):
        if sizes[number] <= tuning.compacted_growth_factor * together:
            count = place + 1
        together += sizes[number]
    return sorted(order[:count])


def compacting_pays(files: int, files_after: int, rows_stored: int, rows_deleted: int, tuning: Tuning) -> bool:
    """Whether rewriting some files makes reads noticeably faster.

    Args:
        files: number of data and delete files now.
        files_after: number of data files afterwards.
        rows_stored: rows of the data files, including deleted ones.
        rows_deleted: how many of these rows are deleted.
        tuning: from how many files on their number alone is a reason.
    """
    return is_worn(rows_stored, rows_deleted, tuning) or (files >= tuning.compacted_files and files_after < files)
