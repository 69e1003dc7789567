"""Reads manifests and manifest lists, with one Avro reader for all files of a schema.

pyiceberg creates a reader for each file, which takes ten times as long as reading a small file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pyiceberg.avro.decoder import new_decoder
from pyiceberg.avro.file import META_SCHEMA, AvroFile, AvroFileHeader
from pyiceberg.avro.reader import Reader
from pyiceberg.avro.resolver import construct_reader, resolve_reader
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DEFAULT_READ_VERSION,
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
    _inherit_from_manifest,
)
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Snapshot

from foldhouse.errors import CorruptFile, FoldhouseError
from foldhouse.storage.integrity import WAY_OUT, check

ENTRY = MANIFEST_ENTRY_SCHEMAS[DEFAULT_READ_VERSION]
LIST = MANIFEST_LIST_FILE_SCHEMAS[DEFAULT_READ_VERSION]


@dataclass(frozen=True)
class _Kind:
    """The Python types of the records in a kind of file; plain records if no types are given."""

    name: str
    schema: Schema = field(compare=False)
    types: Mapping[int, Callable[..., Any]] = field(default_factory=dict, compare=False)
    enums: Mapping[int, Callable[..., Any]] = field(default_factory=dict, compare=False)


# -1 is the record of the file; the other numbers are field ids of Iceberg's specification.
_ENTRIES = _Kind(
    "entries",
    ENTRY,
    {-1: ManifestEntry, 2: DataFile},
    {0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
)
_MANIFESTS = _Kind("manifests", LIST, {-1: ManifestFile, 508: PartitionFieldSummary}, {517: ManifestContent})
_PLAIN_ENTRIES = _Kind("plain entries", ENTRY)
_PLAIN_MANIFESTS = _Kind("plain manifests", LIST)


class _Records(AvroFile[Any]):
    """An Avro file, read as records of one kind."""

    _readers: ClassVar[dict[tuple[str, _Kind], Reader]] = {}
    _header: ClassVar[Reader] = construct_reader(META_SCHEMA, {-1: AvroFileHeader})

    def __init__(self, io: FileIO, path: str, kind: _Kind) -> None:
        super().__init__(io.new_input(path))
        self._kind = kind

    def __enter__(self) -> _Records:
        with self.input_file.open() as source:
            contents = source.read()
        check(self.input_file.location, contents)
        self.decoder = new_decoder(contents)
        self.header = self._header.read(self.decoder)
        # Files with an equal schema text can share a reader, which keeps no state of a file.
        key = self.header.meta["avro.schema"], self._kind
        if key not in self._readers:
            kind = self._kind
            self._readers[key] = resolve_reader(
                self.header.get_schema(), kind.schema, dict(kind.types), dict(kind.enums)
            )
        self.reader = self._readers[key]
        return self


def _read(io: FileIO, path: str, kind: _Kind) -> list[Any]:
    try:
        with _Records(io, path, kind) as records:
            return list(records)
    except (FoldhouseError, OSError):
        raise
    except Exception as failure:  # the decoder has no error class for bytes that are not Avro
        what = f"{type(failure).__name__}: {failure}"
        raise CorruptFile(f"{path} is damaged: it cannot be decoded as Avro ({what}). {WAY_OUT}") from failure


def manifests_of(io: FileIO, snapshot: Snapshot) -> list[ManifestFile]:
    """Return the manifests of a snapshot."""
    return _read(io, snapshot.manifest_list, _MANIFESTS)


def live_entries(io: FileIO, manifest: ManifestFile) -> list[ManifestEntry]:
    """Return the entries of a manifest, except those of deleted files."""
    return [
        # New entries are written without a sequence number; the manifest list has it.
        _inherit_from_manifest(entry, manifest)
        for entry in _read(io, manifest.manifest_path, _ENTRIES)
        if entry.status != ManifestEntryStatus.DELETED
    ]


def plain_manifests(io: FileIO, manifest_list: str) -> list[Any]:
    """Return the records of a manifest list, with their fields in the order of `LIST`."""
    return _read(io, manifest_list, _PLAIN_MANIFESTS)


def plain_entries(io: FileIO, manifest: str) -> list[Any]:
    """Return all entries of a manifest as records, with their fields in the order of `ENTRY`."""
    return _read(io, manifest, _PLAIN_ENTRIES)
