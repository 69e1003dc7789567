"""Since when a snapshot was the head, which is not what a clock that is behind stamped it with."""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.table import Table as IcebergTable

from foldhouse.storage.history import heads


def first_as_head(iceberg: IcebergTable) -> Mapping[int, int]:
    """Return the id of each listed snapshot -> when it first became the head, in ms since 1970.

    That is never before the commit that it follows. A snapshot that the log does not have counts from its stamp.
    """
    found = {one.snapshot_id: one.timestamp_ms for one in iceberg.metadata.snapshots}
    # Reversed, so that the earliest time wins if a snapshot was the head more than once.
    known = {one.snapshot_id: one.since_ms for one in reversed(heads(iceberg.metadata)) if one.snapshot_id is not None}
    return found | {name: since_ms for name, since_ms in known.items() if name in found}
