"""Makes an older snapshot the head again.

Guarantee: one compare-and-swap on the head that was read; a commit of another writer in between is never dropped.
"""

from __future__ import annotations

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table as IcebergTable

from foldhouse.errors import CommitConflict, UnknownSnapshot
from foldhouse.storage.clock import main_moves_to
from foldhouse.storage.history import snapshot_of
from foldhouse.storage.swap import swap, unmoved


def roll_back(catalog: Catalog, iceberg: IcebergTable, snapshot_id: int) -> None:
    """Move the branch `main` to an older snapshot.

    Args:
        catalog: where the table is registered.
        iceberg: the table as it was read.
        snapshot_id: of an existing snapshot.

    Raises:
        CommitConflict: another writer committed first; the head was not moved.
        UnknownSnapshot: the snapshot was expired meanwhile; the head was not moved.
    """
    try:
        swap(
            catalog,
            iceberg,
            unmoved(iceberg),
            (main_moves_to(iceberg, snapshot_id),),
            lambda now: now.metadata.current_snapshot_id == snapshot_id,
            f"the rollback to snapshot {snapshot_id}",
        )
    except CommitConflict:
        raise
    except Exception as failure:  # each catalog refuses an unknown snapshot in its own way
        if snapshot_of(catalog.load_table(iceberg.name()), snapshot_id) is not None:
            raise
        name = ".".join(iceberg.name())
        raise UnknownSnapshot(
            f"{name}: snapshot {snapshot_id} was expired meanwhile; the head was not moved. Choose a snapshot from "
            f"`foldhouse history {name}`"
        ) from failure
