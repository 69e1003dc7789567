"""Columns that are added, widened, renamed or dropped, by field id, without rewriting rows.

The functions are pure: a stored schema and a wanted one -> the schema of the table afterwards, and the refused changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StructType,
)

from foldhouse.values.types import names_twice

Fields = Sequence[NestedField]


@dataclass(frozen=True)
class Evolution:
    """A stored schema on its way to a wanted one.

    Args:
        schema: the stored schema with the accepted changes; it keeps the stored schema's id.
        changes: the accepted changes, such as `units: int is now long`.
        refused: the refused changes, such as `units is stored as long and declared as int`.
    """

    schema: Schema
    changes: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


def followed(stored: Schema, wanted: Schema, last_column_id: int, *, keeps_missing: bool) -> Evolution:
    """Add the new columns of a wanted schema to a stored one, and widen types.

    Columns are matched by name, nested ones within their parent, and keep their field ids. An added column is optional.

    Args:
        stored: the stored schema.
        wanted: the schema to reach; its field ids are ignored.
        last_column_id: the greatest field id that the table has ever used; added columns get greater ids.
        keeps_missing: whether stored columns that are missing from `wanted` stay. If so, every stored column keeps its
            place, and added columns come last. Else the order is that of `wanted`, and a missing column is refused.
    """
    merge = _Merge(count(last_column_id + 1), keeps_missing)
    fields = merge.fields("", stored.fields, wanted.fields)
    return _evolution(stored, fields, merge.changes, merge.refused)


def _evolution(
    stored: Schema, fields: Sequence[NestedField], changes: Sequence[str], refused: Sequence[str] = ()
) -> Evolution:
    """Return the evolution of a stored schema to some columns, refused if Iceberg calls two of them the same."""
    arrow = schema_to_pyarrow(StructType(*fields), include_field_ids=False)
    twice = [f"two columns would be called {name!r}, one of them within another" for name in names_twice(arrow)]
    if twice:
        return Evolution(stored, refused=(*refused, *twice))
    schema = Schema(*fields, schema_id=stored.schema_id, identifier_field_ids=stored.identifier_field_ids)
    return Evolution(schema, tuple(changes), tuple(refused))


@dataclass
class _Merge:
    ids: Iterator[int]
    keeps_missing: bool
    changes: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def fields(self, path: str, stored: Fields, wanted: Fields) -> list[NestedField]:
        """Return the merged columns of a schema or a struct."""
        held = {one.name: one for one in stored}
        asked = {one.name: one for one in wanted}
        merged = {n: self.field(path, held[n], one) if n in held else self.added(path, one) for n, one in asked.items()}
        missing = {name: one for name, one in held.items() if name not in asked}
        if self.keeps_missing:
            return [*({**held, **merged}[name] for name in held), *(merged[name] for name in asked if name not in held)]
        self.refused += [f"{path}{name} is stored and no longer among them" for name in missing]
        return list(merged.values())

    def field(self, path: str, stored: NestedField, wanted: NestedField) -> NestedField:
        """Merge a column that both sides have."""
        kind = self.type(f"{path}{stored.name}", stored.field_type, wanted.field_type)
        return NestedField(stored.field_id, stored.name, kind, required=stored.required, doc=stored.doc)

    def added(self, path: str, wanted: NestedField) -> NestedField:
        """Add a column that is not stored yet."""
        if wanted.required:
            self.refused.append(f"{path}{wanted.name} is new and may not be null, but existing rows have no value")
        else:
            self.changes.append(f"{path}{wanted.name}: added as {wanted.field_type}")
        return NestedField(next(self.ids), wanted.name, _renumbered(wanted.field_type, self.ids), required=False)

    def type(self, path: str, stored: IcebergType, wanted: IcebergType) -> IcebergType:
        """Merge the stored and the wanted type of a column."""
        if isinstance(stored, StructType) and isinstance(wanted, StructType):
            return StructType(*self.fields(f"{path}.", stored.fields, wanted.fields))
        if isinstance(stored, ListType) and isinstance(wanted, ListType):
            element = self.type(f"{path}.element", stored.element_type, wanted.element_type)
            return ListType(stored.element_id, element, stored.element_required)
        if isinstance(stored, MapType) and isinstance(wanted, MapType) and _is_same(stored.key_type, wanted.key_type):
            value = self.type(f"{path}.value", stored.value_type, wanted.value_type)
            return MapType(stored.key_id, stored.key_type, stored.value_id, value, stored.value_required)
        if _is_same(stored, wanted):
            return stored
        if widens(stored, wanted):
            self.changes.append(f"{path}: {stored} is now {wanted}")
            return wanted
        self.refused.append(f"{path} is stored as {stored} and declared as {wanted}")
        return stored


def widens(stored: IcebergType, wanted: IcebergType) -> bool:
    """Whether Iceberg's format version 2 allows the stored type to be promoted to the wanted one."""
    if isinstance(stored, DecimalType) and isinstance(wanted, DecimalType):
        return stored.scale == wanted.scale and stored.precision < wanted.precision
    return (isinstance(stored, IntegerType) and isinstance(wanted, LongType)) or (
        isinstance(stored, FloatType) and isinstance(wanted, DoubleType)
    )


def _is_same(one: IcebergType, other: IcebergType) -> bool:
    # The text of a type includes field ids, so both types get equal ids first.
    return str(_renumbered(one, count(1))) == str(_renumbered(other, count(1)))


def _renumbered(kind: IcebergType, ids: Iterator[int]) -> IcebergType:
    if isinstance(kind, StructType):
        numbered = [(next(ids), one) for one in kind.fields]
        return StructType(
            *(NestedField(i, one.name, _renumbered(one.field_type, ids), required=False) for i, one in numbered)
        )
    if isinstance(kind, ListType):
        return ListType(next(ids), _renumbered(kind.element_type, ids), element_required=False)
    if isinstance(kind, MapType):
        key, value = next(ids), next(ids)
        return MapType(key, _renumbered(kind.key_type, ids), value, _renumbered(kind.value_type, ids), False)
    return kind


def without(stored: Schema, rename: Mapping[str, str], drop: Sequence[str]) -> Evolution:
    """Rename and drop top-level columns of a schema; every other column keeps its place and field id."""
    changes = [f"{old}: renamed to {new}" for old, new in rename.items()] + [f"{name}: dropped" for name in drop]
    fields = [
        NestedField(one.field_id, rename.get(one.name, one.name), one.field_type, required=one.required, doc=one.doc)
        for one in stored.fields
        if one.name not in drop
    ]
    return _evolution(stored, fields, changes)


def continues(later: Schema, earlier: Schema) -> bool:
    """Whether every column of a schema, nested ones too, has the same field id in a later one."""
    ids = {name: later.find_field(name).field_id for name in later.column_names}
    return all(ids.get(name) == earlier.find_field(name).field_id for name in earlier.column_names)
