"""Makes a branch the head by one fast-forward, which cannot drop commits of other writers; renames a branch."""

from __future__ import annotations

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.update import (
    RemoveSnapshotRefUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSpecUpdate,
    TableUpdate,
)

from foldhouse.errors import CommitConflict
from foldhouse.storage.clock import main_moves_to
from foldhouse.storage.swap import branch_is, swap, unmoved


def fast_forward(catalog: Catalog, iceberg: IcebergTable, branch: str, spec_id: int, way: str) -> int:
    """Make the snapshot of a branch the head, with its own schema and partitioning, and drop the branch.

    Args:
        catalog: where the table is registered.
        iceberg: the table as it was read, with the branch.
        branch: the name of the branch. The parent of its snapshot must still be the head.
        spec_id: the partition spec that the snapshot was written with.
        way: what to do if the head has moved, for the message.

    Returns:
        The snapshot id.

    Raises:
        CommitConflict: the head or the branch has moved since; nothing was published.
    """
    snapshot = iceberg.snapshot_by_name(branch)
    assert snapshot is not None
    head = iceberg.metadata.current_snapshot_id
    if snapshot.parent_snapshot_id != head:
        raise CommitConflict(
            f"{'.'.join(iceberg.name())} has moved on to snapshot {head} since its branch {branch} was made on "
            f"snapshot {snapshot.parent_snapshot_id}. Nothing was published, and neither changed; {way}"
        )
    updates: list[TableUpdate] = [main_moves_to(iceberg, snapshot.snapshot_id)]
    if snapshot.schema_id is not None and snapshot.schema_id != iceberg.metadata.current_schema_id:
        updates.append(SetCurrentSchemaUpdate(schema_id=snapshot.schema_id))
    if spec_id != iceberg.metadata.default_spec_id:
        updates.append(SetDefaultSpecUpdate(spec_id=spec_id))
    updates.append(RemoveSnapshotRefUpdate.model_validate({"ref-name": branch}))
    swap(
        catalog,
        iceberg,
        (*unmoved(iceberg), *unmoved(iceberg, branch)),
        tuple(updates),
        lambda now: now.metadata.current_snapshot_id == snapshot.snapshot_id,
        f"the publication of snapshot {snapshot.snapshot_id}",
    )
    return snapshot.snapshot_id


def rename(catalog: Catalog, iceberg: IcebergTable, branch: str, to: str) -> None:
    """Rename a branch, in one step; a branch that has the new name is replaced.

    Raises:
        CommitConflict: one of them has moved since the table was read; neither changed.
    """
    snapshot = iceberg.snapshot_by_name(branch)
    assert snapshot is not None

    def landed(now: IcebergTable) -> bool:
        there = now.metadata.refs.get(to)
        return there is not None and there.snapshot_id == snapshot.snapshot_id and branch not in now.metadata.refs

    swap(
        catalog,
        iceberg,
        (*unmoved(iceberg, branch), *unmoved(iceberg, to)),
        (
            branch_is(iceberg, snapshot.snapshot_id, to),
            RemoveSnapshotRefUpdate.model_validate({"ref-name": branch}),
        ),
        landed,
        f"the renaming of branch {branch} to {to}",
    )
