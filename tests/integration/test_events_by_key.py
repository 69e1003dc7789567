"""Each row of docs/events-by-key.md: what its second column says of foldhouse, in the order of the page."""

from __future__ import annotations

import inspect
import itertools
import math
import re
import sys
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import foldhouse as fh
from foldhouse.values.types import arrow_type

PAGE = (Path(__file__).parents[2] / "docs" / "events-by-key.md").read_text()
NAN = float("nan")

events = fh.stream(
    "keyed.events",
    schema={"key": "string", "word": "string", "number": "double", "gone": "boolean", "at": "long", "version": "int"},
    keys="key",
    sequence_by=["at", "version"],
)
WORDS = fh.latest(columns=["word", "number"], delete_when="gone")
words = fh.table("keyed.words", source=events, fold=WORDS)
partial = fh.table(
    "keyed.partial", source=events, fold=fh.latest(columns=["word", "number"], delete_when="gone", ignore_nulls=True)
)

Event = dict[str, Any]


def event(word: str | None = None, at: int | None = 1, version: int | None = 1, **more: Any) -> Event:
    return {"key": "a", "word": word, "number": None, "gone": False, "at": at, "version": version, **more}


def deleted(at: int, version: int = 1, **more: Any) -> Event:
    return event(None, at, version, gone=True, **more)


def land(lake: fh.Lake, stream: fh.Stream, *rows: Event) -> None:
    types = {
        "string": pa.string(), "double": pa.float64(), "boolean": pa.bool_(), "long": pa.int64(), "int": pa.int32(),
        "date": pa.date32(), "timestamp": pa.timestamp("us"), "decimal(12,2)": pa.decimal128(12, 2),
    }  # fmt: skip
    lake.append(stream, pa.Table.from_pylist(list(rows), pa.schema([(n, types[kind]) for n, kind in stream.schema])))


def folded(lake: fh.Lake, table: fh.Table, *batches: list[Event] | Event) -> list[Event]:
    """What a table holds after these batches, each folded when it has landed."""
    for batch in batches:
        land(lake, table.sources[0], *(batch if isinstance(batch, list) else [batch]))
        lake.refresh(table)
    return lake.to_arrow(table).sort_by(table.keys[0]).to_pylist()


def in_any_order(lake: fh.Lake, table: fh.Table, *rows: Event) -> list[Event]:
    """What a table holds after these events, in whatever order they arrive, one by one or together.

    Each order has a key of its own, and ids of its own.
    """
    for name in (table.name, table.sources[0].name):
        if name in lake.tables():
            lake.catalog.drop_table(name)
    orders = [list(order) for order in itertools.permutations(rows)]
    arrivals = [*([order] for order in orders), *([[one] for one in order] for order in orders)]
    batches = [
        [
            {**one, **{name: f"{place} {one[name]}" for name in ("id", "key") if name in one}}
            for place, arrival in enumerate(arrivals)
            for one in (arrival[step] if step < len(arrival) else [])
        ]
        for step in range(len(rows))
    ]
    answers: list[list[Event]] = [[] for _ in arrivals]
    for row in folded(lake, table, *batches):
        place, _, key = row["key"].partition(" ")
        answers[int(place)].append({**row, "key": key})
    assert all(repr(answer) == repr(answers[0]) for answer in answers)
    return answers[0]


def word(rows: list[Event]) -> str | None:
    [row] = rows
    return row["word"]


def test_the_columns_of_the_sequence_are_compared_one_after_the_other(lake: fh.Lake) -> None:
    """The order of events has several columns."""
    assert word(in_any_order(lake, words, event("x", 1, 9), event("y", 2, 1), event("z", 2, 2))) == "z"


def test_an_older_event_that_comes_late_changes_nothing(lake: fh.Lake) -> None:
    """An event comes late."""
    assert word(folded(lake, words, event("new", 2), event("old", 1))) == "new"
    assert lake.changes(words, after=lake.history(words)[1].id).num_rows == 0
    assert word(in_any_order(lake, words, event("x", 1), event("y", 2), event("z", 3))) == "z"


identified = fh.stream(
    "keyed.payments",
    schema={"id": "string", "key": "string", "amount": "long", "at": "long"},
    keys="key",
    event_id="id",
    event_time="at",
)
paid = fh.table("keyed.paid", source=identified, fold=fh.fold(amount=fh.total("amount"), payments=fh.count()))
unidentified = fh.stream("keyed.raw", schema=dict(identified.schema), keys="key")
counted = fh.table("keyed.counted", source=unidentified, fold=fh.fold(amount=fh.total("amount"), payments=fh.count()))


def payment(name: str, amount: int, at: int = 1) -> Event:
    return {"id": name, "key": "a", "amount": amount, "at": at}


def test_an_event_that_comes_twice_is_folded_once_where_it_has_an_id(lake: fh.Lake) -> None:
    """An event comes twice."""
    assert in_any_order(lake, words, event("x"), event("x")) == [{"key": "a", "word": "x", "number": None}]
    twice = (payment("p", 10), payment("p", 10), payment("q", 1))
    assert in_any_order(lake, paid, *twice) == [{"key": "a", "amount": 11, "payments": 2}]
    assert in_any_order(lake, counted, *twice) == [{"key": "a", "amount": 21, "payments": 3}]


def test_of_deliveries_that_differ_the_last_counts_and_then_the_greater_row(lake: fh.Lake) -> None:
    """An event comes twice, and differs."""
    assert in_any_order(lake, paid, payment("p", 10, at=2), payment("p", 99, at=1))[0]["amount"] == 10
    assert in_any_order(lake, paid, payment("p", 10), payment("p", 12))[0]["amount"] == 12


def test_a_key_is_absent_while_its_last_event_is_a_delete(lake: fh.Lake) -> None:
    """A delete."""
    assert in_any_order(lake, words, event("x", 1), deleted(2)) == []
    assert word(in_any_order(lake, words, event("x", 1), deleted(2), event("y", 3))) == "y"


def test_an_event_older_than_the_delete_does_not_bring_the_key_back(lake: fh.Lake) -> None:
    """An older event after a delete."""
    others = [event(str(number), 100 + number, key="b") for number in range(5)]
    assert [row["key"] for row in folded(lake, words, event("x", 1), deleted(5), others, event("late", 4))] == ["b"]


def test_a_delete_of_a_key_never_seen_is_remembered(lake: fh.Lake) -> None:
    """A delete of a key never seen."""
    assert folded(lake, words, deleted(5)) == []
    assert folded(lake, words, event("late", 4)) == []


def test_a_key_that_comes_back_holds_nothing_from_before_the_delete(lake: fh.Lake) -> None:
    """A key comes back after a delete."""
    before, after = event("x", 1, number=1.0), event("y", 3)
    assert in_any_order(lake, words, before, deleted(2), after) == [{"key": "a", "word": "y", "number": None}]
    assert in_any_order(lake, partial, before, deleted(2), after) == [{"key": "a", "word": "y", "number": None}]


def test_a_tie_goes_to_the_delete_and_then_to_the_greater_row(lake: fh.Lake) -> None:
    """A tie of the sequence."""
    assert in_any_order(lake, words, event("x"), deleted(1), event("z")) == []
    assert word(in_any_order(lake, words, event("x"), event("z"), event("y"))) == "z"


nested = fh.stream(
    "keyed.nested",
    schema={"key": "string", "id": "long", "at": "long", "tags": "list<long>", "box": "struct<n: int>"},
    keys="key",
    sequence_by="at",
    event_id="id",
)


def test_a_tie_of_nested_values_goes_by_text_in_latest_and_by_value_in_minimum_by(lake: fh.Lake) -> None:
    """A tie between lists, maps or structs."""
    whole = fh.table("keyed.whole", source=nested, fold=fh.latest(columns=["tags", "box"]))
    ends = fh.fold(last=fh.latest("tags"), first=fh.earliest("tags"), least=fh.minimum_by("tags", "at"))
    each = fh.table("keyed.each", source=nested, fold=fh.fold(**dict(ends.columns), most=fh.maximum_by("tags", "at")))
    values: list[dict[str, Any]] = [{"tags": [9], "box": {"n": 10}}, {"tags": [10], "box": {"n": 9}}]
    kinds = [pa.string(), pa.int64(), pa.int64(), pa.list_(pa.int64()), pa.struct([("n", pa.int32())])]
    schema = pa.schema(list(zip([name for name, _ in nested.schema], kinds, strict=True)))
    for turn, ids in enumerate([(1, 2), (3, 3)]):  # two events; one event that is delivered twice
        for number, order in enumerate((values, values[::-1])):
            key = f"{turn}{number}"
            for n, one in zip(ids, order, strict=True):
                row = {"key": key, "id": 10 * n + number, "at": 1, **one}
                lake.append(nested, pa.Table.from_pylist([row], schema))
                lake.refresh(whole)
                lake.refresh(each)
    assert {str(row["tags"]) for row in lake.to_arrow(whole).to_pylist()} == {"[9]"}
    found = {row.pop("key"): row for row in lake.to_arrow(each).to_pylist()}
    assert found["00"] == found["01"] == {"last": [9], "first": [10], "least": [9], "most": [10]}
    assert found["10"] == found["11"] == {name: [9] for name in ("last", "first", "least", "most")}


def test_an_event_without_a_key_is_counted_and_shown_and_not_folded(lake: fh.Lake) -> None:
    """A null key."""
    assert [row["key"] for row in folded(lake, words, [event("x"), event("lost", key=None)])] == ["a"]
    head = lake.head(words)
    assert head is not None
    assert head.summary["foldhouse.null-key-rows"] == "1"
    assert lake.quarantined(words)["word"].to_pylist() == ["lost"]


def test_an_event_without_a_sequence_is_counted_and_shown_and_not_folded(lake: fh.Lake) -> None:
    """A null in the sequence."""
    assert word(folded(lake, words, [event("x"), event("lost", 7, None), event("lost", None, 7)])) == "x"
    head = lake.head(words)
    assert head is not None
    assert head.summary["foldhouse.null-sequence-rows"] == "2"
    assert lake.quarantined(words)["word"].to_pylist() == ["lost", "lost"]
    counts = fh.table("keyed.counts", source=events, fold=fh.fold(events=fh.count()))
    lake.refresh(counts)
    assert lake.to_arrow(counts)["events"].to_pylist() == [3]


floats = fh.stream(
    "keyed.floats", schema={"number": "double", "key": "string", "at": "double"}, keys="number", sequence_by="at"
)
by_number = fh.table(
    "keyed.by_number", source=floats, keys=["number", "key"], fold=fh.fold(rows=fh.count(), last=fh.latest("at"))
)
largest = fh.table("keyed.largest", source=floats, keys="key", fold=fh.fold(number=fh.maximum("number")))
last = fh.table("keyed.last", source=floats, keys="key", fold=fh.fold(number=fh.latest("number")))


def measured(number: float, at: float = 1.0, key: str = "a") -> Event:
    return {"number": number, "key": key, "at": at}


def test_nan_is_one_value_greater_than_every_number(lake: fh.Lake) -> None:
    """NaN."""
    rows = in_any_order(lake, by_number, measured(NAN), measured(-NAN, 2.0), measured(math.inf))
    assert {str(row["number"]): row["rows"] for row in rows} == {"nan": 2, "inf": 1}
    assert math.isnan(in_any_order(lake, largest, measured(NAN), measured(math.inf))[0]["number"])
    assert in_any_order(lake, last, measured(1.0, at=math.inf), measured(2.0, at=NAN))[0]["number"] == 2.0


def test_negative_zero_is_zero(lake: fh.Lake) -> None:
    """-0.0."""
    [row] = in_any_order(lake, by_number, measured(-0.0), measured(0.0))
    assert (math.copysign(1, row["number"]), row["rows"]) == (1.0, 2)
    [row] = in_any_order(lake, last, measured(-0.0))
    assert math.copysign(1, row["number"]) == 1.0


def test_an_empty_string_is_a_key_and_a_value(lake: fh.Lake) -> None:
    """An empty string."""
    rows = folded(lake, words, event("", 2), event("y", key=""), event("lost", key=None))
    assert [(row["key"], row["word"]) for row in rows] == [("", "y"), ("a", "")]


def test_a_key_of_several_columns_is_null_where_any_of_them_is(lake: fh.Lake) -> None:
    """A key of several columns."""
    pairs = fh.table("keyed.pairs", source=events, keys=["key", "word"], fold=fh.fold(rows=fh.count()))
    rows = folded(lake, pairs, [event("x"), event("x"), event("y"), event(None), event("x", key=None)])
    assert [(row["key"], row["word"], row["rows"]) for row in rows] == [("a", "x", 2), ("a", "y", 1)]
    assert lake.quarantined(pairs).num_rows == 2


TYPED = {
    "string": "b", "int": 2, "long": 2, "double": 2.5, "boolean": True, "date": date(2024, 1, 2),
    "timestamp": datetime(2024, 1, 2, 3), "timestamptz": datetime(2024, 1, 2, 3, tzinfo=UTC),
    "decimal(12,2)": Decimal("2.50"), "binary": b"b", "float": 2.5,
}  # fmt: skip


def test_any_type_is_a_value_and_any_but_a_nested_one_a_key_and_a_sequence(lake: fh.Lake) -> None:
    """Types."""
    for number, (kind, value) in enumerate(TYPED.items()):
        stream = fh.stream(f"typed.s{number}", schema={"one": kind, "at": "int"}, sequence_by="at")
        schema = pa.schema([("one", arrow_type(kind)), ("at", pa.int32())])
        lake.append(stream, pa.Table.from_pylist([{"one": value, "at": 1}], schema))
        last_one = fh.fold(one=fh.latest("one"))
        for table in (
            fh.table(f"typed.v{number}", source=stream, keys="at", fold=last_one),
            fh.table(f"typed.k{number}", source=stream, keys="one", fold=fh.fold(rows=fh.count())),
            fh.table(f"typed.o{number}", source=stream, keys="at", sequence_by="one", fold=last_one),
        ):
            lake.refresh(table)
            assert lake.to_arrow(table)["one"].to_pylist() == [value], (kind, table.name)
    lists = fh.table(
        "typed.lists",
        source=events,
        keys="at",
        fold=fh.fold(words=fh.collect("word"), best=fh.top(1, "word", by="version")),
    )
    assert folded(lake, lists, [event("x"), event("y")])[0]["words"] == ["x", "y"]
    values = fh.fold(words=fh.latest("words"), best=fh.latest("best"))
    latest = fh.table("typed.nested", source=lists, keys="at", sequence_by="at", fold=values)
    lake.refresh(latest)
    assert lake.to_arrow(latest).to_pylist() == lake.to_arrow(lists).to_pylist()
    for table in (
        fh.table("typed.by_list", source=lists, keys="words", fold=fh.fold(rows=fh.count())),
        fh.table("typed.after_list", source=lists, keys="at", sequence_by="words", fold=values),
    ):
        with pytest.raises(fh.DefinitionError, match="can be neither a key nor a sequence"):
            lake.refresh(table)


def test_latest_publishes_a_null(lake: fh.Lake) -> None:
    """A null in a column."""
    assert word(in_any_order(lake, words, event("x", 1), event(None, 2))) is None


def test_with_ignore_nulls_each_column_has_its_own_latest_value_since_the_last_delete(lake: fh.Lake) -> None:
    """A null means "unchanged"."""
    named, measured_, nothing = event("x", 1), event(None, 2, number=2.0), event(None, 3)
    assert in_any_order(lake, partial, named, measured_, nothing) == [{"key": "a", "word": "x", "number": 2.0}]
    assert in_any_order(lake, partial, named, deleted(2), event(None, 3, number=3.0)) == [
        {"key": "a", "word": None, "number": 3.0}
    ]


def test_a_key_whose_last_event_is_taken_away_disappears(lake: fh.Lake) -> None:
    """The last event of a key is removed."""
    lake.tuning = fh.Tuning(restored_rows_factor=0)
    daily = fh.stream(
        "keyed.daily", schema={"day": "date", "key": "string", "at": "long"}, keys="key", sequence_by="at",
        partition_by="day",
    )  # fmt: skip
    tables = [
        fh.table("keyed.rows", source=daily, fold=fh.latest(columns=["at"])),
        fh.table("keyed.totals", source=daily, fold=fh.fold(total=fh.total("at"), least=fh.minimum("at"))),
    ]
    first, second = date(2024, 1, 1), date(2024, 1, 2)
    schema = pa.schema([("day", pa.date32()), ("key", pa.string()), ("at", pa.int64())])
    rows = [{"day": first, "key": "a", "at": 1}, {"day": second, "key": "b", "at": 2}]
    lake.replace(daily, pa.Table.from_pylist(rows[:1], schema), partitions=[first])
    lake.replace(daily, pa.Table.from_pylist(rows[1:], schema), partitions=[second])
    for take_away in (
        lambda: lake.replace(daily, schema.empty_table(), partitions=[second]),
        lambda: lake.rollback(daily, to=lake.history(daily)[-1].id),
    ):
        for table in tables:
            lake.refresh(table)
            assert sorted(lake.to_arrow(table)["key"].to_pylist()) == ["a", "b"]
        take_away()
        for table in tables:
            lake.refresh(table)
            assert lake.to_arrow(table)["key"].to_pylist() == ["a"]
        lake.replace(daily, pa.Table.from_pylist(rows[1:], schema), partitions=[second])


def test_a_batch_that_is_delivered_again_is_appended_once_unless_it_was_rolled_back(lake: fh.Lake) -> None:
    """A batch of events is delivered again."""
    plain = fh.stream("keyed.batches", schema={"key": "string"})
    batch = pa.table({"key": ["a"]})
    lake.append(plain, pa.table({"key": ["z"]}))
    assert lake.append(plain, batch, batch_id="monday").committed
    assert not lake.append(plain, batch, batch_id="monday").committed
    lake.compact(plain, min_files=1)
    lake.expire(plain, older_than=timedelta(), keep_last=1, in_use=timedelta())
    assert not lake.append(plain, batch, batch_id="monday").committed
    other = fh.stream("keyed.rolled", schema={"key": "string"})
    before = lake.append(other, pa.table({"key": ["z"]})).snapshot_id
    lake.append(other, batch, batch_id="monday")
    lake.rollback(other, to=before)
    assert lake.append(other, batch, batch_id="monday").committed
    assert lake.to_arrow(other).sort_by("key").to_pylist() == [{"key": "a"}, {"key": "z"}]


def test_every_row_of_the_page_has_its_test_and_no_other() -> None:
    rows = [line.split("|")[1].strip() for line in PAGE.splitlines() if line.startswith("| ")][1:]
    tests = [one for _, one in inspect.getmembers(sys.modules[__name__], inspect.isfunction)]
    said = {inspect.getdoc(one).rstrip(".") for one in tests if one.__name__.startswith("test_") and one.__doc__}
    assert said == set(rows)
    assert len(rows) == len(set(rows))


def test_the_declaration_on_the_page_is_one() -> None:
    [code] = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    declared: dict[str, Any] = {}
    exec(code, declared)
    assert declared["orders"].keys == ("order_id",)
