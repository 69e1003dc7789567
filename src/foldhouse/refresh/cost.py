"""The rules that decide when files are written again: by a refresh, of a bucket, and by a compaction.

Position deletes cost what the change costs; every reader pays for them afterwards. Measured with 5M rows, a layer of
20 % deleted positions makes a read about half as slow again, so that is where a bucket is written anew; and before its
files become many. A compaction has the time to do it from five files on, where that leaves fewer.
"""

from __future__ import annotations

from collections.abc import Sequence

from foldhouse.storage.live import Slice

DELETED_SHARE = 0.2
MAX_FILES = 16
MIN_FILES = 5
SMALL_SHARE = 0.75
TARGET_BYTES = 128 * 1024 * 1024


def rewriting_pays(slices: Sequence[Slice], rows_live: int, rows_replaced: int) -> bool:
    """Whether a bucket is better written whole than given one more layer.

    Args:
        slices: its files with their delete files.
        rows_live: its rows before this change.
        rows_replaced: how many of them this change takes out.
    """
    if not slices:
        return False
    stored = sum(s.file.rows for s in slices)
    deleted = stored - rows_live + rows_replaced
    delete_files = len({path for s in slices for path in s.deletes})
    return is_worn(stored, deleted) or len(slices) + delete_files >= MAX_FILES


def is_small(one: Slice, target_bytes: int) -> bool:
    """Whether a file is so much smaller than the size aimed at that it is better written together with others."""
    return one.file.size_bytes < SMALL_SHARE * target_bytes


def is_worn(rows_stored: int, rows_deleted: int) -> bool:
    """Whether so large a share of the stored rows is deleted that readers pay for it."""
    return rows_deleted > DELETED_SHARE * rows_stored


def compacting_pays(files: int, files_after: int, rows_stored: int, rows_deleted: int, min_files: int) -> bool:
    """Whether writing some files anew leaves readers with noticeably less to do.

    Args:
        files: data and delete files that are there.
        files_after: data files there will be.
        rows_stored: rows of the data files, deleted ones among them.
        rows_deleted: how many of them are deleted.
        min_files: fewer files than this are not worth it for their number alone.
    """
    return is_worn(rows_stored, rows_deleted) or (files >= min_files and files_after < files)
