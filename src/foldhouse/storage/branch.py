"""Makes a branch the head by one fast-forward, which drops no commit of other writers; renames or drops a branch."""

from __future__ import annotations

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.update import (
    RemoveSnapshotRefUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSpecUpdate,
    TableUpdate,
)

from foldhouse.errors import CommitConflict, InvalidCall, UnknownSnapshot
from foldhouse.storage.clock import main_moves_to
from foldhouse.storage.swap import branch_is, swap, unmoved
from foldhouse.values.given import shown


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


def check_can_be_dropped(iceberg: IcebergTable, branch: str) -> int:
    """Return the id of the snapshot of a branch that can be dropped.

    Raises:
        InvalidCall: it is `main`, or a tag.
        UnknownSnapshot: there is no such branch.
    """
    refs = iceberg.metadata.refs
    table, held = ".".join(iceberg.name()), refs.get(branch)
    if branch == MAIN_BRANCH:
        raise InvalidCall(f"{branch} is the table itself; `foldhouse rollback {table} --to ...` moves it back")
    if held is None:
        kind = SnapshotRefType.BRANCH
        there = sorted(name for name, ref in refs.items() if ref.snapshot_ref_type == kind and name != MAIN_BRANCH)
        raise UnknownSnapshot(f"{table} has no branch {shown(branch)}; it has {', '.join(there) or 'none'}")
    if held.snapshot_ref_type != SnapshotRefType.BRANCH:
        raise InvalidCall(
            f"{branch} is a tag of {table}, not a branch; `foldhouse tag {table} {branch} --delete` drops it"
        )
    return held.snapshot_id


def drop(catalog: Catalog, iceberg: IcebergTable, branch: str) -> int:
    """Drop a branch; return the id of its snapshot, which stays until an expiry removes it.

    Raises:
        InvalidCall, UnknownSnapshot: see `check_can_be_dropped`.
        CommitConflict: another process moved or dropped the branch at the same time.
    """
    snapshot_id = check_can_be_dropped(iceberg, branch)
    swap(
        catalog,
        iceberg,
        unmoved(iceberg, branch),
        (RemoveSnapshotRefUpdate.model_validate({"ref-name": branch}),),
        lambda now: branch not in now.metadata.refs,
        f"the removal of branch {branch}",
    )
    return snapshot_id
