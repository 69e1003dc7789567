"""Nested columns of a stream that another tool renamed or dropped."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from evolving import append, rows_of, stream

import foldhouse as fh
from foldhouse.values.types import arrow_type

NESTED = {
    # a stored type, one of its columns, and where the column is in the events
    "a struct": ("struct<a: int, b: int>", ("n", "a"), {"a": 1, "b": 2}),
    "a list": ("list<struct<a: int, b: int>>", ("n", "element", "a"), [{"a": 1, "b": 2}]),
    "a map": ("map<string, struct<a: int, b: int>>", ("n", "value", "a"), [("x", {"a": 1, "b": 2})]),
}


def put(lake: fh.Lake, kind: str, value: Any) -> None:
    column = pa.array([value], arrow_type(kind))
    lake.append(stream(n=kind), pa.table({"k": ["x"], "n": column, "t": pa.array([1], pa.int32())}))


@pytest.mark.parametrize("name", NESTED)
@pytest.mark.parametrize("change", ["renamed to", "dropped"])
def test_an_old_declaration_does_not_bring_a_nested_column_back(lake: fh.Lake, name: str, change: str) -> None:
    """Another tool renamed or dropped it; old code would put its values into a second column of the old name."""
    kind, path, value = NESTED[name]
    put(lake, kind, value)
    with lake.load("shop.events").update_schema() as update:
        if change == "dropped":
            update.delete_column(path)
        else:
            update.rename_column(path, "price")
    before = lake.load("shop.events").metadata
    with pytest.raises(fh.DefinitionError, match=rf"{'.'.join(path)} was {change}"):
        put(lake, kind, value)
    assert lake.load("shop.events").metadata == before
    assert lake.evolve(stream(n=kind)) == (f"{'.'.join(path)}: added as int",)
    put(lake, kind, value)
    assert lake.evolve(stream(n=kind)) == ()


def test_a_nested_column_of_another_column_of_that_name_is_new(lake: fh.Lake) -> None:
    append(lake, stream(n="struct<a: int, b: int>"), {"k": "x", "n": {"a": 1, "b": 2}, "t": 1})
    lake.evolve(stream(), drop=["n"])
    lake.evolve(stream(n="struct<b: int>"))
    append(lake, stream(n="struct<a: int, b: int>"), {"k": "y", "n": {"a": 3, "b": 4}, "t": 2})
    assert [row["n"] for row in rows_of(lake, stream())] == [None, {"b": 4, "a": 3}]


def test_a_stored_column_does_not_get_the_name_of_a_nested_one(lake: fh.Lake) -> None:
    wide = fh.stream("shop.events", schema={"k": "string", "s": "struct<x: int>", "o": "int", "t": "int"})
    lake.append(wide, [{"k": "x", "s": {"x": 1}, "o": 2, "t": 1}])
    before = lake.load("shop.events").metadata
    for call in (
        lambda: lake.append(stream(**{"s.x": "int"}), []),
        lambda: lake.evolve(stream(**{"s.x": "int"})),
        lambda: lake.evolve(stream(**{"s.x": "int"}), rename={"o": "s.x"}),
    ):
        with pytest.raises(fh.DefinitionError, match=r"two columns would be called 's\.x'"):
            call()
    assert lake.load("shop.events").metadata == before


def test_a_table_does_not_get_a_column_with_the_name_of_a_nested_one(lake: fh.Lake) -> None:
    source = fh.stream("shop.events", schema={"k": "string", "s": "struct<x: int>", "t": "int"}, sequence_by="t")
    lake.append(source, [{"k": "x", "s": {"x": 1}, "t": 1}])
    fold = fh.fold(**{"s": fh.latest("s"), "s.x": fh.maximum("t")})
    with pytest.raises(fh.DefinitionError, match=r"two columns are called 's\.x'"):
        lake.refresh(fh.table("shop.folded", source=source, keys="k", fold=fold))


UNKNOWN = {
    # a stored type, a value with a field too many, and how the field is called
    "a struct": ("struct<a: int, b: int>", {"a": 1, "b": 2, "c": 3}, "n.c"),
    "another case": ("struct<a: int, b: int>", {"A": 1, "b": 2}, "n.A"),
    "a struct in a struct": ("struct<a: struct<b: int>>", {"a": {"b": 1, "c": 2}}, "n.a.c"),
    "a list": ("list<struct<a: int>>", [None, {"a": 1}, {"a": 1, "b": 2}], "n.element.b"),
    "a map": ("map<string, struct<a: int>>", [("x", {"a": 1, "b": 2})], "n.value.b"),
}


@pytest.mark.parametrize("name", UNKNOWN)
@pytest.mark.parametrize("form", ["dicts", "Arrow"])
def test_a_nested_field_that_a_column_does_not_have_is_refused(lake: fh.Lake, name: str, form: str) -> None:
    """Arrow leaves it out without a word; a misspelt field would be null."""
    kind, value, unknown = UNKNOWN[name]
    append(lake, stream(n=kind), {"k": "x", "n": None, "t": 1})
    row = {"k": "y", "n": value, "t": 2}
    given = [row]
    if form == "Arrow":
        of_map = pa.map_(pa.string(), pa.struct([("a", pa.int32()), ("b", pa.int32())]))
        column = pa.array([value], of_map if kind.startswith("map") else None)
        given = pa.table({"k": ["y"], "n": column, "t": pa.array([2], pa.int32())})
    with pytest.raises(fh.InvalidData, match=rf"{unknown}\b"):
        lake.append(stream(n=kind), given)
    assert rows_of(lake, stream(n=kind)) == [{"k": "x", "n": None, "t": 1}]


def test_a_nested_field_that_an_event_does_not_have_is_null(lake: fh.Lake) -> None:
    append(lake, stream(n="struct<a: int, b: int>"), {"k": "x", "n": {"a": 1}, "t": 1})
    assert [row["n"] for row in rows_of(lake, stream())] == [{"a": 1, "b": None}]
