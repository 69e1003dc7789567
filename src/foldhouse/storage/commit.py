"""The commit: one snapshot, one compare-and-swap on the head that was read.

Guarantee: exactly once. A commit lands whole or not at all. A lost race raises `CommitConflict` and leaves files that
no reader sees. An unknown outcome is resolved by looking for our own snapshot id. If in doubt, nothing is deleted and
nothing is retried: pyiceberg's own retry rebases without validation, and its clean-up deletes live manifests after a
commit that landed but was reported as failed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import (
    Operation,
    Snapshot,
    SnapshotSummaryCollector,
    Summary,
    update_snapshot_summaries,
)
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSpecUpdate,
    TableUpdate,
)

from foldhouse.errors import CommitConflict
from foldhouse.storage.avro import live_entries, manifests_of
from foldhouse.storage.clock import stamp_ms, warn_if_ahead
from foldhouse.storage.evolve import evolved
from foldhouse.storage.integrity import SealedFile
from foldhouse.storage.places import places
from foldhouse.storage.properties import write_properties
from foldhouse.storage.swap import branch_is, swap, unevolved, unmoved
from foldhouse.values.metadata_names import COMMIT

CODEC: Literal["deflate"] = "deflate"
# Matches `815 on 814 at 7` (a snapshot, its parent, the sequence number), or `815 on nothing at 1`.
_BOUND = re.compile(r"(\d+) on (\d+|nothing) at (\d+)")
_MAKES_CURRENT = (SetCurrentSchemaUpdate, SetDefaultSpecUpdate)


@dataclass(frozen=True)
class FileChanges:
    """The files that one commit adds and removes.

    Args:
        added: data files and position delete files.
        removed: paths of data files and delete files that are live in the head.
        operation: the operation in the snapshot's summary.
        updates: changes of schema and partitioning in the same commit.
    """

    added: Sequence[DataFile] = ()
    removed: frozenset[str] = frozenset()
    operation: Operation = Operation.OVERWRITE
    updates: tuple[TableUpdate, ...] = ()


class _DeleteManifestWriter(ManifestWriterV2):
    """Writes a manifest of delete files; pyiceberg 0.12 writes only manifests of data files."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class _Producer:
    """Writes the manifests and the manifest list of one snapshot on top of the head that was read."""

    def __init__(self, iceberg: IcebergTable, changes: FileChanges, stamp_ms: int) -> None:
        self.iceberg = iceberg
        self.stamp_ms = stamp_ms
        self.changes = changes
        self.snapshot_id = iceberg.metadata.new_snapshot_id()
        self.removed: list[DataFile] = []
        self._written = 0

    def _writer(self, spec_id: int, content: ManifestContent) -> ManifestWriterV2:
        locations, number = places(self.iceberg), self._written
        output = SealedFile(self.iceberg.io, lambda name: locations.new_metadata_location(f"{name}-m{number}.avro"))
        self._written += 1
        kind = _DeleteManifestWriter if content == ManifestContent.DELETES else ManifestWriterV2
        spec: PartitionSpec = self.iceberg.specs()[spec_id]
        return kind(spec, self._schema_of(spec), output, self.snapshot_id, CODEC)

    def _schema_of(self, spec: PartitionSpec) -> Schema:
        """Return the schema plus the dropped columns that an older spec partitions by."""
        current = self.iceberg.schema()
        held = {field.field_id for field in current.fields}
        older = {field.field_id: field for schema in self.iceberg.schemas().values() for field in schema.fields}
        gone = [field.source_id for field in spec.fields if field.source_id not in held]
        names = {field.name for field in current.fields}
        # A newer column may have the name of the dropped one, and names in a schema are unique.
        fields = [
            older[i].model_copy(update={"name": f"{older[i].name}_{i}"} if older[i].name in names else {}) for i in gone
        ]
        return Schema(*current.fields, *fields, schema_id=current.schema_id) if fields else current

    def _added(self) -> list[ManifestFile]:
        groups: dict[tuple[int, ManifestContent], list[DataFile]] = {}
        for data_file in self.changes.added:
            content = ManifestContent.DATA if data_file.content == DataFileContent.DATA else ManifestContent.DELETES
            groups.setdefault((data_file.spec_id, content), []).append(data_file)
        manifests = []
        for (spec_id, content), files in groups.items():
            with self._writer(spec_id, content) as writer:
                for data_file in files:
                    status = ManifestEntryStatus.ADDED
                    writer.add_entry(
                        ManifestEntry.from_args(status=status, snapshot_id=self.snapshot_id, data_file=data_file)
                    )
            manifests.append(writer.to_manifest_file())
        return manifests

    def _carried(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        """Return the manifests carried over from the head.

        Manifests that reference a removed file are rewritten without it. Many small manifests are merged.
        """
        kept: list[ManifestFile] = []
        rewritten: list[tuple[ManifestFile, list[ManifestEntry]]] = []
        open_paths = set(self.changes.removed)
        for manifest in manifests:
            if not open_paths:  # every removed file was found, so later manifests need not be read
                kept.append(manifest)
                continue
            entries = live_entries(self.iceberg.io, manifest)
            hit = {e.data_file.file_path for e in entries} & open_paths
            if not hit:
                kept.append(manifest)
                continue
            open_paths -= hit
            self.removed += [e.data_file for e in entries if e.data_file.file_path in hit]
            rewritten.append((manifest, entries))
        if open_paths:
            raise CommitConflict(f"{self._name} no longer has {len(open_paths)} files that were to be replaced")
        kept, merged = self._merge(kept)
        return [*kept, *self._rewrite([*rewritten, *merged])]

    def _merge(
        self, manifests: list[ManifestFile]
    ) -> tuple[list[ManifestFile], list[tuple[ManifestFile, list[ManifestEntry]]]]:
        """Divide manifests into those to keep and those to merge.

        All live ones are merged once there are many, so that planning does not slow down with each commit.
        """
        merge_from = write_properties(self.iceberg.properties).merge_from
        if merge_from is None or len(manifests) < merge_from:
            return manifests, []
        io = self.iceberg.io
        # Manifests of only deleted files are dropped.
        live = [m for m in manifests if m.has_added_files() or m.has_existing_files()]
        return [], [(m, live_entries(io, m)) for m in live]

    def _rewrite(self, manifests: list[tuple[ManifestFile, list[ManifestEntry]]]) -> list[ManifestFile]:
        groups: dict[tuple[int, ManifestContent], list[ManifestEntry]] = {}
        for manifest, entries in manifests:
            groups.setdefault((manifest.partition_spec_id, manifest.content), []).extend(entries)
        written = []
        for (spec_id, content), entries in groups.items():
            if not entries:
                continue
            with self._writer(spec_id, content) as writer:
                for entry in entries:
                    if entry.data_file.file_path in self.changes.removed:
                        writer.delete(entry)
                    else:
                        writer.existing(entry)
            written.append(writer.to_manifest_file())
        return written

    @property
    def _name(self) -> str:
        return ".".join(self.iceberg.name())

    def _summary(self, head: Snapshot | None, properties: Mapping[str, str]) -> Summary:
        collector = SnapshotSummaryCollector()
        specs = self.iceberg.specs()
        for data_file in self.changes.added:
            collector.add_file(data_file, self._schema_of(specs[data_file.spec_id]), specs[data_file.spec_id])
        for data_file in self.removed:
            collector.remove_file(data_file, self._schema_of(specs[data_file.spec_id]), specs[data_file.spec_id])
        # pyiceberg computes totals for every operation except `replace`, although the same sums are right there.
        totalled = update_snapshot_summaries(
            summary=Summary(operation=Operation.OVERWRITE, **collector.build(), **dict(properties)),
            previous_summary=head.summary.additional_properties if head and head.summary else None,
        )
        return Summary(operation=self.changes.operation, **totalled.additional_properties)

    def _binding(self, head: Snapshot | None, sequence_number: int) -> str:
        return f"{self.snapshot_id} on {head.snapshot_id if head else 'nothing'} at {sequence_number}"

    def snapshot(self, head: Snapshot | None, properties: Mapping[str, str]) -> Snapshot:
        """Write the snapshot's manifests and manifest list, and return the snapshot."""
        metadata = self.iceberg.metadata
        manifests = [*self._added(), *(self._carried(manifests_of(self.iceberg.io, head)) if head else [])]
        sequence_number = metadata.next_sequence_number()
        locations = places(self.iceberg)
        output = SealedFile(
            self.iceberg.io,
            lambda name: locations.new_metadata_location(f"snap-{self.snapshot_id}-0-{name}.avro"),
        )
        with write_manifest_list(
            format_version=metadata.format_version,
            output_file=output,
            snapshot_id=self.snapshot_id,
            parent_snapshot_id=head.snapshot_id if head else None,
            sequence_number=sequence_number,
            avro_compression=CODEC,
        ) as writer:
            writer.add_manifests(manifests)
        return Snapshot(
            snapshot_id=self.snapshot_id,
            parent_snapshot_id=head.snapshot_id if head else None,
            manifest_list=output.location,
            sequence_number=sequence_number,
            timestamp_ms=self.stamp_ms,
            summary=self._summary(head, {COMMIT: self._binding(head, sequence_number), **properties}),
            schema_id=metadata.current_schema_id,
        )


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
    """
    head = iceberg.current_snapshot()
    write_properties(iceberg.properties)  # refuses unusable properties before anything is written
    warn_if_ahead(iceberg)
    producer = _Producer(evolved(iceberg, changes.updates), changes, stamp_ms(iceberg.metadata, head))
    snapshot = producer.snapshot(head, properties)
    updates = [u for u in changes.updates if branch == MAIN_BRANCH or not isinstance(u, _MAKES_CURRENT)]
    requirements = (*unmoved(iceberg), *(unmoved(iceberg, branch) if branch != MAIN_BRANCH else ()))
    if changes.updates:  # their new ids were counted from the metadata that was read
        requirements = (*requirements, *unevolved(iceberg))
    swap(
        catalog,
        iceberg,
        requirements,
        (*updates, AddSnapshotUpdate(snapshot=snapshot), branch_is(iceberg, snapshot.snapshot_id, branch)),
        lambda now: in_history(now, snapshot.snapshot_id, branch),
        f"snapshot {snapshot.snapshot_id}",
    )
    return snapshot.snapshot_id


def in_history(iceberg: IcebergTable, snapshot_id: int, branch: str = MAIN_BRANCH) -> bool:
    """Whether a snapshot that was just created is on a branch."""
    seen = iceberg.snapshot_by_name(branch)
    while seen is not None:
        if seen.snapshot_id == snapshot_id:
            return True
        seen = iceberg.snapshot_by_id(seen.parent_snapshot_id) if seen.parent_snapshot_id is not None else None
    return False
