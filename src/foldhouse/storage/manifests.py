"""The manifests of a new snapshot: bounded in size, sorted by partition, and kept from the head where nothing changes.

A commit that touches a few partitions writes a manifest for each manifest that it removes a file from, and mostly one
for its new files. All other manifests are carried over from the head without being read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal

from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.manifest import (
    DEFAULT_READ_VERSION,
    DataFile,
    DataFileContent,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Snapshot

from foldhouse.errors import CommitConflict
from foldhouse.storage.avro import live_entries
from foldhouse.storage.file_ref import partition_values
from foldhouse.storage.integrity import SealedFile
from foldhouse.storage.listed import ListedManifest, Wanted, keep_written
from foldhouse.storage.live import live_of
from foldhouse.storage.places import places
from foldhouse.storage.properties import WriteProperties, write_properties
from foldhouse.storage.threads import for_each

CODEC: Literal["deflate"] = "deflate"
_FILES = 256
"""Files of a manifest, unless a table property says how large manifests are. Changing one file writes one manifest
again; and the manifest list, which every commit writes, has an entry for each manifest."""
_FULL_SHARE = 0.5
"""A manifest with this share of the files that it may have is not merged with others."""
_OVERFULL_FACTOR = 2
"""A manifest that is written again is divided once it has so many times the files that it may have."""


@dataclass(frozen=True)
class _Kind:
    """What the files of one manifest have in common: the partition spec, and whether they are delete files."""

    spec_id: int
    content: ManifestContent


@dataclass(frozen=True)
class _Rewritten:
    """A manifest of the head that is written again.

    Args:
        manifest: as the head lists it.
        entries: its live files.
        adopted: new files of partitions in its range.
    """

    manifest: ListedManifest
    entries: list[ManifestEntry]
    adopted: list[DataFile] = field(default_factory=list)

    @property
    def kind(self) -> _Kind:
        """What its files have in common."""
        return _Kind(self.manifest.spec_id, self.manifest.file.content)


class Manifests:
    """Writes the manifests of one snapshot on top of a head.

    Args:
        iceberg: the table, with the schema and the specs that the commit makes.
        snapshot_id: of the new snapshot.
        head: the snapshot below it.
    """

    def __init__(self, iceberg: IcebergTable, snapshot_id: int, head: Snapshot | None) -> None:
        self._iceberg = iceberg
        self._snapshot_id = snapshot_id
        self._listed = () if head is None else live_of(iceberg, head.snapshot_id).manifests
        self._written = 0
        self._properties = write_properties(iceberg.properties)
        self._most = _most_files(self._properties, self._listed)

    def of(self, added: Sequence[DataFile], removed: frozenset[str]) -> tuple[list[ManifestFile], list[DataFile]]:
        """Write the manifests of the head with some files added and some removed.

        Args:
            added: data files and delete files.
            removed: paths of live files.

        Returns:
            The manifests of the snapshot, and the removed files.

        Raises:
            CommitConflict: a file to be removed is not live in the head.
        """
        rewritten = self._with(removed)
        gone = [e.data_file for one in rewritten for e in one.entries if e.data_file.file_path in removed]
        self._check_found(gone, removed)
        homeless = _adopted(rewritten, added)
        kept, merged = self._merged([one for one in self._listed if one not in {r.manifest for r in rewritten}])
        written = [*self._new(homeless)]
        for one in rewritten:
            written += self._again(one, removed)
        return [*written, *kept, *merged], gone

    def without_history(
        self, added: Sequence[DataFile], removed: frozenset[str]
    ) -> tuple[list[ManifestFile], list[DataFile]]:
        """Write every manifest of the head again; unlike those of `of`, none has an entry for a removed file.

        The entry of a removed file has its path and the bounds of its columns.
        """
        by_kind: dict[_Kind, list[ManifestEntry]] = {}
        gone = []
        for one in self._listed:
            for entry in live_entries(one.io, one.file):
                if entry.data_file.file_path in removed:
                    gone.append(entry.data_file)
                else:
                    by_kind.setdefault(_Kind(one.spec_id, one.file.content), []).append(_as_existing(entry))
        self._check_found(gone, removed)
        for file in added:
            by_kind.setdefault(_kind_of(file), []).append(self._as_added(file))
        return [manifest for kind, entries in by_kind.items() for manifest in self._write(kind, entries)], gone

    def _check_found(self, gone: Sequence[DataFile], removed: frozenset[str]) -> None:
        if len(gone) < len(removed):
            name = ".".join(self._iceberg.name())
            raise CommitConflict(f"{name} no longer has {len(removed) - len(gone)} files that were to be replaced")

    def _with(self, removed: frozenset[str]) -> list[_Rewritten]:
        """Return the manifests that some files are in; those in memory are asked first, and the others only if need be.

        The rows of a removed file were read before, and so was its manifest.
        """
        left, found = set(removed), []
        known = {one: parsed for one in self._listed if (parsed := one.known()) is not None}
        for manifest, parsed in known.items():
            if left and not left.isdisjoint(parsed.paths):
                left -= parsed.paths
                found.append(manifest)
        for manifest in self._listed:
            if left and manifest not in known:
                paths = manifest.parsed().paths
                if not left.isdisjoint(paths):
                    left -= paths
                    found.append(manifest)
        entries = for_each(self._iceberg.location(), lambda one: live_entries(one.io, one.file), found)
        return list(map(_Rewritten, found, entries))

    def _new(self, files: Sequence[DataFile]) -> Iterable[ManifestFile]:
        by_kind: dict[_Kind, list[DataFile]] = {}
        for one in files:
            by_kind.setdefault(_kind_of(one), []).append(one)
        for kind, group in by_kind.items():
            yield from self._write(kind, [self._as_added(one) for one in group])

    def _again(self, one: _Rewritten, removed: frozenset[str]) -> Iterable[ManifestFile]:
        entries = [_as_deleted(e, self._snapshot_id) if e.data_file.file_path in removed else e for e in one.entries]
        entries = [e if e.status == ManifestEntryStatus.DELETED else _as_existing(e) for e in entries]
        return self._write(one.kind, [*entries, *map(self._as_added, one.adopted)], self._most * _OVERFULL_FACTOR)

    def _merged(self, manifests: Sequence[ListedManifest]) -> tuple[list[ManifestFile], list[ManifestFile]]:
        """Return the manifests that are kept, and those that small ones were merged to once there were many of them."""
        least = self._properties.merge_from
        small: dict[_Kind, list[ListedManifest]] = {}
        for one in manifests:
            if _files_in(one) < self._most * _FULL_SHARE:
                small.setdefault(_Kind(one.spec_id, one.file.content), []).append(one)
        chosen = {kind: group for kind, group in small.items() if least is not None and len(group) >= least}
        gone = {one for group in chosen.values() for one in group}
        written: list[ManifestFile] = []
        for kind, group in chosen.items():
            read = for_each(self._iceberg.location(), lambda one: live_entries(one.io, one.file), group)
            entries = [_as_existing(entry) for some in read for entry in some]
            written += self._write(kind, entries)
        return [one.file for one in manifests if one not in gone], written

    def _as_added(self, file: DataFile) -> ManifestEntry:
        return ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=self._snapshot_id, data_file=file)

    def _write(self, kind: _Kind, entries: list[ManifestEntry], most: int | None = None) -> Iterable[ManifestFile]:
        """Write files as one manifest, or as several in the order of their partitions.

        Args:
            kind: what the files have in common.
            entries: the files.
            most: the files of one manifest, above which they are divided; by default, the usual number.
        """
        if not entries:
            return
        if len(entries) <= (most or self._most):
            yield self._write_one(kind, entries)
            return
        ordered = sorted(entries, key=lambda entry: _order(partition_values(entry.data_file)))
        count = -(-len(ordered) // self._most)  # -(-a // b) divides and rounds up
        for number in range(count):
            begin, end = (len(ordered) * n // count for n in (number, number + 1))
            yield self._write_one(kind, ordered[begin:end])

    def _write_one(self, kind: _Kind, entries: Sequence[ManifestEntry]) -> ManifestFile:
        locations, number = places(self._iceberg), self._written
        output = SealedFile(self._iceberg.io, lambda name: locations.new_metadata_location(f"{name}-m{number}.avro"))
        self._written += 1
        writer_of = _DeleteManifestWriter if kind.content == ManifestContent.DELETES else _DataManifestWriter
        spec = self._iceberg.specs()[kind.spec_id]
        with writer_of(spec, schema_of_spec(self._iceberg, spec), output, self._snapshot_id, CODEC) as writer:
            for entry in entries:
                writer.add_entry(entry)
        if kind.content == ManifestContent.DATA:  # parsing refuses equality deletes, and may not be left out for them
            live = (entry for entry in entries if entry.status != ManifestEntryStatus.DELETED)
            # A new file gets the sequence number of the commit.
            new = self._iceberg.metadata.next_sequence_number()
            files = ((e.data_file, new if e.sequence_number is None else e.sequence_number) for e in live)
            keep_written(".".join(self._iceberg.name()), output.location, spec, files)
        return writer.to_manifest_file()


def schema_of_spec(iceberg: IcebergTable, spec: PartitionSpec) -> Schema:
    """Return the schema plus the dropped columns that an older spec partitions by."""
    current = iceberg.schema()
    held = {field.field_id for field in current.fields}
    older = {field.field_id: field for schema in iceberg.schemas().values() for field in schema.fields}
    gone = [field.source_id for field in spec.fields if field.source_id not in held]
    names = {field.name for field in current.fields}
    # A newer column may have the name of the dropped one, and names in a schema are unique.
    fields = [
        older[i].model_copy(update={"name": f"{older[i].name}_{i}"} if older[i].name in names else {}) for i in gone
    ]
    return Schema(*current.fields, *fields, schema_id=current.schema_id) if fields else current


class _Encoder(BinaryEncoder):
    """Encodes into memory; pyiceberg writes each byte of a number to a stream."""

    def __init__(self) -> None:
        self.contents = bytearray()

    def write(self, b: bytes) -> None:
        self.contents += b

    def write_int(self, integer: int) -> None:
        if 0 <= integer < 64:
            self.contents.append(integer << 1)
            return
        left = (integer << 1) ^ (integer >> 63)
        while left & ~0x7F:
            self.contents.append((left & 0x7F) | 0x80)
            left >>= 7
        self.contents.append(left)


class _OneBlock(AvroOutputFile[ManifestEntry]):
    """Writes all entries as one Avro block when it ends; pyiceberg compresses each entry as a block of its own."""

    def __enter__(self) -> _OneBlock:
        super().__enter__()
        self._entries: list[ManifestEntry] = []
        return self

    def write_block(self, objects: list[ManifestEntry]) -> None:
        self._entries += objects

    def __exit__(
        self, exctype: type[BaseException] | None, excinst: BaseException | None, exctb: TracebackType | None
    ) -> None:
        if exctype is None:
            self._write_entries()
        super().__exit__(exctype, excinst, exctb)

    def _write_entries(self) -> None:
        block = _Encoder()
        for entry in self._entries:
            self.writer.write(block, entry)
        codec = self.compression_codec()
        assert codec is not None
        contents, size = codec.compress(bytes(block.contents))
        self.encoder.write_int(len(self._entries))
        self.encoder.write_int(size)
        self.encoder.write(contents)
        self.encoder.write(self.sync_bytes)


class _DataManifestWriter(ManifestWriterV2):
    def new_writer(self) -> AvroOutputFile[ManifestEntry]:
        return _OneBlock(
            output_file=self._output_file,
            file_schema=self._with_partition(self.version),
            record_schema=self._with_partition(DEFAULT_READ_VERSION),
            schema_name="manifest_entry",
            metadata=self._meta,
        )


class _DeleteManifestWriter(_DataManifestWriter):
    """Writes a manifest of delete files; pyiceberg 0.12 writes only manifests of data files."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


def _kind_of(file: DataFile) -> _Kind:
    is_data = file.content == DataFileContent.DATA
    return _Kind(file.spec_id, ManifestContent.DATA if is_data else ManifestContent.DELETES)


def _files_in(manifest: ListedManifest) -> int:
    """Return the number of live files; a list that does not say it counts as a full one."""
    added, existing = manifest.file.added_files_count, manifest.file.existing_files_count
    return _FILES if added is None or existing is None else added + existing


def _most_files(properties: WriteProperties, manifests: Sequence[ListedManifest]) -> int:
    """Return how many files a manifest may have: by the table's property for its bytes, if there is one."""
    if properties.manifest_bytes is None:
        return _FILES
    files = sum(map(_files_in, manifests))
    each = sum(one.file.manifest_length for one in manifests) / files if files else 0
    return max(1, int(properties.manifest_bytes / each)) if each else _FILES


def _adopted(rewritten: Sequence[_Rewritten], added: Sequence[DataFile]) -> list[DataFile]:
    """Give new files to manifests that are written anyway and have their partition in range; return the others.

    Files of neighbouring partitions so stay together, and the number of manifests does not grow.
    """
    homeless: list[DataFile] = []
    for file in added:
        wanted, kind = Wanted([partition_values(file)]), _kind_of(file)
        home = next((one for one in rewritten if one.kind == kind and wanted.may_be_in(one.manifest)), None)
        (homeless if home is None else home.adopted).append(file)
    return homeless


def _order(values: tuple[Any, ...]) -> tuple[tuple[bool, Any], ...]:
    """Return a key that sorts partitions with nulls first."""
    return tuple((value is not None, value or 0) for value in values)


def _as_existing(entry: ManifestEntry) -> ManifestEntry:
    return _with_status(entry, ManifestEntryStatus.EXISTING, entry.snapshot_id)


def _as_deleted(entry: ManifestEntry, snapshot_id: int) -> ManifestEntry:
    return _with_status(entry, ManifestEntryStatus.DELETED, snapshot_id)


def _with_status(entry: ManifestEntry, status: ManifestEntryStatus, snapshot_id: int | None) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=status,
        snapshot_id=snapshot_id,
        sequence_number=entry.sequence_number,
        file_sequence_number=entry.file_sequence_number,
        data_file=entry.data_file,
    )
