"""Columns of streams and tables that change while everything goes on: added, widened, renamed, dropped, by field id."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from evolving import WIDENED, append, rows_of, stream
from pyiceberg.exceptions import CommitFailedException

import foldhouse as fh
from foldhouse.storage.catalog import open_local_catalog
from foldhouse.storage.evolve import moved_to
from foldhouse.streams.evolution import commit_columns, pending

# --- the stream ---


def test_a_column_that_the_declaration_adds_is_there_with_the_next_append(lake: fh.Lake) -> None:
    before = append(lake, stream(a="int"), {"k": "x", "a": 1, "t": 1})
    append(lake, stream(channel="string", a="int"), {"k": "y", "a": 2, "t": 2, "channel": "web"})
    assert lake.to_arrow("shop.events").schema.names == ["k", "a", "t", "channel"]
    assert rows_of(lake, stream(a="int")) == [
        {"k": "x", "a": 1, "t": 1, "channel": None},
        {"k": "y", "a": 2, "t": 2, "channel": "web"},
    ]
    assert rows_of(lake, stream(a="int"), before) == [{"k": "x", "a": 1, "t": 1}]


@pytest.mark.parametrize(("narrow", "wide", "old", "new"), WIDENED)
def test_a_type_that_the_declaration_widens_is_widened_and_history_keeps_its_own(
    lake: fh.Lake, narrow: str, wide: str, old: object, new: object
) -> None:
    before = append(lake, stream(a=narrow), {"k": "x", "a": old, "t": 1})
    append(lake, stream(a=wide), {"k": "y", "a": new, "t": 2})
    assert [row["a"] for row in rows_of(lake, stream(a=wide))] == [old, new]
    then, now = (lake.to_arrow("shop.events", as_of=at).schema.field("a").type for at in (before, None))
    assert then != now
    assert [row["a"] for row in rows_of(lake, stream(a=wide), before)] == [old]


REFUSED_TYPES = [
    ("long", "int"),
    ("double", "float"),
    ("decimal(12,2)", "decimal(5,2)"),
    ("decimal(5,2)", "decimal(12,3)"),
    ("int", "string"),
    ("int", "double"),
    ("date", "timestamp"),
    ("timestamp", "timestamptz"),
]


@pytest.mark.parametrize(("stored", "declared"), REFUSED_TYPES)
def test_another_or_a_narrower_type_is_refused_before_anything_is_written(
    lake: fh.Lake, stored: str, declared: str
) -> None:
    append(lake, stream(a=stored), {"k": "x", "a": None, "t": 1})
    before = lake.load("shop.events").metadata
    with pytest.raises(fh.DefinitionError) as refused:
        append(lake, stream(a=declared, more="int"), {"k": "x", "a": None, "t": 2})
    said = str(refused.value)
    stored_as, declared_as = (text.replace(",", ", ") for text in (stored, declared))
    assert f"shop.events: a is stored as {stored_as} and declared as {declared_as}" in said
    assert lake.load("shop.events").metadata == before


def test_a_column_that_is_stored_and_not_declared_stays_and_new_events_have_null_there(lake: fh.Lake) -> None:
    append(lake, stream(a="int", b="string"), {"k": "x", "a": 1, "b": "old", "t": 1})
    append(lake, stream(a="int"), {"k": "y", "a": 2, "t": 2})
    append(lake, stream(a="int"), {"k": "z", "a": 3, "t": 3, "b": "given all the same"})
    assert [row["b"] for row in rows_of(lake, stream(a="int"))] == ["old", None, "given all the same"]


def test_events_that_do_not_fit_change_no_column(lake: fh.Lake) -> None:
    append(lake, stream(a="int"), {"k": "x", "a": 1, "t": 1})
    before = lake.load("shop.events").metadata
    with pytest.raises(fh.InvalidData, match="lack more"):
        lake.append(stream(a="int", more="int"), pa.table({"k": ["x"], "a": [1], "t": [2]}))
    with pytest.raises(fh.InvalidData, match=r"shop\.events\.more"):
        append(lake, stream(a="int", more="int"), {"k": "x", "a": 1, "t": 2, "more": "no number"})
    assert lake.load("shop.events").metadata == before


def test_names_that_differ_by_case_alone_are_refused(lake: fh.Lake) -> None:
    append(lake, stream(a="int"), {"k": "x", "a": 1, "t": 1})
    with pytest.raises(fh.DefinitionError, match="A is declared, but a is stored"):
        append(lake, stream(A="int"), {"k": "x", "A": 1, "t": 2})


def test_a_restated_day_takes_the_new_column(lake: fh.Lake) -> None:
    def by_day(**columns: str) -> fh.Stream:
        return fh.stream("shop.days", schema={"day": "date", "a": "int", **columns}, partition_by="day")

    day = date(2024, 3, 4)
    lake.replace(by_day(), pa.table({"day": [day], "a": pa.array([1], pa.int32())}), partitions=[day])
    same = pa.table({"day": [day], "a": [1], "b": pa.array([None], pa.string())})
    assert not lake.replace(by_day(b="string"), same, partitions=[day]).committed
    assert lake.to_arrow("shop.days").to_pylist() == [{"day": day, "a": 1, "b": None}]
    other = pa.table({"day": [day], "a": [1], "b": ["x"]})
    assert lake.replace(by_day(b="string"), other, partitions=[day]).committed
    assert lake.to_arrow("shop.days").to_pylist() == [{"day": day, "a": 1, "b": "x"}]


def test_two_writers_that_add_different_columns_at_once_both_land(tmp_path: Path) -> None:
    def open_lake() -> fh.Lake:
        return fh.Lake(open_local_catalog(tmp_path / "lake"), lambda: pytest.fail("no JVM"))

    append(open_lake(), stream(), {"k": "x", "t": 0})
    barrier = threading.Barrier(4)
    failures: list[BaseException] = []

    def write(number: int) -> None:
        try:
            lake = open_lake()
            barrier.wait()
            append(lake, stream(**{f"c{number}": "int"}), {"k": f"w{number}", "t": number, f"c{number}": number})
            lake.close()
        except BaseException as failure:
            failures.append(failure)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(1, 5)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert failures == []
    lake = open_lake()
    found = {row["k"]: {n: v for n, v in row.items() if v is not None} for row in rows_of(lake, stream())}
    assert found == {"x": {"k": "x", "t": 0}} | {f"w{n}": {"k": f"w{n}", "t": n, f"c{n}": n} for n in range(1, 5)}
    ids = [f.field_id for f in lake.load("shop.events").schema().fields]
    assert len(set(ids)) == len(ids) == 6
    lake.close()


@pytest.mark.parametrize("first", [{"a": "int", "b": "int"}, {"a": "long"}], ids=["added", "widened"])
@pytest.mark.parametrize("second", [{"a": "int", "c": "string"}, {"a": "long"}], ids=["added", "widened"])
def test_a_race_for_the_schema_is_lost_by_one_of_two(
    lake: fh.Lake, first: dict[str, str], second: dict[str, str]
) -> None:
    append(lake, stream(a="int"), {"k": "x", "a": 1, "t": 1})
    read = lake.load("shop.events")
    one, other = pending(read, stream(**first)), pending(read, stream(**second))
    landed = commit_columns(lake.catalog, read, one)
    if first == second:
        assert commit_columns(lake.catalog, read, other).metadata == landed.metadata  # it is as wanted already
    else:
        with pytest.raises(fh.CommitConflict):
            commit_columns(lake.catalog, read, other)
    assert lake.load("shop.events").metadata == landed.metadata


@pytest.mark.parametrize("lands", [True, False])
def test_a_change_of_columns_whose_outcome_is_unknown_is_looked_for(
    lake: fh.Lake, monkeypatch: pytest.MonkeyPatch, lands: bool
) -> None:
    append(lake, stream(a="int"), {"k": "x", "a": 1, "t": 1})
    read, send = lake.load("shop.events"), lake.catalog.commit_table
    updates = pending(read, stream(a="int", b="int"))

    def unlucky(*arguments: Any) -> Any:
        if lands:
            send(*arguments)
        raise CommitFailedException("said so")

    monkeypatch.setattr(lake.catalog, "commit_table", unlucky)
    if lands:
        assert "b" in commit_columns(lake.catalog, read, updates).schema().column_names
    else:
        with pytest.raises(fh.CommitConflict):
            commit_columns(lake.catalog, read, updates)


def test_an_append_whose_columns_are_declared_as_they_are_changes_no_schema(lake: fh.Lake) -> None:
    append(lake, stream(a="int"), {"k": "x", "a": 1, "t": 1})
    append(lake, fh.stream("shop.events", schema={"t": "int", "a": "int", "k": "string"}), {"k": "x", "a": 1, "t": 1})
    assert list(lake.load("shop.events").schemas()) == [0]


def test_a_schema_that_is_the_current_one_is_no_update(lake: fh.Lake) -> None:
    append(lake, stream(a="int"), {"k": "x", "a": 1, "t": 1})
    iceberg = lake.load("shop.events")
    assert moved_to(iceberg, iceberg.schema()) == ()
    assert commit_columns(lake.catalog, iceberg, ()) is iceberg


# --- renamed and dropped ---


def test_a_renamed_column_keeps_its_values_and_a_dropped_one_leaves_them_to_history(lake: fh.Lake) -> None:
    before = append(lake, stream(a="int", b="string", c="int"), {"k": "x", "a": 1, "b": "hello", "c": 5, "t": 1})
    said = lake.evolve(stream(price="long", b="string", new="date"), rename={"a": "price"}, drop=["c"])
    assert said == (
        "a: renamed to price",
        "c: dropped",
        "price: int is now long",
        "new: added as date",
    )
    assert rows_of(lake, stream()) == [{"k": "x", "price": 1, "b": "hello", "t": 1, "new": None}]
    assert rows_of(lake, stream(), before) == [{"k": "x", "a": 1, "b": "hello", "c": 5, "t": 1}]
    assert len(lake.history("shop.events")) == 1  # no event was written


def test_what_was_said_already_changes_nothing_when_it_is_said_again(lake: fh.Lake) -> None:
    append(lake, stream(a="int", c="int"), {"k": "x", "a": 1, "c": 5, "t": 1})
    after = stream(price="int")
    assert lake.evolve(after, rename={"a": "price"}, drop=["c"])
    before = lake.load("shop.events").metadata
    assert lake.evolve(after, rename={"a": "price"}, drop=["c"]) == ()
    assert lake.load("shop.events").metadata == before


def test_a_column_that_was_dropped_and_is_declared_again_is_new_and_empty(lake: fh.Lake) -> None:
    declared = stream(a="int")
    append(lake, declared, {"k": "x", "a": 1, "t": 1})
    old = lake.load("shop.events").schema().find_field("a").field_id
    lake.evolve(stream(), drop=["a"])
    with pytest.raises(fh.DefinitionError, match=r"a was dropped.*lake\.evolve"):
        append(lake, declared, {"k": "x", "a": 2, "t": 2})
    assert lake.evolve(declared) == ("a: added as int",)
    append(lake, declared, {"k": "y", "a": 3, "t": 3})
    assert [row["a"] for row in rows_of(lake, declared)] == [None, 3]
    assert lake.load("shop.events").schema().find_field("a").field_id > old


def test_an_old_declaration_does_not_bring_a_renamed_column_back(lake: fh.Lake) -> None:
    append(lake, stream(a="int"), {"k": "x", "a": 1, "t": 1})
    lake.evolve(stream(price="int"), rename={"a": "price"})
    before = lake.load("shop.events").metadata
    with pytest.raises(fh.DefinitionError, match="a was renamed to price"):
        append(lake, stream(a="int"), {"k": "x", "a": 2, "t": 2})
    assert lake.load("shop.events").metadata == before


def by_day(**columns: str) -> fh.Stream:
    schema = {"k": "string", "t": "int", "day": "date", **columns}
    return fh.stream("shop.events", schema=schema, keys="k", sequence_by="t", partition_by="day")


NOT_SAID: dict[str, tuple[Callable[[fh.Lake], object], str]] = {
    "a column that is not there": (lambda lake: lake.evolve(by_day(a="int"), drop=["b"]), "has no column 'b'"),
    "a column that is still declared": (lambda lake: lake.evolve(by_day(a="int"), drop=["a"]), "'a'.*still declared"),
    "a new name that is not declared": (
        lambda lake: lake.evolve(by_day(), rename={"a": "b"}),
        "renamed to 'b', which is not declared",
    ),
    "a name that is taken": (
        lambda lake: lake.evolve(by_day(c="int"), rename={"a": "c"}),
        "'a' cannot be renamed to 'c', because another",
    ),
    "two columns to one name": (
        lambda lake: lake.evolve(by_day(b="int"), rename={"a": "b", "c": "b"}),
        "two columns are to be renamed to 'b'",
    ),
    "a column renamed and dropped": (
        lambda lake: lake.evolve(by_day(b="int"), rename={"a": "b"}, drop=["a"]),
        "'a' is to be renamed and dropped",
    ),
    "the key renamed": (
        lambda lake: lake.evolve(fh.stream("shop.events", schema={"id": "string"}, keys="id"), rename={"k": "id"}),
        "depends on 'k'",
    ),
    "the partition renamed": (
        lambda lake: lake.evolve(fh.stream("shop.events", schema={"other": "date"}), rename={"day": "other"}),
        "depends on 'day'",
    ),
    "the partition dropped": (
        lambda lake: lake.evolve(fh.stream("shop.events", schema={"a": "int"}), drop=["day"]),
        "depends on 'day'",
    ),
    "a rename that narrows": (
        lambda lake: lake.evolve(by_day(b="string"), rename={"a": "b"}),
        "b is stored as int and declared as string",
    ),
}


@pytest.mark.parametrize("what", NOT_SAID)
def test_an_evolution_that_cannot_be_is_refused_and_changes_nothing(lake: fh.Lake, what: str) -> None:
    append(lake, by_day(a="int", c="int"), {"k": "x", "t": 1, "day": date(2024, 3, 4), "a": 1, "c": 2})
    before = lake.load("shop.events").metadata
    evolve, said = NOT_SAID[what]
    with pytest.raises(fh.DefinitionError, match=rf"^shop\.events.*{said}"):
        evolve(lake)
    assert lake.load("shop.events").metadata == before


def test_a_stream_that_does_not_exist_cannot_evolve(lake: fh.Lake) -> None:
    with pytest.raises(fh.UnknownTable, match=r"shop\.events does not exist"):
        lake.evolve(stream(a="int"))
