"""Creates the metadata of a commit, at a cost that hardly grows with the number of snapshots in it.

pyiceberg copies a table's metadata with every snapshot at each commit. With a long history, that is most of the cost of
a commit. Existing snapshots never change, so they need no copy.
"""

from __future__ import annotations

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    TableUpdate,
    _apply_table_update,
    _TableMetadataUpdateContext,
    _update_table_metadata_log,
)

from foldhouse.storage.clock import stamp_ms


def updated(base: TableMetadata, location: str, updates: tuple[TableUpdate, ...]) -> TableMetadata:
    """Apply updates to the metadata of a table, like pyiceberg's own function but without copying the rest.

    Args:
        base: the metadata before the commit.
        location: of the file of `base`.
        updates: the changes.
    """
    context = _TableMetadataUpdateContext()
    after = base
    for update in updates:
        after = _apply_table_update(update, after, context)
    if context.has_changes():
        if base.last_updated_ms == after.last_updated_ms:
            after = after.model_copy(update={"last_updated_ms": stamp_ms(base)})
        # After `mend`, the new times are earlier than those of the replaced file.
        replaced_ms = min(base.last_updated_ms, after.last_updated_ms)
        after = _update_table_metadata_log(after, location, replaced_ms)
    after.spec().check_compatible(after.schema())
    after.sort_order().check_compatible(after.schema())
    return after
