"""Changes of columns, on schemas alone: widened and added columns, nested ones too, read by field id."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
)

from foldhouse.storage.columns import continues, followed, widens
from foldhouse.storage.file_ref import FileRef
from foldhouse.storage.files import write_data_file
from foldhouse.storage.live import Partition, Piece
from foldhouse.storage.pieces import read_piece
from foldhouse.storage.schema import Layout


def test_widening_is_what_the_format_allows_and_nothing_else() -> None:
    kinds = [IntegerType(), LongType(), FloatType(), DoubleType(), DecimalType(5, 2), DecimalType(9, 2)]
    kinds += [DecimalType(9, 3), StringType(), DateType(), TimestampType()]
    allowed = {(str(one), str(other)) for one in kinds for other in kinds if widens(one, other)}
    assert allowed == {("int", "long"), ("float", "double"), ("decimal(5, 2)", "decimal(9, 2)")}


def nested(value: Any, *more: NestedField) -> Schema:
    entry = StructType(NestedField(4, "value", value), NestedField(5, "count", LongType()), *more)
    return Schema(
        NestedField(1, "k", StringType(), required=True),
        NestedField(2, "counts", ListType(3, entry, element_required=False)),
        NestedField(6, "by_name", MapType(7, StringType(), 8, value, value_required=False)),
        identifier_field_ids=[1],
    )


def test_nested_columns_are_added_and_widened_and_keep_their_field_ids() -> None:
    wanted = nested(LongType(), NestedField(99, "note", StructType(NestedField(98, "text", StringType()))))
    evolution = followed(nested(IntegerType()), wanted, 8, keeps_missing=False)
    assert evolution.refused == ()
    assert set(evolution.changes) == {
        "counts.element.value: int is now long",
        "by_name.value: int is now long",
        "counts.element.note: added as struct<98: text: optional string>",
    }
    ids = {name: evolution.schema.find_field(name).field_id for name in evolution.schema.column_names}
    assert ids["counts.element.value"] == 4
    assert ids["by_name.value"] == 8
    assert sorted([ids["counts.element.note"], ids["counts.element.note.text"]]) == [9, 10]
    assert continues(evolution.schema, nested(IntegerType()))
    assert evolution.schema.identifier_field_ids == [1]


def test_a_nested_column_that_left_is_refused_for_a_table_and_stays_in_a_stream() -> None:
    stored, wanted = nested(IntegerType(), NestedField(9, "note", StringType())), nested(IntegerType())
    assert followed(stored, wanted, 9, keeps_missing=False).refused == (
        "counts.element.note is stored and no longer among them",
    )
    assert followed(stored, wanted, 9, keeps_missing=True).schema.as_struct() == stored.as_struct()


def test_a_file_is_read_at_a_later_schema_by_field_id_with_null_lists_null(tmp_path: Path) -> None:
    then, now = nested(IntegerType()), nested(LongType(), NestedField(9, "note", StringType()))
    fields = [replace_name(field, f"{field.name}_renamed") for field in now.fields]
    later = Schema(*fields, NestedField(10, "new", StructType(NestedField(11, "x", DateType()))))

    def layout(schema: Schema) -> Layout:
        return Layout(schema.model_dump_json(), '{"spec-id": 0, "fields": []}', tmp_path.as_uri(), (), ())

    counts = [None, [], [{"value": 1, "count": 2}, None], [{"value": None, "count": 1}]]
    maps = [[("a", 1)], None, [], [("b", None)]]
    plain = pa.schema([f.remove_metadata() for f in layout(then).arrow])
    rows = pa.table({"k": list("wxyz"), "counts": counts, "by_name": maps}, schema=plain)
    written = write_data_file(layout(then), Partition(()), rows)
    piece = Piece(FileRef(written.file_path, 4, written.file_size_in_bytes, 0, (), {}, {}))
    read = read_piece(layout(later), piece)
    read.validate(full=True)
    noted = [None if one is None else [None if e is None else {**e, "note": None} for e in one] for one in counts]
    assert read.to_pydict() == {
        "k_renamed": list("wxyz"),
        "counts_renamed": noted,
        "by_name_renamed": maps,
        "new": [None] * 4,
    }
    assert read_piece(layout(later), piece, ["new"]).to_pydict() == {"new": [None] * 4}
    again = write_data_file(layout(later), Partition(()), read)
    back = read_piece(layout(later), Piece(FileRef(again.file_path, 4, again.file_size_in_bytes, 0, (), {}, {})))
    assert back.to_pydict() == read.to_pydict()
    assert [f.type for f in back.schema] == [f.type for f in read.schema]  # pieces of both can be put together


def replace_name(field: NestedField, name: str) -> NestedField:
    return NestedField(field.field_id, name, field.field_type, required=field.required)
