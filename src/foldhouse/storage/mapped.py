"""The name mapping of a table: the field ids of columns in files without any, which another tool added as they were.

A mapping holds for all files and snapshots of a table. So it has to follow the columns, and a name that moves from one
column to another one makes files of before ambiguous. Those are refused, never guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table import TableProperties
from pyiceberg.table.name_mapping import (
    MappedField,
    NameMapping,
    create_mapping_from_schema,
    parse_mapping_from_json,
    update_mapping,
)
from pyiceberg.table.update import SetPropertiesUpdate, TableUpdate
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from foldhouse.errors import DefinitionError
from foldhouse.storage.integrity import digest_in
from foldhouse.storage.live import live_of
from foldhouse.storage.parquet import read_footer

_ROOT = -1  # in pyiceberg: the id of the column around a top-level one
_FIELD_ID = b"PARQUET:field_id"


def mapped(iceberg: IcebergTable, schema: Schema) -> tuple[TableUpdate, ...]:
    """Return the update by which the name mapping of a table follows its columns to another schema; none without one.

    As in Iceberg's own library, a renamed column is found under its old name and the new one, and an added column takes
    its name from any column that had it before.

    Raises:
        DefinitionError: a file without field ids has values of another column under the name of a new one.
    """
    text = iceberg.properties.get(TableProperties.DEFAULT_NAME_MAPPING)
    if text is None or schema.as_struct() == iceberg.schema().as_struct():
        return ()
    held = {field.field_id: field for _, _, field in _placed(iceberg.schema().fields)}
    updates, adds = {}, dict[int, list[NestedField]]()
    for _, parent, field in _placed(schema.fields):
        known = held.get(field.field_id)
        if known is None and (parent in held or parent == _ROOT):
            adds.setdefault(parent, []).append(field)
        elif known is not None and known.name != field.name:
            updates[field.field_id] = field
    before = parse_mapping_from_json(text)
    after = update_mapping(parse_mapping_from_json(text), updates, adds)
    now = _ids(after)
    moved = {name for name, number in _ids(before).items() if now.get(name, number) != number}
    if moved:
        _check_unused(iceberg, moved)
    return (SetPropertiesUpdate(updates={TableProperties.DEFAULT_NAME_MAPPING: after.model_dump_json()}),)


def mapping_of(iceberg: IcebergTable) -> tuple[TableUpdate, ...]:
    """Return the update by which a table gets a name mapping of its columns; none if it has one.

    Raises:
        DefinitionError: it has one, by which a name stands for another column than the one that has it.
    """
    text, ids = iceberg.properties.get(TableProperties.DEFAULT_NAME_MAPPING), numbers(iceberg.schema())
    if text is None:
        made = create_mapping_from_schema(iceberg.schema())
        return (SetPropertiesUpdate(updates={TableProperties.DEFAULT_NAME_MAPPING: made.model_dump_json()}),)
    known = _ids(parse_mapping_from_json(text))
    wrong = [name for name, number in ids.items() if known.get(name) != number]
    if wrong:
        raise DefinitionError(
            f"{'.'.join(iceberg.name())} has a property {TableProperties.DEFAULT_NAME_MAPPING} that does not lead from "
            f"{', '.join(wrong)} to the column of that name, so files without field ids would be read wrongly; append "
            "their rows instead, or correct the property"
        )
    return ()


def numbers(schema: Schema) -> dict[str, int]:
    """Return column -> field id, nested columns too."""
    return {name: field.field_id for name, _, field in _placed(schema.fields)}


def misled(held: Schema, wanted: Schema) -> str | None:
    """Return a column of a file without field ids that the mapping takes for another one than now has that name."""
    ids = numbers(wanted)
    return next((name for name, number in numbers(held).items() if ids.get(name, number) != number), None)


def has_ids(columns: Iterable[pa.Field]) -> bool | None:
    """Whether the columns of a file have field ids; `None` if only some of them do."""
    found = {_FIELD_ID in (field.metadata or {}) for field in _arrow_fields(columns)}
    return None if len(found) > 1 else found != {False}


def _check_unused(iceberg: IcebergTable, names: set[str]) -> None:
    """Refuse to give a name to a new column if a file without field ids, of any snapshot, has values under it."""
    tops = {name.partition(".")[0] for name in names}
    manifests = {
        one.path: one
        for snapshot in iceberg.snapshots()
        for one in live_of(iceberg, snapshot.snapshot_id).manifests
        if not one.has_deletes
    }
    paths = {path for one in manifests.values() for path in one.parsed().paths if digest_in(path) is None}
    for path in sorted(paths):
        columns = read_footer(iceberg.io, path).schema.to_arrow_schema()
        used = tops.intersection(columns.names)
        if used and not has_ids(columns):
            raise DefinitionError(
                f"{'.'.join(iceberg.name())} cannot have a new column {min(used)!r}: {path} has no field ids, and has "
                "values of an earlier column under that name, which would come back in the new one. Give the new "
                "column another name, or compact the stream and expire the snapshots that have the file first"
            )


def _placed(
    fields: Sequence[NestedField], above: str = "", parent: int = _ROOT
) -> Iterator[tuple[str, int, NestedField]]:
    """Yield the name of each column, the id of the column around it, and the column."""
    for field in fields:
        yield f"{above}{field.name}", parent, field
        yield from _placed(within(field.field_type), f"{above}{field.name}.", field.field_id)


def within(kind: IcebergType) -> Sequence[NestedField]:
    """Return the fields that are directly within a nested type."""
    if isinstance(kind, StructType):
        return kind.fields
    if isinstance(kind, ListType):
        return (kind.element_field,)
    return (kind.key_field, kind.value_field) if isinstance(kind, MapType) else ()


def _arrow_fields(columns: Iterable[pa.Field]) -> Iterator[pa.Field]:
    for field in columns:
        yield field
        if pa.types.is_nested(field.type):
            yield from _arrow_fields(_parts(field.type))


def _parts(kind: pa.DataType) -> list[pa.Field]:
    if pa.types.is_map(kind):
        return [kind.key_field, kind.item_field]
    return [kind.field(place) for place in range(kind.num_fields)]


def _ids(mapping: NameMapping) -> dict[str, int]:
    """Return each name of a mapping -> the field id that it stands for, nested names too."""
    found: dict[str, int] = {}

    def look(above: str, fields: Sequence[MappedField]) -> None:
        for field in fields:
            for name in field.names:
                if field.field_id is not None:
                    found[f"{above}{name}"] = field.field_id
                look(f"{above}{name}.", field.fields)

    look("", mapping.root)
    return found
