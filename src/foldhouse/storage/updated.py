"""Creates the metadata of a commit, at a cost that hardly grows with the number of snapshots in it.

pyiceberg copies a table's metadata with every snapshot at each commit. With a long history, that is most of the cost of
a commit. Existing snapshots never change, so they need no copy, and the JSON of a snapshot is cached for the next
commit.
"""

from __future__ import annotations

import threading
from uuid import UUID

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    TableUpdate,
    _apply_table_update,
    _TableMetadataUpdateContext,
    _update_table_metadata_log,
)

from foldhouse.storage.clock import stamp_ms

_MOST_TABLES = 64
_NO_SNAPSHOTS = '"snapshots":[]'
_WRITTEN: dict[UUID, dict[int, tuple[Snapshot, str]]] = {}
_LOCK = threading.Lock()


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


def contents(metadata: TableMetadata) -> bytes:
    """Return the uncompressed bytes of a metadata file."""
    rest = metadata.model_copy(update={"snapshots": []}).model_dump_json(exclude_none=True)
    # Quotes within a JSON text are escaped, so the first match is the list and never a part of a property.
    return rest.replace(_NO_SNAPSHOTS, f'"snapshots":[{",".join(_texts(metadata))}]', 1).encode()


def _texts(metadata: TableMetadata) -> list[str]:
    with _LOCK:
        known = _WRITTEN.get(metadata.table_uuid, {})
    made: dict[int, tuple[Snapshot, str]] = {}
    for snapshot in metadata.snapshots:
        held = known.get(snapshot.snapshot_id)
        # Identity first: it is the usual case, and comparing two snapshots takes far longer.
        if held is None or not (held[0] is snapshot or held[0] == snapshot):
            held = (snapshot, snapshot.model_dump_json(exclude_none=True))
        made[snapshot.snapshot_id] = held
    with _LOCK:
        # Removed and inserted again, so that the table used longest ago is first in the dict.
        _WRITTEN.pop(metadata.table_uuid, None)
        if len(_WRITTEN) >= _MOST_TABLES:
            _WRITTEN.pop(next(iter(_WRITTEN)))
        _WRITTEN[metadata.table_uuid] = made
    return [text for _, text in made.values()]
