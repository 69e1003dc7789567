"""The pieces of a source that changed between two snapshots, without those that our compactions rewrote."""

from __future__ import annotations

from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Operation, Snapshot

from foldhouse.storage.commit import is_bound
from foldhouse.storage.history import lineage, snapshot_of
from foldhouse.storage.live import Piece, changed_pieces, live_of
from foldhouse.values.metadata_names import RUN_ID


def pieces_between(iceberg: IcebergTable, after: int | None, upto: int | None) -> list[Piece]:
    """Return the pieces that were removed (weight -1) and added (weight +1) in the window `(after, upto]`.

        append, append, compaction, append  ->  the files of the three appends

    The plain difference of the two states gives the same rows, but reads more: the rows of rewritten files are on both
    sides and cancel. That difference is used for compactions by other tools. It is also used if the history between
    the two snapshots is gone, or does not lead from one to the other.

    Args:
        iceberg: the source.
        after: a snapshot id; `None` for the empty table.
        upto: a snapshot id; `None` for the empty table.

    Raises:
        UnknownSnapshot: one of the snapshots does not exist, or no longer exists.
    """
    pieces: list[Piece] = []
    start = after
    for compaction in _compactions(iceberg, after, upto):
        pieces += changed_pieces(live_of(iceberg, start), live_of(iceberg, compaction.parent_snapshot_id))
        start = compaction.snapshot_id
    return pieces + changed_pieces(live_of(iceberg, start), live_of(iceberg, upto))


def _compactions(iceberg: IcebergTable, after: int | None, upto: int | None) -> list[Snapshot]:
    """Return our compactions between two snapshots, oldest first; none if no lineage connects the two."""
    found: list[Snapshot] = []
    for snapshot in lineage(iceberg, snapshot_of(iceberg, upto)):
        if snapshot.snapshot_id == after:
            return found[::-1]
        if _is_our_compaction(snapshot) and snapshot_of(iceberg, snapshot.parent_snapshot_id) is not None:
            found.append(snapshot)
    return found[::-1] if after is None else []


def _is_our_compaction(snapshot: Snapshot) -> bool:
    summary = snapshot.summary
    if summary is None or summary.operation != Operation.REPLACE or RUN_ID not in summary.additional_properties:
        return False
    return is_bound(snapshot)  # another tool's `replace` may copy our summary and change rows
