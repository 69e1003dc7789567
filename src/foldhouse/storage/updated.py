"""The metadata that a commit writes, at a cost that hardly grows with the snapshots that it lists.

pyiceberg copies a table's metadata at each commit, every snapshot of it, and over a long history that is most of what a
commit costs. Nothing changes a snapshot that is there, so nothing has to be copied; and the JSON of a snapshot is made
once and kept for the next commit.
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
    """The metadata of a table with some updates: what pyiceberg's own function gives, without a copy of the rest.

    Args:
        base: the metadata as it is.
        location: of its file.
        updates: what changes.
    """
    context = _TableMetadataUpdateContext()
    after = base
    for update in updates:
        after = _apply_table_update(update, after, context)
    if context.has_changes():
        if base.last_updated_ms == after.last_updated_ms:
            after = after.model_copy(update={"last_updated_ms": stamp_ms(base)})
        # Times that were mended are earlier than those of the file that is replaced.
        replaced_ms = min(base.last_updated_ms, after.last_updated_ms)
        after = _update_table_metadata_log(after, location, replaced_ms)
    after.spec().check_compatible(after.schema())
    after.sort_order().check_compatible(after.schema())
    return after


def contents(metadata: TableMetadata) -> bytes:
    """The bytes of a metadata file, not compressed."""
    rest = metadata.model_copy(update={"snapshots": []}).model_dump_json(exclude_none=True)
    # The quotes of a text within the JSON are escaped, so that this is the list and no part of a property.
    return rest.replace(_NO_SNAPSHOTS, f'"snapshots":[{",".join(_texts(metadata))}]', 1).encode()


def _texts(metadata: TableMetadata) -> list[str]:
    with _LOCK:
        known = _WRITTEN.get(metadata.table_uuid, {})
    made: dict[int, tuple[Snapshot, str]] = {}
    for snapshot in metadata.snapshots:
        held = known.get(snapshot.snapshot_id)
        if held is None or not (held[0] is snapshot or held[0] == snapshot):
            held = (snapshot, snapshot.model_dump_json(exclude_none=True))
        made[snapshot.snapshot_id] = held
    with _LOCK:
        _WRITTEN.pop(metadata.table_uuid, None)
        if len(_WRITTEN) >= _MOST_TABLES:
            _WRITTEN.pop(next(iter(_WRITTEN)))
        _WRITTEN[metadata.table_uuid] = made
    return [text for _, text in made.values()]
