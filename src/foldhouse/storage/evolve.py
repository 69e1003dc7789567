"""The metadata updates for a new schema or partitioning, and the table as it will be after their commit."""

from __future__ import annotations

from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSpecUpdate,
    TableUpdate,
    update_table_metadata,
)

LAST_ADDED = -1  # in Iceberg's updates: the schema or spec that the same commit adds


def replacing(iceberg: IcebergTable, schema: Schema, spec: PartitionSpec) -> tuple[TableUpdate, ...]:
    """Return the updates that give a table another schema and spec; none if it already has them.

    A column of the same name and type keeps its field id, so that history stays readable. Every other column gets a new
    id.
    """
    current = iceberg.schema()
    if _shape(current) == _shape(schema) and partitioning(current, iceberg.spec()) == partitioning(schema, spec):
        return ()
    numbered = _numbered(current, schema, iceberg.metadata.last_column_id, max(iceberg.schemas()) + 1)
    last_field_id = max(iceberg.metadata.last_partition_id or 0, PARTITION_FIELD_ID_START - 1)
    fields = [
        PartitionField(
            source_id=numbered.find_field(schema.find_column_name(field.source_id) or "").field_id,
            field_id=last_field_id + place,
            transform=field.transform,
            name=field.name,
        )
        for place, field in enumerate(spec.fields, start=1)
    ]
    spec_id = max(iceberg.specs()) + 1
    return (
        AddSchemaUpdate(schema_=numbered),
        SetCurrentSchemaUpdate(schema_id=LAST_ADDED),
        AddPartitionSpecUpdate(spec=PartitionSpec(*fields, spec_id=spec_id)),
        SetDefaultSpecUpdate(spec_id=LAST_ADDED),
    )


def moved_to(iceberg: IcebergTable, schema: Schema) -> tuple[TableUpdate, ...]:
    """Return the updates that make a schema with the table's own field ids current; none if it already is."""
    if schema.as_struct() == iceberg.schema().as_struct():
        return ()
    there = schema_id_of(iceberg, schema)
    if there is not None:  # a server would not add it again, so it would not be the last one added
        return (SetCurrentSchemaUpdate(schema_id=there),)
    numbered = Schema(
        *schema.fields, schema_id=max(iceberg.schemas()) + 1, identifier_field_ids=schema.identifier_field_ids
    )
    return (AddSchemaUpdate(schema_=numbered), SetCurrentSchemaUpdate(schema_id=LAST_ADDED))


def schema_id_of(iceberg: IcebergTable, schema: Schema) -> int | None:
    """Return the id of a schema with these columns, field ids and identifier fields; `None` if the table has none."""
    return next((number for number, one in iceberg.schemas().items() if _same_schema(one, schema)), None)


def spec_id_of(iceberg: IcebergTable, spec: PartitionSpec) -> int | None:
    """Return the id of a spec that partitions by the same fields under the same names; `None` if there is none."""
    return next((number for number, one in iceberg.specs().items() if one.compatible_with(spec)), None)


def _same_schema(one: Schema, other: Schema) -> bool:
    return one.as_struct() == other.as_struct() and set(one.identifier_field_ids) == set(other.identifier_field_ids)


def evolved(iceberg: IcebergTable, updates: tuple[TableUpdate, ...]) -> IcebergTable:
    """Return the table as it will be once the updates are committed; nothing is written."""
    if not updates:
        return iceberg
    metadata = update_table_metadata(iceberg.metadata, updates)
    return IcebergTable(iceberg.name(), metadata, iceberg.metadata_location, iceberg.io, iceberg.catalog)


def _shape(schema: Schema) -> list[tuple[str, str, bool]]:
    plain = assign_fresh_schema_ids(schema)
    return [(field.name, str(field.field_type), field.required) for field in plain.fields]


def partitioning(schema: Schema, spec: PartitionSpec) -> list[tuple[str | None, str]]:
    """Return (column, transform) of each field of a spec; equal for specs that partition rows in the same way."""
    return [(schema.find_column_name(field.source_id), str(field.transform)) for field in spec.fields]


def _numbered(current: Schema, wanted: Schema, last_column_id: int, schema_id: int) -> Schema:
    counter = iter(range(last_column_id + 1, 2**31))
    fresh = assign_fresh_schema_ids(wanted, lambda: next(counter))
    # The text of a nested type contains field ids, so types are compared with fresh ids.
    held = {(f.name, str(p.field_type)): f for f, p in zip(current.fields, _plain(current), strict=True)}
    fields = []
    for given, plain in zip(fresh.fields, _plain(wanted), strict=True):
        known = held.get((given.name, str(plain.field_type)))
        fields.append(known.model_copy(update={"required": given.required}) if known is not None else given)
    keys = [f.field_id for f in fields if f.name in wanted.identifier_field_names()]
    return Schema(*fields, schema_id=schema_id, identifier_field_ids=keys)


def _plain(schema: Schema):  # type: ignore[no-untyped-def]
    return assign_fresh_schema_ids(schema).fields
