"""Changes between any two snapshots, in either direction: applied to the one they give the other."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StructType

import foldhouse as fh
from foldhouse.values.change import CHANGE_COLUMNS, CHANGE_ORDINAL, CHANGE_TYPE, COMMIT_SNAPSHOT_ID

EVENTS = pa.schema([("key", pa.string()), ("version", pa.int64()), ("value", pa.int64()), ("gone", pa.bool_())])
events = fh.stream(
    "c.events",
    schema={"key": "string", "version": "long", "value": "long", "gone": "boolean"},
    keys="key",
    sequence_by="version",
)
table = fh.table("c.table", source=events, fold=fh.latest(columns=["value"], delete_when="gone"))


def some_events(chance: random.Random) -> pa.Table:
    rows = [
        {"key": chance.choice("abc"), "version": chance.randint(1, 9), "value": n, "gone": chance.random() < 0.3}
        for n in range(chance.randint(1, 4))
    ]
    return pa.Table.from_pylist(rows, EVENTS)


def rows_of(found: pa.Table) -> Counter:
    return Counter(tuple(row.items()) for row in found.to_pylist())


def applied(before: Counter, changes: pa.Table) -> Counter:
    """Plain bookkeeping: what a change takes away has to be there."""
    rows = before.copy()
    ordinals = changes[CHANGE_ORDINAL].to_pylist()
    assert ordinals == sorted(ordinals)
    by_commit: dict[int, list[dict]] = {}
    for change in changes.to_pylist():
        by_commit.setdefault(change[CHANGE_ORDINAL], []).append(change)
    for commit in by_commit.values():
        for kinds, sign in ((("DELETE", "UPDATE_BEFORE"), -1), (("INSERT", "UPDATE_AFTER"), 1)):
            for change in (c for c in commit if c[CHANGE_TYPE] in kinds):
                row = tuple((name, value) for name, value in change.items() if name not in CHANGE_COLUMNS)
                rows[row] += sign
                assert rows[row] >= 0, f"{row} is taken away and was not there"
    return +rows


def a_history(lake: fh.Lake, seed: int) -> list[int]:
    """A table that went on, was rolled back, and went on another way: all its snapshots."""
    chance = random.Random(seed)
    for number in range(7):
        lake.append(events, some_events(chance))
        lake.refresh(table)
        if number == 3:
            lake.rollback(table, to=lake.history(table)[2].id)
    return [snapshot.snapshot_id for snapshot in lake.load(table).metadata.snapshots]


@pytest.mark.parametrize("net", [True, False], ids=["net", "commit by commit"])
@pytest.mark.parametrize("seed", range(3))
def test_changes_from_any_snapshot_to_any_other_lead_there(lake: fh.Lake, seed: int, net: bool) -> None:
    snapshots = a_history(lake, seed)
    states = {one: rows_of(lake.to_arrow(table, as_of=one)) for one in snapshots} | {0: Counter()}
    for before, state in states.items():
        for now in snapshots:
            assert applied(state, lake.changes(table, after=before, upto=now, net=net)) == states[now]


def test_undone_commits_are_named_by_their_own_ids_newest_first(lake: fh.Lake) -> None:
    a_history(lake, 1)
    line = [info.id for info in lake.history(table)]
    back = lake.changes(table, after=line[0], upto=line[3])
    named = dict(zip(back[CHANGE_ORDINAL].to_pylist(), back[COMMIT_SNAPSHOT_ID].to_pylist(), strict=True))
    assert [named[ordinal] for ordinal in sorted(named)] == [one for one in line[:3] if one in named.values()]
    assert set(named.values()) <= set(line[:3])


@pytest.mark.parametrize("keys", [["", "a", "b", "c"], [0, -1, 5, 2**40]], ids=["texts", "numbers"])
def test_a_row_that_a_new_file_took_along_is_no_change(lake: fh.Lake, keys: list[Any]) -> None:
    """Rows are told apart as values are: NaN is NaN, null is null, and lists are compared whole."""
    lake.tuning = fh.Tuning(deleted_share=-1)
    kind = "string" if keys[0] == "" else "long"
    stream = fh.stream(
        "c.odd",
        schema={"key": kind, "n": "long", "value": "double", "list": "list<double>"},
        keys="key",
        sequence_by="n",
    )
    newest = fh.table("c.odd_newest", source=stream, buckets=1, fold=fh.latest())
    values = [float("nan"), None, 1.0, 2.0]
    lists = [[float("nan")], None, [], [1.0, None]]
    types = {"key": pa.string() if kind == "string" else pa.int64(), "n": pa.int64(), "value": pa.float64()}
    schema = pa.schema([*types.items(), ("list", pa.list_(pa.float64()))])
    lake.append(stream, pa.table([keys, [1] * 4, values, lists], schema=schema))
    before = lake.refresh(newest).snapshot_id
    lake.append(stream, pa.table([keys[2:3], [2], [7.0], [[7.0]]], schema=schema))
    done = lake.refresh(newest)
    assert done.rows_carried == 3
    found = lake.changes(newest, after=before)
    assert found.select(["value", CHANGE_TYPE]).to_pylist() == [
        {"value": 1.0, CHANGE_TYPE: "UPDATE_BEFORE"},
        {"value": 7.0, CHANGE_TYPE: "UPDATE_AFTER"},
    ]


def test_a_row_that_a_stream_has_again_and_again_comes_and_goes_as_often(lake: fh.Lake) -> None:
    """Its keys say nothing of how many rows there are."""
    same = pa.Table.from_pylist([{"key": "a", "version": 1, "value": 5, "gone": False}] * 3, EVENTS)
    lake.append(events, same.slice(0, 1))
    first = lake.history(events)[0].id
    lake.append(events, same.slice(1))
    assert lake.changes(events, after=first)[CHANGE_TYPE].to_pylist() == ["INSERT", "INSERT"]
    back = lake.changes(events, after=lake.history(events)[0].id, upto=first, net=True)
    assert back[CHANGE_TYPE].to_pylist() == ["DELETE", "DELETE"]


def test_after_expiry_changes_are_those_between_the_kept_states(lake: fh.Lake) -> None:
    snapshots = a_history(lake, 2)
    states = {one: rows_of(lake.to_arrow(table, as_of=one)) for one in snapshots}
    line = [info.id for info in lake.history(table)]
    tagged = line[-1]
    lake.load(table).manage_snapshots().create_tag(tagged, "kept").commit()
    lake.expire(table, older_than=timedelta(0), keep_last=2, in_use=timedelta(0))
    kept = [snapshot.snapshot_id for snapshot in lake.load(table).metadata.snapshots]
    assert tagged in kept
    assert len(kept) < len(snapshots)
    steps = lake.changes(table, after=tagged)
    assert set(steps["_commit_snapshot_id"].to_pylist()) <= set(line[:2]), "what went is in the next kept commit's"
    assert applied(states[tagged], steps) == states[line[0]]
    net = lake.changes(table, after=tagged, net=True)
    assert applied(states[tagged], net) == states[line[0]]


def of_numbers(keys: list[str], **fold: fh.ColumnFold) -> fh.Table:
    return fh.table("c.numbers", source=numbers, keys=keys, fold=fh.fold(**fold))


numbers = fh.stream("c.n", schema={"a": "long", "b": "long", "n": "long"})
SUM = {"n": fh.total("n")}


def numbered(lake: fh.Lake, *rows: tuple[int, int, int]) -> None:
    lake.append(numbers, pa.Table.from_pylist([dict(zip("abn", row, strict=True)) for row in rows]))


def test_changes_before_a_rebuild_have_the_columns_of_then(lake: fh.Lake) -> None:
    ids = []
    for n in (1, 5):
        numbered(lake, (1, 1, n))
        ids.append(lake.refresh(of_numbers(["a"], **SUM)).snapshot_id)
    lake.rebuild(of_numbers(["a"], most=fh.maximum("n")))
    found = lake.changes("c.numbers", after=ids[0], upto=ids[1])
    assert found.select(["a", "n", CHANGE_TYPE]).to_pylist() == [
        {"a": 1, "n": 1, CHANGE_TYPE: "UPDATE_BEFORE"},
        {"a": 1, "n": 6, CHANGE_TYPE: "UPDATE_AFTER"},
    ]
    (corrected,) = lake.corrections("c.numbers", as_of=ids[1]).rows
    assert (corrected.key, corrected.before, corrected.after) == ({"a": 1}, {"n": 1}, {"n": 6})


@pytest.mark.parametrize("net", [True, False], ids=["net", "commit by commit"])
@pytest.mark.parametrize("nested", [False, True], ids=["plain", "nested"])
def test_a_double_is_never_changed_to_a_float_of_the_schema_before(lake: fh.Lake, nested: bool, net: bool) -> None:
    kind, of = ("list<struct<x: {}>>", lambda x: [{"x": x}]) if nested else ("{}", lambda x: x)
    old, new = (fh.stream("c.sizes", schema={"f": kind.format(one)}) for one in ("float", "double"))
    first = lake.append(old, [{"f": of(0.5)}]).snapshot_id
    fits = [1.5, None, float("inf"), float("nan"), -0.0]
    second = lake.append(new, [{"f": of(one)} for one in fits]).snapshot_id
    undone = lake.changes(new, after=second, upto=first, net=net)
    assert Counter(map(repr, undone["f"].to_pylist())) == Counter(repr(of(one)) for one in fits)
    assert set(undone[CHANGE_TYPE].to_pylist()) == {"DELETE"}
    for wide in (0.1, 1e300):
        third = lake.append(new, [{"f": of(wide)}]).snapshot_id
        with pytest.raises(fh.InvalidData, match=r"c\.sizes: .* is not exact as a float"):
            lake.changes(new, after=third, upto=first, net=net)
        assert of(wide) in lake.changes(new, after=second, upto=third, net=net)["f"].to_pylist()


def test_rows_that_a_rebuild_gave_another_key_go_and_come(lake: fh.Lake) -> None:
    """A consumer that skips UPDATE_BEFORE would keep the second row of a key, or both."""
    numbered(lake, (1, 1, 1), (1, 2, 1), (2, 1, 1), (3, 1, 1), (3, 2, 1))
    first = lake.refresh(of_numbers(["a", "b"], **SUM)).snapshot_id
    lake.load(numbers).delete("a = 3")
    lake.rebuild(of_numbers(["a"], **SUM))
    found = lake.changes("c.numbers", after=first).to_pylist()
    assert sorted((row["a"], row["n"], row[CHANGE_TYPE]) for row in found) == [
        (1, 1, "DELETE"),
        (1, 1, "DELETE"),
        (1, 2, "INSERT"),
        (3, 1, "DELETE"),
        (3, 1, "DELETE"),
    ]


@pytest.mark.parametrize("net", [True, False], ids=["net", "commit by commit"])
def test_rows_of_before_a_rebuild_have_null_in_a_key_that_it_added(lake: fh.Lake, net: bool) -> None:
    numbered(lake, (1, 1, 1), (1, 2, 1))
    first = lake.refresh(of_numbers(["a"], **SUM)).snapshot_id
    lake.rebuild(of_numbers(["a", "b"], **SUM))
    found = lake.changes("c.numbers", after=first, net=net).to_pylist()
    assert sorted((str(row["b"]), row["n"], row[CHANGE_TYPE]) for row in found) == [
        ("1", 1, "INSERT"),
        ("2", 1, "INSERT"),
        ("None", 2, "DELETE"),
    ]
    planned = lake.plan_rollback("c.numbers", to=first)
    assert (planned.rows, planned.rows_then, planned.inserted, planned.deleted) == (2, 1, 1, 2)
    lake.rollback("c.numbers", to=first)
    assert lake.changes("c.numbers", after=0).num_rows == 1


def test_rows_of_another_tool_that_share_a_key_are_no_updates(lake: fh.Lake) -> None:
    """Iceberg's identifier fields say which columns identify a row, and no engine checks that they do."""
    schema = Schema(
        NestedField(1, "k", LongType(), required=True), NestedField(2, "v", LongType()), identifier_field_ids=[1]
    )
    lake.catalog.create_namespace("c")
    theirs = lake.catalog.create_table("c.theirs", schema=schema)
    theirs.append(pa.table({"k": [1, 1, 2], "v": [1, 2, 1]}, schema=theirs.schema().as_arrow()))
    assert lake.changes("c.theirs", after=0)[CHANGE_TYPE].to_pylist() == ["INSERT"] * 3


def test_a_table_that_another_tool_identifies_by_a_field_of_a_struct_has_changes(lake: fh.Lake) -> None:
    """Iceberg allows it, where the struct and the field are required; the names of columns do not have it."""
    box = StructType(NestedField(3, "x", LongType(), required=True))
    schema = Schema(
        NestedField(1, "v", LongType()), NestedField(2, "box", box, required=True), identifier_field_ids=[3]
    )
    lake.catalog.create_namespace("c")
    theirs = lake.catalog.create_table("c.theirs", schema=schema)
    for value in (1, 2):
        theirs.append(pa.table({"v": [value], "box": [{"x": 1}]}, schema=theirs.schema().as_arrow()))
    changed = lake.changes("c.theirs", after=0).to_pylist()
    assert [(row["v"], row[CHANGE_TYPE], row[CHANGE_ORDINAL]) for row in changed] == [
        (1, "INSERT", 0),
        (2, "INSERT", 1),
    ]


def test_rows_that_could_not_be_folded_are_shown(lake: fh.Lake) -> None:
    strange = [
        {"key": None, "version": 1, "value": 1, "gone": False},
        {"key": "a", "version": None, "value": 2, "gone": False},
        {"key": "a", "version": 1, "value": 3, "gone": False},
    ]
    lake.append(events, pa.Table.from_pylist(strange, EVENTS))
    refreshed = lake.refresh(table)
    assert (refreshed.null_key_rows, refreshed.null_sequence_rows) == (1, 1)
    assert lake.to_arrow(table).to_pylist() == [{"key": "a", "value": 3}]
    assert sorted(lake.quarantined(table)["value"].to_pylist()) == [1, 2]
    lake.append(events, pa.Table.from_pylist(strange[:1], EVENTS))
    assert sorted(lake.quarantined(table)["value"].to_pylist()) == [1, 2], "as of the table's own position"
    head = lake.head(table)
    assert head is not None
    assert head.summary["foldhouse.null-sequence-rows"] == "1"


@pytest.mark.spark
def test_rows_that_could_not_be_folded_are_shown_as_rows_made_them(spark_lake) -> None:
    lake = spark_lake()
    doubled = fh.table(
        "c.doubled",
        source=events,
        rows=lambda events: events.selectExpr("upper(key) AS key", "version", "value * 2 AS value"),
        fold=fh.latest(),
    )
    rows = [
        {"key": None, "version": 1, "value": 1, "gone": False},
        {"key": "a", "version": 2, "value": 2, "gone": None},
    ]
    lake.append(events, pa.Table.from_pylist(rows, EVENTS))
    lake.refresh(doubled)
    assert lake.quarantined(doubled).to_pylist() == [{"key": None, "version": 1, "value": 2}]
