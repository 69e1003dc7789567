"""One compare-and-swap on a table, and the table itself as the witness of whether it landed.

Guarantee: exactly once. What landed is never sent again, nothing is retried blindly, and nothing is deleted on doubt.
"""

from __future__ import annotations

from collections.abc import Callable

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import (
    AssertCurrentSchemaId,
    AssertLastAssignedFieldId,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from foldhouse.errors import CommitConflict, FoldhouseError
from foldhouse.storage.removal import delete


def unmoved(iceberg: IcebergTable, ref: str = MAIN_BRANCH) -> tuple[TableRequirement, ...]:
    """The requirements that it is still this table, and that a branch or tag is where it was read."""
    is_this = AssertTableUUID(uuid=iceberg.metadata.table_uuid)
    if ref != MAIN_BRANCH and not iceberg.metadata.snapshots:  # pyiceberg: such a table has no other branch to look at
        return (is_this,)
    held = iceberg.metadata.refs.get(ref)
    return is_this, AssertRefSnapshotId(ref=ref, snapshot_id=held.snapshot_id if held else None)


def unevolved(iceberg: IcebergTable) -> tuple[TableRequirement, ...]:
    """The requirements that nobody gave the table another schema, or a new column, since it was read."""
    metadata = iceberg.metadata
    return (
        AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id),
        AssertLastAssignedFieldId(last_assigned_field_id=metadata.last_column_id),
    )


def swap(
    catalog: Catalog,
    iceberg: IcebergTable,
    requirements: tuple[TableRequirement, ...],
    updates: tuple[TableUpdate, ...],
    landed: Callable[[IcebergTable], bool],
    what: str,
) -> None:
    """Send one compare-and-swap, and on any failure let the table itself say whether it landed.

    Args:
        catalog: where the table is registered.
        iceberg: the table as it was read.
        requirements: what must hold of the table that is replaced.
        updates: what is changed.
        landed: whether the table, read again after a failure, holds these updates.
        what: what is committed, for messages.

    Raises:
        CommitConflict: it did not land, because a requirement no longer held.
        FoldhouseError: it failed, and the catalog cannot be asked whether it landed.
    """
    try:
        landed_as = catalog.commit_table(iceberg, requirements, updates)
    except Exception as failure:
        current = _looked_at(catalog, iceberg, what, failure)
        if current.metadata.table_uuid == iceberg.metadata.table_uuid and landed(current):
            return
        # A head that moved on and back again passes the requirement, and fails later on: its sequence number is taken.
        moved = current.metadata.next_sequence_number() != iceberg.metadata.next_sequence_number()
        if moved or isinstance(failure, CommitFailedException):
            name = ".".join(iceberg.name())
            raise CommitConflict(
                f"{name} was committed to by somebody else meanwhile; nothing was written"
            ) from failure
        raise
    _drop_old_metadata(iceberg, landed_as.metadata)


def _drop_old_metadata(before: IcebergTable, after: TableMetadata) -> None:
    """Delete the metadata files that the table's log no longer names, where its properties say so.

    pyiceberg does this for its own commits, and for none that is sent to the catalog directly. The log is data: a file
    outside of the table stays.
    """
    if after.properties.get("write.metadata.delete-after-commit.enabled", "false").lower() != "true":
        return
    kept = {entry.metadata_file for entry in after.metadata_log}
    for entry in before.metadata.metadata_log:
        if entry.metadata_file not in kept:
            delete(before, entry.metadata_file)


def _looked_at(catalog: Catalog, iceberg: IcebergTable, what: str, failure: Exception) -> IcebergTable:
    """The table as it is now, to see whether a commit landed that was reported as failed."""
    name = ".".join(iceberg.name())
    try:
        return catalog.load_table(iceberg.name())
    except NoSuchTableError:
        raise CommitConflict(f"{name} was dropped meanwhile; nothing was written") from failure
    except Exception as unreachable:
        raise FoldhouseError(
            f"whether {what} of {name} was committed is unknown: the commit failed ({failure}), and "
            f"the catalog cannot be asked ({unreachable}). Run it again: what was committed is not repeated"
        ) from failure


def branch_is(iceberg: IcebergTable, snapshot_id: int, branch: str = MAIN_BRANCH) -> SetSnapshotRefUpdate:
    """The update that points a branch to a snapshot; what the branch says of its history stays."""
    held = iceberg.metadata.refs.get(branch)
    rules = {} if held is None else held.model_dump(by_alias=True, exclude_none=True)
    return SetSnapshotRefUpdate.model_validate(
        {**rules, "ref-name": branch, "type": "branch", "snapshot-id": snapshot_id}
    )
