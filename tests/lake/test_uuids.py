"""UUIDs within lists and structs, of which Arrow itself can make neither an empty column nor one of nulls."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.types import ListType, NestedField, StructType, UUIDType

import foldhouse as fh
from foldhouse.values.types import arrow_type

SCHEMA = {"k": "string", "t": "int", "id": "uuid"}
events = fh.stream("u.events", schema=SCHEMA, sequence_by="t")
A, B, C = UUID(int=0), UUID(int=5), UUID(int=2**128 - 1)
FOLDS: dict[str, tuple[fh.ColumnFold, Any, Any]] = {
    # a fold, its value for the ids b (1), c (2), a (3), and without c
    "distinct_exact": (fh.distinct_exact("id"), 3, 2),
    "collect": (fh.collect("id"), [A, B, C], [A, B]),
    "collect by": (fh.collect("id", by="t"), [B, C, A], [B, A]),
    "collect distinct": (fh.collect("id", distinct=True), [A, B, C], [A, B]),
    "by": (fh.maximum_by("t", by="id"), 2, 1),
    "value": (fh.minimum_by("id", by="t"), B, B),
    "top": (fh.top(1, "id", by="t"), [{"id": A, "t": 3}], [{"id": A, "t": 3}]),
    "top by": (fh.top(1, "t", by="id"), [{"t": 2, "id": C}], [{"t": 1, "id": B}]),
    "latest": (fh.latest("id"), A, A),
    "maximum": (fh.maximum("id"), C, B),
    "minimum": (fh.minimum("id"), A, A),
}


def append(lake: fh.Lake, *rows: tuple[str, int, UUID | None]) -> None:
    made = [{"k": k, "t": t, "id": None if one is None else one.bytes} for k, t, one in rows]
    lake.append(events, pa.Table.from_pylist(made, pa.schema([(n, arrow_type(kind)) for n, kind in SCHEMA.items()])))


@pytest.mark.parametrize("name", FOLDS)
def test_a_fold_keeps_uuids(lake: fh.Lake, name: str) -> None:
    fold, with_c, without_c = FOLDS[name]
    table = fh.table("u.folded", source=events, keys="k", fold=fh.fold(out=fold))
    append(lake, ("x", 1, B))
    lake.refresh(table)
    before = lake.head(events)
    append(lake, ("x", 3, A), ("x", 2, C))
    lake.refresh(table)
    assert lake.to_arrow(table)["out"].to_pylist() == [with_c]
    lake.load(events).delete("t = 2")
    lake.refresh(table)
    assert lake.to_arrow(table)["out"].to_pylist() == [without_c]
    assert before is not None
    assert lake.changes(table, after=0).num_rows > 0


def test_a_nested_uuid_is_null_in_events_from_before_its_column(lake: fh.Lake) -> None:
    append(lake, ("x", 1, A))
    with lake.load(events).update_schema() as update:
        update.add_column("ids", ListType(1, UUIDType(), element_required=False))
        update.add_column("at", StructType(NestedField(1, "id", UUIDType(), required=False)))
    iceberg = lake.load(events)
    row = {"k": "x", "t": 2, "id": None, "ids": [B.bytes, None], "at": {"id": C.bytes}}
    plain = {**SCHEMA, "ids": "list<uuid>", "at": "struct<id: uuid>"}
    theirs = pa.Table.from_pylist([row], pa.schema([(n, arrow_type(kind)) for n, kind in plain.items()]))
    iceberg.append(theirs.cast(iceberg.schema().as_arrow()))
    append(lake, ("x", 3, B))
    found = {row["t"]: (row["ids"], row["at"]) for row in lake.to_arrow(events).to_pylist()}
    assert found == {1: (None, None), 2: ([B, None], {"id": C}), 3: (None, None)}
    whole = fh.table("u.whole", source=events, keys="k", sequence_by="t", fold=fh.latest())
    for t, ids in ((3, None), (2, [B, None]), (1, None)):
        lake.refresh(whole)
        assert [(row["t"], row["ids"]) for row in lake.to_arrow(whole).to_pylist()] == [(t, ids)]
        lake.load(events).delete(f"t = {t}")
    assert lake.to_arrow(events).num_rows == 0


NESTED = {"k": "string", "t": "int", "l": "list<uuid>", "m": "map<string, uuid>", "s": "struct<id: uuid, n: int>"}


def test_a_declared_nested_uuid_is_a_uuid_to_every_reader(lake: fh.Lake) -> None:
    source = fh.stream("u.nested", schema=NESTED, sequence_by="t")
    lake.append(source, [{"k": "x", "t": 1, "l": [A, None], "m": [("a", B)], "s": {"id": C, "n": 1}}])
    lake.append(source, [{"k": "y", "t": 1, "l": None, "m": None, "s": None}])
    assert lake.types(source) == NESTED
    whole = fh.table("u.whole", source=source, keys="k", fold=fh.latest())
    lake.refresh(whole)
    assert lake.types(whole) == NESTED
    expected = [([A, None], [("a", B)], {"id": C, "n": 1}), (None, None, None)]
    for name in ("u.nested", "u.whole"):
        iceberg = lake.load(name)
        for found in (lake.to_arrow(name), iceberg.scan().to_arrow()):
            made = sorted(found.to_pylist(), key=lambda row: row["k"])
            assert [(row["l"], row["m"], row["s"]) for row in made] == expected
        paths = [one.file.file_path for one in iceberg.scan().plan_files()]
        (kinds,) = duckdb.sql(f"SELECT DISTINCT typeof(l), typeof(m), typeof(s) FROM read_parquet({paths})").fetchall()
        assert kinds == ("UUID[]", "MAP(VARCHAR, UUID)", "STRUCT(id UUID, n INTEGER)")


def test_a_nested_uuid_that_was_stored_as_bytes_is_declared_as_it_is_stored(lake: fh.Lake) -> None:
    """Before, a declared `list<uuid>` was stored as `list<fixed[16]>`."""
    stored = {**NESTED, "l": "list<fixed[16]>"}
    row = {"k": "x", "t": 1, "l": [A.bytes], "m": None, "s": None}
    lake.append(fh.stream("u.nested", schema=stored), [row])
    with pytest.raises(fh.DefinitionError, match=r"l\.element is stored as fixed\[16\] and declared as uuid"):
        lake.append(fh.stream("u.nested", schema=NESTED), [row])
    lake.append(fh.stream("u.nested", schema=stored), [row])
    assert lake.to_arrow("u.nested")["l"].to_pylist() == [[A.bytes], [A.bytes]]
