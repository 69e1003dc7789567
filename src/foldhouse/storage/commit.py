"""The commit: one snapshot, one compare-and-swap on the head that was read.

Guarantee: exactly once. A commit lands whole or not at all. A lost race raises `CommitConflict` and leaves files that
no reader sees. An unknown outcome is resolved by looking for our own snapshot id. If in doubt, nothing is deleted and
nothing is retried: pyiceberg's own retry rebases without validation, and its clean-up deletes live manifests after a
commit that landed but was reported as failed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile, write_manifest_list
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import (
    CHANGED_PARTITION_COUNT_PROP,
    Operation,
    Snapshot,
    Summary,
    UpdateMetrics,
    update_snapshot_summaries,
)
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSpecUpdate,
    SetPropertiesUpdate,
    TableUpdate,
)

from foldhouse.errors import Unsupported
from foldhouse.storage.behind import check_is_not_behind
from foldhouse.storage.clock import stamp_ms, warn_if_ahead
from foldhouse.storage.evolve import evolved
from foldhouse.storage.file_ref import partition_values
from foldhouse.storage.history import head_of
from foldhouse.storage.integrity import SealedFile
from foldhouse.storage.keeps_history import check_history_is_kept, check_keeps_history
from foldhouse.storage.manifests import CODEC, Manifests
from foldhouse.storage.occupied import check_is_alone
from foldhouse.storage.outlived import check_are_there
from foldhouse.storage.places import places
from foldhouse.storage.properties import write_properties
from foldhouse.storage.swap import branch_is, swap, unevolved, unmoved
from foldhouse.values.metadata_names import COMMIT

# Matches `815 on 814 at 7` (a snapshot, its parent, the sequence number), or `815 on nothing at 1`.
_BOUND = re.compile(r"(\d+) on (\d+|nothing) at (\d+)")
NEWEST_WRITTEN = 2
"""The newest of Iceberg's format versions that is written."""
_MAKES_CURRENT = (SetCurrentSchemaUpdate, SetDefaultSpecUpdate)


@dataclass(frozen=True)
class FileChanges:
    """The files that one commit adds and removes.

    Args:
        added: data files and position delete files.
        removed: paths of data files and delete files that are live in the head.
        operation: the operation in the snapshot's summary.
        updates: changes of schema and partitioning in the same commit.
        properties: table properties to set in the same commit.
        without_history: write all manifests again, so that none has an entry, with bounds, of a removed file.
    """

    added: Sequence[DataFile] = ()
    removed: frozenset[str] = frozenset()
    operation: Operation = Operation.OVERWRITE
    updates: tuple[TableUpdate, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    without_history: bool = False


def _written(
    iceberg: IcebergTable, head: Snapshot | None, changes: FileChanges, stamped_ms: int, properties: Mapping[str, str]
) -> Snapshot:
    """Write the manifests and the manifest list of one snapshot on top of a head, and return the snapshot.

    Args:
        iceberg: the table, with the schema and the specs that the commit makes.
        head: the head that was read.
        changes: the files added and removed.
        stamped_ms: the snapshot's time, in milliseconds since 1970.
        properties: for its summary.
    """
    metadata = iceberg.metadata
    snapshot_id = metadata.new_snapshot_id()
    of_head = Manifests(iceberg, snapshot_id, head)
    write = of_head.without_history if changes.without_history else of_head.of
    manifests, removed = write(changes.added, changes.removed)
    sequence_number = metadata.next_sequence_number()
    locations = places(iceberg)
    output = SealedFile(iceberg.io, lambda name: locations.new_metadata_location(f"snap-{snapshot_id}-0-{name}.avro"))
    with write_manifest_list(
        format_version=metadata.format_version,
        output_file=output,
        snapshot_id=snapshot_id,
        parent_snapshot_id=head.snapshot_id if head else None,
        sequence_number=sequence_number,
        avro_compression=CODEC,
    ) as writer:
        writer.add_manifests(manifests)
    binding = f"{snapshot_id} on {head.snapshot_id if head else 'nothing'} at {sequence_number}"
    return Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=head.snapshot_id if head else None,
        manifest_list=output.location,
        sequence_number=sequence_number,
        timestamp_ms=stamped_ms,
        summary=_summary(iceberg, head, changes, removed, {COMMIT: binding, **properties}),
        schema_id=metadata.current_schema_id,
    )


def _summary(
    iceberg: IcebergTable,
    head: Snapshot | None,
    changes: FileChanges,
    removed: Sequence[DataFile],
    properties: Mapping[str, str],
) -> Summary:
    metrics = UpdateMetrics()
    for data_file in changes.added:
        metrics.add_file(data_file)
    for data_file in removed:
        metrics.remove_file(data_file)
    counts = metrics.to_dict()
    # pyiceberg counts partitions by their paths, and making a path takes as long as all other counts of a file.
    partitions = {(one.spec_id, partition_values(one)) for one in (*changes.added, *removed) if len(one.partition)}
    if partitions:
        counts[CHANGED_PARTITION_COUNT_PROP] = str(len(partitions))
    # pyiceberg computes totals for every operation except `replace`, although the same sums are right there.
    totalled = update_snapshot_summaries(
        summary=Summary(operation=Operation.OVERWRITE, **counts, **dict(properties)),
        previous_summary=head.summary.additional_properties if head and head.summary else None,
    )
    return Summary(operation=changes.operation, **totalled.additional_properties)


def is_bound(snapshot: Snapshot) -> bool:
    """Whether foldhouse wrote a snapshot's summary for exactly this snapshot.

    A snapshot without a parent id fits too: some tools remove the id when they expire the parent.
    """
    said = snapshot.summary.additional_properties.get(COMMIT, "") if snapshot.summary is not None else ""
    found = _BOUND.fullmatch(said)
    if found is None:
        return False
    own, parent, sequence = found.groups()
    is_same = (own, sequence) == (str(snapshot.snapshot_id), str(snapshot.sequence_number))
    return is_same and (snapshot.parent_snapshot_id is None or parent == str(snapshot.parent_snapshot_id))


def commit(
    catalog: Catalog,
    iceberg: IcebergTable,
    changes: FileChanges,
    properties: Mapping[str, str],
    *,
    branch: str = MAIN_BRANCH,
) -> int:
    """Commit file changes as one snapshot, on top of exactly the head of `main` in `iceberg`.

    Args:
        catalog: where the table is registered.
        iceberg: the table as it was read; its head must still be the head.
        changes: the files added and removed.
        properties: entries of the summary in addition to Iceberg's own counts; keys begin with `foldhouse.`.
        branch: the branch that will point to the snapshot. With any branch other than `main`, the head, the schema and
            the partitioning of the table do not change until `branch.fast_forward`.

    Returns:
        The snapshot id. Exactly once: if the commit landed but was reported as failed, that counts as success.

    Raises:
        CommitConflict: another writer committed first; nothing of this commit is visible.
        LostTables: the table is new, and files of a table that the catalog lost are at its location.
        Unsupported: the catalog keeps no history: its first refused commit landed, later ones are not sent. Or the
            table is of a format version that cannot be written.
        StorageError: a file of the commit was deleted meanwhile; nothing was committed.
    """
    check_keeps_history(catalog)
    check_can_be_written(iceberg)
    check_is_alone(iceberg)
    check_is_not_behind(iceberg)
    head = head_of(iceberg)
    write_properties(iceberg.properties)  # refuses unusable properties before anything is written
    warn_if_ahead(iceberg)
    made = evolved(iceberg, changes.updates)
    snapshot = _written(made, head, changes, stamp_ms(iceberg.metadata, head), properties)
    updates = [u for u in changes.updates if branch == MAIN_BRANCH or not isinstance(u, _MAKES_CURRENT)]
    requirements = (*unmoved(iceberg), *(unmoved(iceberg, branch) if branch != MAIN_BRANCH else ()))
    if changes.updates:  # their new ids were counted from the metadata that was read
        requirements = (*requirements, *unevolved(iceberg))
    if changes.properties:
        updates.append(SetPropertiesUpdate(updates=dict(changes.properties)))
    check_are_there(iceberg, [snapshot.manifest_list, *(one.file_path for one in changes.added)])
    answered = swap(
        catalog,
        iceberg,
        requirements,
        (*updates, AddSnapshotUpdate(snapshot=snapshot), branch_is(iceberg, snapshot.snapshot_id, branch)),
        lambda now: in_history(now, snapshot.snapshot_id, branch),
        f"snapshot {snapshot.snapshot_id}",
    )
    if answered is not None and head is not None:
        check_history_is_kept(catalog, iceberg, snapshot, answered)
    return snapshot.snapshot_id


def check_can_be_written(iceberg: IcebergTable) -> None:
    """Refuse a table that another tool upgraded to a format version that pyiceberg does not write.

    Raises:
        Unsupported: nothing was written.
    """
    version = iceberg.metadata.format_version
    if version > NEWEST_WRITTEN:
        raise Unsupported(
            f"{'.'.join(iceberg.name())} is of Iceberg's format version {version}; foldhouse reads it and writes "
            f"version {NEWEST_WRITTEN} only. Nothing was written; copy its rows into a new table"
        )


def in_history(iceberg: IcebergTable, snapshot_id: int, branch: str = MAIN_BRANCH) -> bool:
    """Whether a snapshot that was just created is on a branch."""
    seen = iceberg.snapshot_by_name(branch)
    while seen is not None:
        if seen.snapshot_id == snapshot_id:
            return True
        seen = iceberg.snapshot_by_id(seen.parent_snapshot_id) if seen.parent_snapshot_id is not None else None
    return False
