"""Converts Arrow rows of a file to a later schema: columns are found by field id and widened, missing ones are null.

A missing column of which the file's partition says the value has this value, by Iceberg's specification: files of Hive
do not have the columns that they are partitioned by.
The same holds for nested fields. A null list stays null, while pyiceberg's own projection makes it an empty list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from foldhouse.storage.file_ref import Constants


def projected(rows: pa.Table, held: Schema, wanted: Schema, constants: Constants = ()) -> pa.Table:
    """Convert rows as they were written to another schema of the same table.

    Args:
        rows: top-level columns of a file, under their names in the file.
        held: the file's schema; it may have more columns than `rows`.
        wanted: the columns to return, in this order.
        constants: the values of columns that the file may lack, by its partition.

    Returns:
        The columns of `wanted`. Texts and bytes have Arrow's plain types, as a Parquet reader returns them.

    Raises:
        pa.ArrowInvalid: `wanted` is an older schema with a narrower type, and a value does not fit the type exactly; or
            a column has a type that Iceberg does not read as the wanted one.
    """
    rows = _plain(rows)
    given = set(rows.column_names)
    known = {field.field_id: field for field in held.fields if field.name in given}
    if [known.get(field.field_id) for field in wanted.fields] == list(wanted.fields):
        return rows.select([field.name for field in wanted.fields])
    said = dict(constants)
    columns, fields = [], []
    for field in wanted.fields:
        source = known.get(field.field_id)
        chunks = None if source is None else [_as(chunk, source, field, said) for chunk in rows[source.name].chunks]
        kind = chunks[0].type if chunks else plain_type(field.field_type)
        if chunks is None:
            columns.append(_repeated(said.get(field.field_id), rows.num_rows, kind))
        else:
            columns.append(pa.chunked_array(chunks, kind))
        fields.append(pa.field(field.name, kind, nullable=not field.required))
    return pa.table(columns, schema=pa.schema(fields))


def put_together(tables: Sequence[pa.Table]) -> pa.Table:
    """Put rows of one schema into one table, in which each column has one chunk and a plain Arrow type.

    Dictionaries of several files become plain values first: the numbers of one file may be too small for the values of
    all.
    """
    return _plain(pa.concat_tables(tables)).combine_chunks()


def _plain(rows: pa.Table) -> pa.Table:
    """Cast columns to Arrow's plain types, whatever Arrow types the writer of the file stored in it."""
    plain = pa.schema([_small_field(field) for field in rows.schema])
    return rows if plain.types == rows.schema.types else rows.cast(plain)


def empty_rows(schema: pa.Schema) -> pa.Table:
    """Return no rows of a schema; Arrow's own `empty_table` cannot, if a nested type has a UUID."""
    return pa.table([pa.chunked_array([], field.type) for field in schema], schema=schema)


def lacks(held: Schema, wanted: Schema, constants: Constants) -> bool:
    """Whether a file lacks a wanted column that has a value by its partition."""
    if not constants:
        return False
    missing = wanted.field_ids - held.field_ids
    return any(number in missing for number, _ in constants)


def _repeated(value: Any, count: int, kind: pa.DataType) -> pa.Array:
    """Return a value of a partition so many times: days and times are whole numbers there."""
    if value is None:
        return nulls(count, kind)
    if isinstance(kind, pa.BaseExtensionType):
        stored = value.bytes if isinstance(value, UUID) else value
        return pa.ExtensionArray.from_storage(kind, pa.repeat(pa.scalar(stored, kind.storage_type), count))
    if pa.types.is_temporal(kind) and isinstance(value, int):
        whole = pa.int32() if pa.types.is_date32(kind) else pa.int64()
        return pa.repeat(pa.scalar(value, whole), count).cast(kind)
    return pa.repeat(pa.scalar(value, kind), count)


def nulls(count: int, kind: pa.DataType) -> pa.Array:
    """Return nulls of a type; Arrow's own `nulls` cannot, if a nested type has a UUID."""
    return pa.nulls(count).cast(kind)


def plain_type(kind: IcebergType) -> pa.DataType:
    """Return the Arrow type that a Parquet reader returns for an Iceberg type."""
    return _small(schema_to_pyarrow(kind, include_field_ids=False))


def _small(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _small(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if kind in _WIDER:
        return _WIDER[kind]
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_time(kind):
        return pa.time64("us")
    if pa.types.is_struct(kind):
        return pa.struct([_small_field(field) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_small_field(kind.key_field), _small_field(kind.item_field))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(_small_field(kind.value_field))
    return kind


_WIDER = {
    **dict.fromkeys([pa.int8(), pa.int16(), pa.uint8(), pa.uint16(), pa.uint32()], pa.int32()),
    pa.uint64(): pa.int64(),
}
"""Types of a file that Iceberg has as another one; a value of the last two that does not fit is an error."""


def _small_field(field: pa.Field) -> pa.Field:
    return field.with_type(_small(field.type)).remove_metadata()


def _as(values: pa.Array, held: NestedField, wanted: NestedField, said: Mapping[int, Any]) -> pa.Array:
    have, want = held.field_type, wanted.field_type
    if have == want:
        return values
    if values.offset:  # the array is a slice, but `values.values` below would return its unsliced child
        values = values.take(pa.array(range(len(values)), pa.int64()))
    if isinstance(have, StructType) and isinstance(want, StructType):
        return _as_struct(values, have, want, said)
    if isinstance(have, ListType) and isinstance(want, ListType):
        elements = _as(values.values, have.element_field, want.element_field, said)
        kind = pa.list_(pa.field("element", elements.type, nullable=not want.element_required))
        return pa.ListArray.from_arrays(values.offsets, elements, type=kind, mask=values.is_null())
    if isinstance(have, MapType) and isinstance(want, MapType):
        items = _as(values.items, have.value_field, want.value_field, said)
        kind = pa.map_(values.keys.type, pa.field("value", items.type, nullable=not want.value_required))
        return pa.MapArray.from_arrays(values.offsets, values.keys, items, type=kind, mask=values.is_null())
    _check_alike(have, want, wanted.name)
    made = values.cast(plain_type(want))
    if isinstance(have, DoubleType):  # to a float, in an older schema; Arrow checks all other casts
        _check_floats(values, made, wanted.name)
    return made


_ALIKE: tuple[frozenset[type[IcebergType]], ...] = (
    frozenset({IntegerType, LongType}),
    frozenset({FloatType, DoubleType}),
    frozenset({DecimalType}),
    frozenset({StringType, BinaryType}),
    frozenset({FixedType, UUIDType}),
    frozenset({TimestampType, TimestamptzType}),
    frozenset({IntegerType, DateType}),
    frozenset({DateType, TimestampType}),
)
"""Types that are read as one another: by Iceberg's promotions, also back to an older schema, and those that a file does
not tell apart if its writer did not annotate them."""


def _check_alike(have: IcebergType, want: IcebergType, column: str) -> None:
    """Refuse to make values of another type, which Arrow would: `true` of 5, or the number 7 of the text `007`."""
    if not any({type(have), type(want)} <= alike for alike in _ALIKE):
        raise pa.ArrowInvalid(
            f"column {column!r} is a {have} in the file and a {want} in the table, and readers of Iceberg do not "
            "convert one to the other. Another tool wrote or added the file; have that tool write the column again"
        )


def _check_floats(given: pa.Array, made: pa.Array, column: str) -> None:
    kept = pc.or_(pc.equal(made.cast(given.type), given), pc.is_nan(given))
    if not pc.all(kept, min_count=0).as_py():
        at = pc.index(kept, False).as_py()
        raise pa.ArrowInvalid(f"{column}: the double {given[at]} is not exact as a float")


def _as_struct(values: pa.Array, held: StructType, wanted: StructType, said: Mapping[int, Any]) -> pa.Array:
    places = {field.field_id: place for place, field in enumerate(held.fields)}
    children, fields = [], []
    for field in wanted.fields:
        place = places.get(field.field_id)
        if place is None:
            children.append(_repeated(said.get(field.field_id), len(values), plain_type(field.field_type)))
        else:
            children.append(_as(values.field(place), held.fields[place], field, said))
        fields.append(pa.field(field.name, children[-1].type, nullable=not field.required))
    return pa.StructArray.from_arrays(children, fields=fields, mask=values.is_null())
