"""The one rule that decides, per bucket, between position deletes and writing its files again.

Position deletes cost what the change costs; every reader pays for them afterwards. Measured with 5M rows, a layer of
20 % deleted positions makes a read about half as slow again, so that is where a bucket is written anew; and before its
files become many.
"""

from __future__ import annotations

from collections.abc import Sequence

from foldhouse.storage.live import Slice

DELETED_SHARE = 0.2
MAX_FILES = 16


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
    return deleted > DELETED_SHARE * stored or len(slices) + delete_files >= MAX_FILES
