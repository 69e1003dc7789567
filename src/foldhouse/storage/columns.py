"""How the columns of a table may change while its rows stay as they are: added, widened, renamed, dropped, by field id.

Pure: a stored schema and a wanted one -> the schema that the table takes over, and what cannot be taken over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

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

Fields = Sequence[NestedField]


@dataclass(frozen=True)
class Evolution:
    """A stored schema on its way to a wanted one.

    Args:
        schema: the stored schema with what could be taken over; of the stored schema's own id.
        changes: what was taken over, such as `units: int is now long`.
        refused: what could not be, such as `units is stored as long and declared as int`.
    """

    schema: Schema
    changes: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


def followed(stored: Schema, wanted: Schema, last_column_id: int, *, keeps_missing: bool) -> Evolution:
    """Give a stored schema the columns that a wanted one adds and the types that it widens.

    Columns are matched by name, nested ones within their parent, and keep their field ids. An added one is optional.

    Args:
        stored: as it is.
        wanted: as it should be; its field ids mean nothing.
        last_column_id: the greatest field id the table has ever given; added columns have greater ones.
        keeps_missing: whether stored columns that are not wanted stay. Then every stored column keeps its place, and
            added ones come last; else the order is the wanted one, and what is not wanted is refused.
    """
    merge = _Merge(count(last_column_id + 1), keeps_missing)
    fields = merge.fields("", stored.fields, wanted.fields)
    schema = Schema(*fields, schema_id=stored.schema_id, identifier_field_ids=stored.identifier_field_ids)
    return Evolution(schema, tuple(merge.changes), tuple(merge.refused))


@dataclass
class _Merge:
    ids: Iterator[int]
    keeps_missing: bool
    changes: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def fields(self, path: str, stored: Fields, wanted: Fields) -> list[NestedField]:
        """The columns of a schema, or of a struct, afterwards."""
        held = {one.name: one for one in stored}
        asked = {one.name: one for one in wanted}
        merged = {n: self.field(path, held[n], one) if n in held else self.added(path, one) for n, one in asked.items()}
        missing = {name: one for name, one in held.items() if name not in asked}
        if self.keeps_missing:
            return [*({**held, **merged}[name] for name in held), *(merged[name] for name in asked if name not in held)]
        self.refused += [f"{path}{name} is stored and no longer among them" for name in missing]
        return list(merged.values())

    def field(self, path: str, stored: NestedField, wanted: NestedField) -> NestedField:
        """A column that is on both sides."""
        kind = self.type(f"{path}{stored.name}", stored.field_type, wanted.field_type)
        return NestedField(stored.field_id, stored.name, kind, required=stored.required, doc=stored.doc)

    def added(self, path: str, wanted: NestedField) -> NestedField:
        """A column that is not stored yet."""
        if wanted.required:
            self.refused.append(f"{path}{wanted.name} is new and may not be null, and the rows there are have no value")
        else:
            self.changes.append(f"{path}{wanted.name}: added as {wanted.field_type}")
        return NestedField(next(self.ids), wanted.name, _renumbered(wanted.field_type, self.ids), required=False)

    def type(self, path: str, stored: IcebergType, wanted: IcebergType) -> IcebergType:
        """A type that is on both sides."""
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
    """Whether every value of a type is one of the other, by the promotions of Iceberg's format version 2."""
    if isinstance(stored, DecimalType) and isinstance(wanted, DecimalType):
        return stored.scale == wanted.scale and stored.precision < wanted.precision
    return (isinstance(stored, IntegerType) and isinstance(wanted, LongType)) or (
        isinstance(stored, FloatType) and isinstance(wanted, DoubleType)
    )


def _is_same(one: IcebergType, other: IcebergType) -> bool:
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
    """A schema with top-level columns renamed and dropped; every other column keeps its place and field id."""
    changes = [f"{old}: renamed to {new}" for old, new in rename.items()] + [f"{name}: dropped" for name in drop]
    fields = [
        NestedField(one.field_id, rename.get(one.name, one.name), one.field_type, required=one.required, doc=one.doc)
        for one in stored.fields
        if one.name not in drop
    ]
    schema = Schema(*fields, schema_id=stored.schema_id, identifier_field_ids=stored.identifier_field_ids)
    return Evolution(schema, tuple(changes))


def continues(later: Schema, earlier: Schema) -> bool:
    """Whether every column of a schema, nested ones too, has the same field id in a later one."""
    ids = {name: later.find_field(name).field_id for name in later.column_names}
    return all(ids.get(name) == earlier.find_field(name).field_id for name in earlier.column_names)
