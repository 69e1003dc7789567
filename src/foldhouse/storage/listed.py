"""The manifests of a snapshot as its manifest list describes them, and their live files, parsed when they are needed.

The list tells in which range of partitions the files of a manifest lie. A manifest outside of the wanted partitions is
not read. Manifests never change, so parsed ones are kept, up to a number of files.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestFile,
    PartitionFieldSummary,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DateType, IcebergType, IntegerType, LongType, PrimitiveType, StringType

from foldhouse.errors import Unsupported
from foldhouse.garbage import uncollected
from foldhouse.storage.avro import live_entries, manifests_of
from foldhouse.storage.bounds import bound_of
from foldhouse.storage.cache import WeightedCache
from foldhouse.storage.file_ref import FileRef, file_ref, partition_values
from foldhouse.storage.threads import for_each

_PATH_FIELD_ID = 2147483546  # reserved by Iceberg for the column `file_path` of position delete files
_KEPT_FILES = 20_000
"""Files whose facts are kept in memory, at about 2 KB each."""
_COMPARED = 64
"""With more wanted partitions than this, only their first values are compared with a manifest."""

Values = tuple[Any, ...]
Identities = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class DeleteFile:
    """A position delete file.

    Args:
        path: of the file.
        sequence: the sequence number of its commit.
        least, most: bounds of the paths of the data files that it deletes from; `None` if unknown.
    """

    path: str
    sequence: int
    least: str | None
    most: str | None

    @property
    def only(self) -> str | None:
        """The data file that it deletes from, if it deletes from no other."""
        return self.least if self.least == self.most else None

    def applies_to(self, path: str, sequence: int) -> bool:
        """Whether it may delete rows of a data file of the same partition."""
        # By Iceberg's rules, position deletes apply to files of the same or an earlier commit.
        if self.sequence < sequence or (self.least is not None and path < self.least):
            return False
        return self.most is None or path <= self.most


@dataclass(frozen=True)
class Parsed:
    """The live files of one manifest by partition.

    Args:
        data: partition -> its data files, each with the sequence number of its commit.
        deletes: partition -> its delete files.
    """

    data: dict[Values, list[tuple[FileRef, int]]]
    deletes: dict[Values, list[DeleteFile]]

    @property
    def files(self) -> int:
        """The number of files."""
        return sum(map(len, self.data.values())) + sum(map(len, self.deletes.values()))

    @cached_property
    def paths(self) -> frozenset[str]:
        """The paths of all files."""
        data = (file.path for files in self.data.values() for file, _ in files)
        return frozenset(data).union(one.path for files in self.deletes.values() for one in files)


_PARSED: WeightedCache[Parsed] = WeightedCache(_KEPT_FILES, lambda parsed: parsed.files)


def forget_parsed() -> None:
    """Keep no parsed manifest in memory."""
    _PARSED.clear()


@dataclass(frozen=True)
class Range:
    """The values of one partition field among the files of a manifest.

    Args:
        least, most: the bounds of its values that are not null; `None` if all of them are null.
        has_null: whether some are null.
    """

    least: Any
    most: Any
    has_null: bool

    def may_have(self, value: Any) -> bool:
        """Whether a file may have this value."""
        if value is None:
            return self.has_null
        return self.least is not None and bool(self.least <= value <= self.most)


@dataclass(frozen=True)
class ListedManifest:
    """A manifest as a snapshot lists it; equal to another one with the same path.

    Args:
        path: of the manifest.
        file: its entry in the list.
        ranges: per partition field, its values; `None` for a field that is not compared.
        table: the name of the table, for messages.
        io: the file system.
        identities: see `identities_of`.
    """

    path: str
    file: ManifestFile = field(compare=False, repr=False)
    ranges: tuple[Range | None, ...] = field(compare=False)
    table: str = field(compare=False)
    io: FileIO = field(compare=False, repr=False)
    identities: Identities = field(default=(), compare=False, repr=False)

    @property
    def spec_id(self) -> int:
        """The partition spec of its files."""
        return self.file.partition_spec_id

    @property
    def has_deletes(self) -> bool:
        """Whether its files are delete files."""
        return bool(self.file.content == ManifestContent.DELETES)

    def parsed(self) -> Parsed:
        """Return its live files.

        Raises:
            Unsupported: equality deletes or deletion vectors, or data files that are not Parquet.
        """
        return _PARSED.of(self.path, self._parsed)

    def known(self) -> Parsed | None:
        """Return its live files if they are in memory."""
        return _PARSED.peek(self.path)

    def _parsed(self) -> Parsed:
        entries = live_entries(self.io, self.file)
        files = ((entry.data_file, entry.sequence_number or 0) for entry in entries)
        return _facts(self.table, files, self.identities)


def parse_ahead(manifests: Sequence[ListedManifest]) -> None:
    """Parse manifests of a store together, because the store lets each of them wait; they are kept in memory."""
    missing = [one for one in manifests if one.known() is None]
    if len(missing) > 1:
        with uncollected():  # facts of files stay, and hold no cycles
            for_each(missing[0].path, ListedManifest.parsed, missing)


def keep_written(table: str, path: str, spec: PartitionSpec, files: Iterable[tuple[DataFile, int]]) -> None:
    """Keep the facts of a manifest that was just written, so that this process does not parse it.

    Args:
        table: the name of the table, for messages.
        path: of the manifest.
        spec: of its files.
        files: its live files, each with the sequence number of its commit.
    """
    _PARSED.put(path, _facts(table, files, identities_of(spec)))


def identities_of(spec: PartitionSpec | None) -> Identities:
    """Return the place of each field of a spec that has the values of a column as they are, and the column's id."""
    fields = () if spec is None else spec.fields
    return tuple((place, one.source_id) for place, one in enumerate(fields) if _is_identity(one))


def _is_identity(field: PartitionField) -> bool:
    return isinstance(field.transform, IdentityTransform)


def _facts(table: str, files: Iterable[tuple[DataFile, int]], identities: Identities) -> Parsed:
    found = Parsed({}, {})
    for one, sequence in files:
        values = partition_values(one)
        if one.content == DataFileContent.DATA:
            if one.file_format != FileFormat.PARQUET:
                raise Unsupported(
                    f"{table} contains rows as {one.file_format.value} ({one.file_path}), and foldhouse reads only "
                    "Parquet; rewrite the table's data files as Parquet with the engine that wrote them"
                )
            found.data.setdefault(values, []).append((file_ref(one, identities), sequence))
        else:
            found.deletes.setdefault(values, []).append(_delete_file(table, one, sequence))
    return found


def listed(iceberg: IcebergTable, snapshot: Snapshot) -> tuple[ListedManifest, ...]:
    """Return the manifests of a snapshot that have live files."""
    name = ".".join(iceberg.name())
    said = {number: identities_of(spec) for number, spec in iceberg.specs().items()}
    return tuple(
        ListedManifest(
            one.manifest_path, one, _ranges(iceberg, one), name, iceberg.io, said.get(one.partition_spec_id, ())
        )
        for one in manifests_of(iceberg.io, snapshot)
        if one.has_added_files() or one.has_existing_files()
    )


def _ranges(iceberg: IcebergTable, manifest: ManifestFile) -> tuple[Range | None, ...]:
    spec = iceberg.specs().get(manifest.partition_spec_id)
    summaries = manifest.partitions
    if spec is None or summaries is None or len(summaries) != len(spec.fields):
        return ()
    return tuple(
        _range(_type_of_field(iceberg, one.source_id, one.transform), summary)
        for one, summary in zip(spec.fields, summaries, strict=True)
    )


def _type_of_field(iceberg: IcebergTable, source_id: int, transform: Any) -> IcebergType | None:
    """Return the type of a partition field if its values are whole numbers; `None` for any other."""
    # The column may have been dropped, but its type is still in an earlier schema.
    schemas = (iceberg.schema(), *iceberg.schemas().values())
    found = next((field for schema in schemas for field in schema.fields if field.field_id == source_id), None)
    if found is None:
        return None
    kind: IcebergType = transform.result_type(found.field_type)
    return kind if isinstance(kind, DateType | IntegerType | LongType) else None


def _range(kind: IcebergType | None, summary: PartitionFieldSummary) -> Range | None:
    if kind is None:
        return None
    assert isinstance(kind, PrimitiveType)
    lower, upper = summary.lower_bound, summary.upper_bound
    if lower is None or upper is None:
        # Without bounds, the values are all null; a writer that names neither bounds nor nulls says nothing.
        return Range(None, None, has_null=True) if summary.contains_null else None
    least, most = bound_of(kind, lower), bound_of(kind, upper)
    return None if least is None or most is None else Range(least, most, bool(summary.contains_null))


def _delete_file(table: str, found: DataFile, sequence: int) -> DeleteFile:
    if found.content == DataFileContent.EQUALITY_DELETES:
        raise Unsupported(
            f"{table} contains equality deletes ({found.file_path}), which foldhouse does not read; "
            "rewrite the table's data files with the engine that wrote them (Spark: rewrite_data_files)"
        )
    if found.file_format != FileFormat.PARQUET:
        raise Unsupported(
            f"{table} contains deletes as {found.file_format.value} ({found.file_path}), and foldhouse "
            "reads only position deletes in Parquet (format version 2); rewrite the table's data files with the engine "
            "that wrote them"
        )
    # Another writer may truncate these bounds, and truncated bounds still enclose the path.
    lower, upper = ((bounds or {}).get(_PATH_FIELD_ID) for bounds in (found.lower_bounds, found.upper_bounds))
    least, most = bound_of(StringType(), lower), bound_of(StringType(), upper)
    return DeleteFile(found.file_path, sequence, least, most)


class Wanted:
    """Some partitions, each given by its first values; all values name one partition.

        Wanted([(19_782, 3)])   one partition of a table by day and bucket
        Wanted([(19_782,)])     all partitions of the day

    Args:
        partitions: with equally many values each.
    """

    def __init__(self, partitions: Sequence[Values]) -> None:
        self._values = frozenset(partitions)
        self._length = len(partitions[0]) if partitions else 0
        first = {one[0] for one in self._values if one}
        self._has_null = None in first
        self._first = sorted(one for one in first if one is not None)

    def may_be_in(self, manifest: ListedManifest) -> bool:
        """Whether a manifest may have files of one of them, by its ranges."""
        ranges = manifest.ranges
        if not self._values or not self._length or not ranges:
            return bool(self._values)
        if len(self._values) <= _COMPARED:
            return any(_fits(ranges, one) for one in self._values)
        if ranges[0] is None:
            return True
        at = 0 if ranges[0].least is None else bisect_left(self._first, ranges[0].least)
        is_between = ranges[0].least is not None and at < len(self._first) and self._first[at] <= ranges[0].most
        return is_between or (self._has_null and ranges[0].has_null)

    def among(self, partitions: dict[Values, Any]) -> list[Values]:
        """Return those of some partitions that are wanted."""
        return [one for one in partitions if one[: self._length] in self._values]


def _fits(ranges: tuple[Range | None, ...], values: Values) -> bool:
    return all(one is None or one.may_have(value) for one, value in zip(ranges, values, strict=False))
