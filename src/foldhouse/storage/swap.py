"""One compare-and-swap on a table; after a failure, the table itself shows whether it landed.

Guarantee: exactly once. A swap that landed is never sent again. If in doubt, nothing is retried and nothing deleted.
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

from foldhouse.errors import CommitConflict, StorageError, Unsupported
from foldhouse.storage import log
from foldhouse.storage.compares_heads import check_compares_heads
from foldhouse.storage.removal import delete


def unmoved(iceberg: IcebergTable, ref: str = MAIN_BRANCH) -> tuple[TableRequirement, ...]:
    """Return the requirements that this is still the same table, and that a branch or tag has not moved."""
    is_this = AssertTableUUID(uuid=iceberg.metadata.table_uuid)
    if ref != MAIN_BRANCH and not iceberg.metadata.snapshots:  # pyiceberg cannot check a branch of an empty table
        return (is_this,)
    held = iceberg.metadata.refs.get(ref)
    return is_this, AssertRefSnapshotId(ref=ref, snapshot_id=held.snapshot_id if held else None)


def unevolved(iceberg: IcebergTable) -> tuple[TableRequirement, ...]:
    """Return the requirements that the table got no other schema and no new column since it was read."""
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
) -> TableMetadata | None:
    """Send one compare-and-swap, and after any failure read the table to see whether it landed.

    Args:
        catalog: where the table is registered.
        iceberg: the table as it was read.
        requirements: conditions that the current table must fulfil.
        updates: the changes.
        landed: whether the table, read again after a failure, contains these updates.
        what: a noun phrase for the change, for messages.

    Returns:
        What the catalog answered; `None` if the answer was lost and the swap landed.

    Raises:
        CommitConflict: the swap did not land, because a requirement no longer held.
        Unsupported: pyiceberg cannot write the change, or the table's format version. Or the catalog ignores the head
            that is required: then nothing was sent.
        FoldhouseError: the swap failed, and the catalog cannot be read to see whether it landed.
    """
    check_compares_heads(iceberg)
    try:
        landed_as = catalog.commit_table(iceberg, requirements, updates)
    except Exception as failure:  # of any class: a timeout, too, may come after the commit landed
        current = _looked_at(catalog, iceberg, what, failure)
        # Another uuid: the table was dropped, and another one was created under its name.
        if current.metadata.table_uuid == iceberg.metadata.table_uuid and landed(current):
            log.committed(".".join(iceberg.name()), updates)
            return None
        # If the head moved on and back, the requirement passes, but the commit fails: its sequence number is taken.
        moved = current.metadata.next_sequence_number() != iceberg.metadata.next_sequence_number()
        if moved or isinstance(failure, CommitFailedException):
            name = ".".join(iceberg.name())
            raise CommitConflict(
                f"{name} was committed to by another writer meanwhile; nothing was written, run it again"
            ) from failure
        if isinstance(failure, NotImplementedError):  # of pyiceberg: a format version, or a change
            raise Unsupported(
                f"{what} of {'.'.join(iceberg.name())} cannot be written: {failure}. Nothing was written"
            ) from failure
        raise
    log.committed(".".join(iceberg.name()), updates)
    _drop_old_metadata(iceberg, landed_as.metadata)
    return landed_as.metadata


def _drop_old_metadata(before: IcebergTable, after: TableMetadata) -> None:
    """Delete the metadata files that the table's log no longer references, if its properties ask for that.

    pyiceberg does this after its own commits, but not after a commit that is sent to the catalog directly. The log may
    contain any path, so a file outside of the table stays.
    """
    if after.properties.get("write.metadata.delete-after-commit.enabled", "false").lower() != "true":
        return
    kept = {entry.metadata_file for entry in after.metadata_log}
    for entry in before.metadata.metadata_log:
        if entry.metadata_file not in kept:
            delete(before, entry.metadata_file)


def _looked_at(catalog: Catalog, iceberg: IcebergTable, what: str, failure: Exception) -> IcebergTable:
    """Load the table again, to see whether a commit landed that was reported as failed."""
    name = ".".join(iceberg.name())
    try:
        return catalog.load_table(iceberg.name())
    except NoSuchTableError:
        raise CommitConflict(f"{name} was dropped meanwhile; nothing was written, create it again") from failure
    except Exception as unreachable:
        raise StorageError(
            f"{what} of {name} may or may not be committed: the commit failed ({failure}), and "
            f"the catalog cannot be asked ({unreachable}). Run it again: a change that landed is not repeated"
        ) from failure


def branch_is(iceberg: IcebergTable, snapshot_id: int, branch: str = MAIN_BRANCH) -> SetSnapshotRefUpdate:
    """Return the update that points a branch to a snapshot; the branch keeps its retention settings."""
    held = iceberg.metadata.refs.get(branch)
    # An update replaces the whole ref, so its retention settings are repeated.
    rules = {} if held is None else held.model_dump(by_alias=True, exclude_none=True)
    return SetSnapshotRefUpdate.model_validate(
        {**rules, "ref-name": branch, "type": "branch", "snapshot-id": snapshot_id}
    )
