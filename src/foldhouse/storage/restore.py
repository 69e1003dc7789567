"""An older snapshot becomes the head again.

Guarantee: one compare-and-swap on the head that was read; a commit of others in between is never dropped.
"""

from __future__ import annotations

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import write_manifest_list
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate

from foldhouse.storage.avro import manifests_of
from foldhouse.storage.commit import CODEC, in_history, now_ms
from foldhouse.storage.history import snapshot_of
from foldhouse.storage.places import places
from foldhouse.storage.swap import branch_is, move_main, swap, unmoved


def roll_back(catalog: Catalog, iceberg: IcebergTable, snapshot_id: int) -> int:
    """Make an older snapshot the head: the branch moves, or where it is not listed any more, a stand-in comes.

    Args:
        catalog: where the table is registered.
        iceberg: the table as it was read.
        snapshot_id: of a snapshot it has.

    Returns:
        The id of the head: the snapshot's own, or that of its stand-in.

    Raises:
        CommitConflict: somebody else committed first; the head was not moved.
        FoldhouseError: the clock is behind the table's last commit.
    """
    if iceberg.snapshot_by_id(snapshot_id) is not None:
        move_main(catalog, iceberg, snapshot_id)
        return snapshot_id
    older = snapshot_of(iceberg, snapshot_id)
    assert older is not None
    stand_in = _stand_in(iceberg, older)
    swap(
        catalog,
        iceberg,
        unmoved(iceberg),
        (AddSnapshotUpdate(snapshot=stand_in), branch_is(stand_in.snapshot_id)),
        lambda now: in_history(now, stand_in.snapshot_id),
        f"the way back to snapshot {snapshot_id}",
    )
    return stand_in.snapshot_id


def _stand_in(iceberg: IcebergTable, older: Snapshot) -> Snapshot:
    """A snapshot of the same files that stands on the older one and says the same: no row changes between the two."""
    metadata = iceberg.metadata
    snapshot_id, sequence_number = metadata.new_snapshot_id(), metadata.next_sequence_number()
    path = places(iceberg).new_metadata_location(f"snap-{snapshot_id}-0-back.avro")
    with write_manifest_list(
        format_version=metadata.format_version,
        output_file=iceberg.io.new_output(path),
        snapshot_id=snapshot_id,
        parent_snapshot_id=older.snapshot_id,
        sequence_number=sequence_number,
        avro_compression=CODEC,
    ) as writer:
        writer.add_manifests(manifests_of(iceberg.io, older))
    said = older.summary.additional_properties if older.summary is not None else {}
    kept = {name: text for name, text in said.items() if name.startswith(("foldhouse.", "total-"))}
    return Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=older.snapshot_id,
        manifest_list=path,
        sequence_number=sequence_number,
        timestamp_ms=now_ms(metadata.last_updated_ms, iceberg.current_snapshot()),
        summary=Summary(operation=Operation.REPLACE, **kept),
        schema_id=older.schema_id,
    )
