"""Schemas, partition specs, and the layout of a table as a value that can be sent to tasks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import pyarrow as pa
from pyiceberg.exceptions import ValidationError
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException, _pyarrow_to_schema_without_ids, schema_to_pyarrow
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table import TableProperties
from pyiceberg.table.locations import LocationProvider
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform
from pyiceberg.types import (
    BooleanType,
    DateType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    ListType,
    MapType,
    NestedField,
    StructType,
    TimestampType,
    TimestamptzType,
)

from foldhouse.errors import DefinitionError, Unsupported
from foldhouse.storage.columns import continues
from foldhouse.storage.credentials import Credentials, public_of, separated
from foldhouse.storage.format import NEWEST
from foldhouse.storage.history import snapshot_of
from foldhouse.storage.places import is_on_disk, places_of
from foldhouse.storage.store import StoreIO, of_store
from foldhouse.storage.threads import fitting
from foldhouse.values.given import shown
from foldhouse.values.metadata_names import BATCH_ID, EXPIRED, FORGOTTEN_EVENTS, FORMAT, KIND, LANDED, STATE, THINNED
from foldhouse.values.names import is_pattern
from foldhouse.values.types import MOST_FIXED_BYTES, arrow_type, names_twice
from foldhouse.values.window import Position

FOREIGN = "foreign"

_WAITING_BYTES = 256 << 20
"""Bytes of files of a store that are read at once, unless there is one for each core anyway."""
AHEAD_BYTES = 32 << 20
"""Bytes of files of a store that are read before they are used; decoded, they are several times as many."""
_GROWING = (THINNED, EXPIRED, LANDED, FORGOTTEN_EVENTS)
"""Properties that grow with the history of a table."""

TABLE_PROPERTIES = {
    FORMAT: str(NEWEST),
    "format-version": "2",
    "write.parquet.compression-codec": "zstd",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}


def kind_of(iceberg: IcebergTable) -> str:
    """Return `stream`, `table`, or `foreign` for a table that foldhouse did not create."""
    said = iceberg.properties.get(KIND)
    return said if said in ("stream", "table") else FOREIGN


def schema_of_types(types: Mapping[str, str], required: Sequence[str] = ()) -> Schema:
    """Return an Iceberg schema from column -> type as text, including nested types.

    Raises:
        DefinitionError: a text is not an Iceberg type.
    """
    fields = [
        NestedField(field_id=number, name=name, field_type=_type_of(name, text), required=name in required)
        for number, (name, text) in enumerate(types.items(), start=1)
    ]
    return _storable(assign_fresh_schema_ids(Schema(*fields)))


def _storable(schema: Schema) -> Schema:
    """Return the schema if format version 2 has all of its types.

    Raises:
        DefinitionError: a type needs a later version.
    """
    try:
        schema.check_format_version_compatibility(2)
    except ValueError as failure:
        raise DefinitionError(
            f"a column cannot be stored in format version 2: {failure}; use another type"
        ) from failure
    return schema


def _type_of(name: str, text: str) -> IcebergType:
    try:
        if "<" not in text:  # pyiceberg parses only primitive types from text
            kind = NestedField.model_validate({"id": 1, "name": name, "type": text, "required": False}).field_type
            if isinstance(kind, FixedType) and not 0 < len(kind) <= MOST_FIXED_BYTES:
                raise ValueError("too long")
            return kind
        return (
            _pyarrow_to_schema_without_ids(pa.schema([(name, arrow_type(text, keeps_uuids=True))])).fields[0].field_type
        )
    except (ValueError, OverflowError, DefinitionError, ValidationError):
        raise DefinitionError(
            f"column {shown(name)} has the type {shown(text)}; declare an Iceberg type, such as string, int, long, "
            "double, boolean, date, timestamp, timestamptz, decimal(12,4), list<string>, map<string, long> or "
            "struct<city: string, code: int>"
        ) from None


def type_texts(schema: Schema) -> dict[str, str]:
    """Return column -> type as it is declared, such as `list<struct<n: int>>`, without the ids of nested fields."""
    return {field.name: _text_of(field.field_type) for field in schema.fields}


def _text_of(kind: IcebergType) -> str:
    if isinstance(kind, ListType):
        return f"list<{_text_of(kind.element_type)}>"
    if isinstance(kind, MapType):
        return f"map<{_text_of(kind.key_type)}, {_text_of(kind.value_type)}>"
    if isinstance(kind, StructType):
        return f"struct<{', '.join(f'{field.name}: {_text_of(field.field_type)}' for field in kind.fields)}>"
    return str(kind)


def schema_of_arrow(columns: pa.Schema, keys: Sequence[str]) -> Schema:
    """Return an Iceberg schema from Arrow types, with `keys` required, and as identifier if their types allow it."""
    twice = names_twice(columns)
    if twice:
        raise DefinitionError(
            f"two columns are called {twice[0]!r} by Iceberg, one of them within another column; give one of them "
            "another name"
        )
    try:
        plain = _storable(assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(columns)))
    except (ValueError, TypeError, UnsupportedPyArrowTypeException) as failure:
        raise DefinitionError(
            f"a column has a type that Iceberg cannot store: {failure}; cast it in `rows`"
        ) from failure
    fields = [f.model_copy(update={"required": f.name in keys}) for f in plain.fields]
    by_name = {f.name: f for f in fields}
    # Iceberg's specification allows no float or double as an identifier field.
    identifier = [] if any(isinstance(by_name[k].field_type, FloatType | DoubleType) for k in keys) else keys
    return Schema(*fields, identifier_field_ids=[by_name[k].field_id for k in identifier])


def day_spec(schema: Schema, column: str | None) -> PartitionSpec:
    """Return the partition spec of a stream: by a date column, by the day of a timestamp column, or none.

    Raises:
        DefinitionError: the column is neither a date nor a timestamp.
    """
    if column is None:
        return PartitionSpec()
    source = schema.find_field(column)
    if isinstance(source.field_type, DateType):
        return PartitionSpec(PartitionField(source.field_id, PARTITION_FIELD_ID_START, IdentityTransform(), column))
    if not isinstance(source.field_type, TimestampType | TimestamptzType):
        raise DefinitionError(f"partition_by={column!r} is {source.field_type}; use a date, or day() of a timestamp")
    return PartitionSpec(PartitionField(source.field_id, PARTITION_FIELD_ID_START, DayTransform(), f"{column}_day"))


def table_spec(schema: Schema, keys: Sequence[str], partition_by: str | None, buckets: int) -> PartitionSpec:
    """Return the partition spec of a table: its date column unchanged, then hash buckets of its first other key.

    Raises:
        DefinitionError: `partition_by` is not a date, or the key cannot be bucketed.
    """
    fields = []
    if partition_by is not None:
        day = schema.find_field(partition_by)
        if not isinstance(day.field_type, DateType):
            raise DefinitionError(f"partition_by={partition_by!r} is {day.field_type}; use a date column")
        fields.append(PartitionField(day.field_id, PARTITION_FIELD_ID_START, IdentityTransform(), partition_by))
    if buckets > 1:
        hashed = [k for k in keys if k != partition_by]
        if not hashed:
            raise DefinitionError(
                f"buckets={buckets}: the table has no key except {partition_by!r} to hash; leave buckets at 1"
            )
        key = schema.find_field(hashed[0])
        if isinstance(key.field_type, FloatType | DoubleType | BooleanType):
            raise DefinitionError(
                f"buckets={buckets}: Iceberg cannot hash {key.field_type} keys ({key.name}); leave buckets at 1"
            )
        number = PARTITION_FIELD_ID_START + len(fields)
        fields.append(PartitionField(key.field_id, number, BucketTransform(buckets), f"{key.name}_bucket"))
    return PartitionSpec(*fields)


@dataclass(frozen=True)
class Layout:
    """The parts of a table that reading or writing one file needs; none of them grows with the table's history.

    A layout is sent to Spark tasks, so everything in it is text, and no text is a secret.
    """

    schema_json: str
    spec_json: str
    location: str
    properties: tuple[tuple[str, str], ...]
    io_properties: tuple[tuple[str, str], ...] = field(repr=False)
    credentials: Credentials = field(default_factory=Credentials)

    @classmethod
    def of(cls, iceberg: IcebergTable, snapshot_id: int | None = None) -> Layout:
        """Return the layout of a table with the schema of a snapshot, or the current schema if that is unknown."""
        snapshot = snapshot_of(iceberg, snapshot_id)
        schema = iceberg.schemas().get(snapshot.schema_id) if snapshot and snapshot.schema_id is not None else None
        given = {name: str(value) for name, value in iceberg.io.properties.items()}
        known = iceberg.io.credentials if isinstance(iceberg.io, StoreIO) else None
        if isinstance(known, Credentials):
            public, credentials = public_of(given), known
        else:
            public, credentials = separated(iceberg.catalog.name, given)
        return cls(
            schema_json=(schema or iceberg.schema()).model_dump_json(),
            spec_json=iceberg.spec().model_dump_json(),
            location=iceberg.location(),
            properties=tuple(sorted(one for one in iceberg.properties.items() if one[0] not in _GROWING)),
            io_properties=tuple(sorted(public.items())),
            credentials=credentials,
        )

    @classmethod
    def of_head(cls, iceberg: IcebergTable) -> Layout:
        """Return the layout for reading the rows of the head.

        It has the table's newest columns, with one exception. A table of foldhouse may have been rolled back to before
        a rebuild with other columns. It is read as it was written, because the newest columns do not fit its rows.
        """
        written = cls.of(iceberg, iceberg.metadata.current_snapshot_id)
        is_table = kind_of(iceberg) == "table"
        return written if is_table and not continues(iceberg.schema(), written.schema) else cls.of(iceberg)

    @classmethod
    def at(cls, iceberg: IcebergTable, position: Position) -> Layout:
        """Return the layout for reading the rows of a position: with the schema that it was read with.

        That is not the schema of its snapshot if the columns changed after the snapshot and before it was read.
        """
        schema = iceberg.schemas().get(-1 if position.schema_id is None else position.schema_id)
        is_empty = position.snapshot_id is None
        written = cls.of_head(iceberg) if is_empty else cls.of(iceberg, position.snapshot_id)
        return written if schema is None else replace(written, schema_json=schema.model_dump_json())

    @cached_property
    def schema(self) -> Schema:
        """The Iceberg schema.

        Raises:
            Unsupported: a column has a default for files that do not have the column.
        """
        return _schema(self.schema_json)

    @cached_property
    def name_mapping(self) -> str | None:
        """Iceberg's name mapping, as JSON: the field ids of columns in files without any; `None` if there is none."""
        return dict(self.properties).get(TableProperties.DEFAULT_NAME_MAPPING)

    @cached_property
    def visible(self) -> list[str]:
        """The columns that users and folds see: all except `_state` and, in a stream of foldhouse, `_batch_id`."""
        kind = dict(self.properties).get(KIND)
        hidden = {STATE, BATCH_ID} if kind == "stream" else {STATE}
        return [field.name for field in self.schema.fields if field.name not in hidden]

    @cached_property
    def settled(self) -> list[str]:
        """The visible columns by their field ids: an order that stays if another tool moves a column."""
        ids = {field.name: field.field_id for field in self.schema.fields}
        return sorted(self.visible, key=ids.__getitem__)

    def selected(self, columns: tuple[str, ...]) -> Schema:
        """Return the Iceberg schema of some top-level columns."""
        return _selected(self.schema_json, columns)

    @cached_property
    def spec(self) -> PartitionSpec:
        """The partition spec."""
        return _spec(self.spec_json)

    @cached_property
    def partition_types(self) -> list[IcebergType]:
        """The types of the partition fields."""
        return [field.field_type for field in self.spec.partition_type(self.schema).fields]

    @cached_property
    def arrow(self) -> pa.Schema:
        """The Arrow schema, with field ids in its metadata."""
        return _arrow(self.schema_json)

    def files_at_once(self, sizes: Iterable[int]) -> int:
        """Return how many files are read at once: one for each core, and in a store more of those that are not large.

        Args:
            sizes: see `fitting`.
        """
        cores = os.cpu_count() or 1
        if is_on_disk(self.location):
            return cores
        return max(cores, fitting(sizes, _WAITING_BYTES))

    def files_ahead(self, sizes: Iterable[int]) -> int:
        """Return how many files are read ahead where they are used one after another: several small ones of a store.

        Args:
            sizes: see `fitting`.

        Returns:
            1 on disk, where reading a file is work for a core, and nothing is waited for.
        """
        return 1 if is_on_disk(self.location) else fitting(sizes, AHEAD_BYTES)

    @cached_property
    def io(self) -> FileIO:
        """The file system of the table, from the catalog's configuration."""
        given = {**dict(self.io_properties), **self.credentials.values()}
        return of_store(load_file_io(given, self.location), self.credentials)

    @cached_property
    def places(self) -> LocationProvider:
        """The location provider for new files of the table, which are below its location.

        Raises:
            Unsupported: the table's metadata leads elsewhere.
        """
        return places_of(self.location, dict(self.properties), dict(self.io_properties))

    def __getstate__(self) -> dict[str, Any]:
        # Without the cached properties: each task computes those that it needs.
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


# Many layouts are made of few schemas, and parsing one takes as long as reading a small file.
@lru_cache(maxsize=256)
def _schema(schema_json: str) -> Schema:
    schema = Schema.model_validate_json(schema_json)
    for number in schema.field_ids:
        field = schema.find_field(number)
        if is_pattern(field.name):
            raise Unsupported(
                f"column {field.name!r} has the form of a pattern, which stands for other columns, so it is not read. "
                "Nothing was written; rename the column with the tool that added it"
            )
        if field.initial_default is not None:
            raise Unsupported(
                f"column {field.name!r} has a default for rows of before it was added, {shown(field.initial_default)}, "
                "which foldhouse does not read (format version 3). Nothing was written; have the engine that added "
                "the column replace it by one without a default"
            )
    return schema


@lru_cache(maxsize=256)
def _spec(spec_json: str) -> PartitionSpec:
    return PartitionSpec.model_validate_json(spec_json)


@lru_cache(maxsize=256)
def _arrow(schema_json: str) -> pa.Schema:
    return schema_to_pyarrow(_schema(schema_json))


@lru_cache(maxsize=256)
def _selected(schema_json: str, columns: tuple[str, ...]) -> Schema:
    return _schema(schema_json).select(*columns)
