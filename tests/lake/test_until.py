"""A table of the events up to a moment of event time, beside what DuckDB makes of the same events."""

from __future__ import annotations

import json
import os
import random
import sys
import types
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from click.testing import CliRunner

import foldhouse as fh
from foldhouse.cli import main
from foldhouse.lake import position_of
from foldhouse.lake.until import Folded, Until
from foldhouse.values.window import Position

SCHEMA = {"day": "date", "at": "timestamp", "k": "string", "id": "long", "n": "long", "tags": "list<string>"}
events = fh.stream("u.events", schema=SCHEMA, keys=["k"], sequence_by="id", event_time="at", partition_by="day")
sums = fh.table("u.sums", source=events, fold=fh.fold(n=fh.total("n"), last=fh.latest("n"), rows=fh.count()))
by_size = fh.table("u.by_size", source=sums, keys="rows", fold=fh.fold(n=fh.total("n")), checks=[fh.between("n", 0)])
daily = fh.table("u.daily", source=events, keys="day", fold=fh.fold(n=fh.total("n")), partition_by="day")
timeless = fh.stream("u.timeless", schema={"k": "string", "happened": "timestamptz", "n": "long"}, keys="k")
counts = fh.table("u.counts", source=timeless, fold=fh.fold(n=fh.total("n")))
FIRST = datetime(2024, 3, 1)
DAYS = [date(2024, 3, day) for day in range(1, 7)]


def land(lake: fh.Lake, seed: int, rows: int = 25) -> None:
    """Events of six days, in any order, so that each batch has late ones; some exactly at a full hour."""
    chance = random.Random(seed)
    made = []
    for number in range(rows):
        at = FIRST + timedelta(hours=chance.randrange(6 * 24), microseconds=chance.choice([0, 0, 1, 999_999]))
        key = f"k{chance.randrange(5)}"
        made.append(
            {"day": at.date(), "at": at, "k": key, "id": seed * 100 + number, "n": chance.randrange(50), "tags": ["a"]}
        )
    lake.append(
        events, [*made, {"day": DAYS[0], "at": None, "k": "timeless", "id": seed * 100 + 99, "n": 1, "tags": None}]
    )


def prepare(lake: fh.Lake) -> None:
    for seed in range(4):
        land(lake, seed)
        lake.refresh(sums)
        if seed < 3:
            lake.refresh(by_size)
            lake.backfill(daily, DAYS[1:4])


@pytest.fixture
def shop(kept_lake: Callable[..., fh.Lake]) -> fh.Lake:
    return kept_lake(prepare)


def asked(lake: fh.Lake, table: fh.Table, query: str, last: datetime, as_of: Any = None) -> list[dict[str, Any]]:
    """What DuckDB makes of the events of a table's position up to a moment."""
    snapshot = next(one for one in lake.history(table) if as_of in (None, one.id))
    with duckdb.connect() as db:
        db.register("events", lake.to_arrow(events, as_of=position_of(snapshot)[events.name]))
        found = db.sql(query.format(of='from events where "at" <= $last'), params={"last": last})
        return found.to_arrow_table().to_pylist()


SUMS = """select k, cast(sum(n) as bigint) as n, arg_max(n, id) as last, count(*) as rows {of}
group by k order by k"""
BY_SIZE = """select rows, cast(sum(n) as bigint) as n from (select sum(n) as n, count(*) as rows {of} group by k)
group by rows order by rows"""
DAILY = """select day, cast(sum(n) as bigint) as n {of} and day between '2024-03-02' and '2024-03-04'
group by day order by day"""


def ordered(rows: pa.Table, *keys: str) -> list[dict[str, Any]]:
    return rows.sort_by([(key, "ascending") for key in keys]).to_pylist()


@pytest.mark.parametrize(
    ("moment", "last"),
    [
        ("2024-03-03", datetime(2024, 3, 3, 23, 59, 59, 999_999)),
        (date(2024, 3, 2), datetime(2024, 3, 2, 23, 59, 59, 999_999)),
        ("2024-03-03T07:00:00", datetime(2024, 3, 3, 7)),
        (datetime(2024, 3, 3, 9, tzinfo=UTC), datetime(2024, 3, 3, 9)),
        ("2024-03-03T09:00:00+02:00", datetime(2024, 3, 3, 7)),
        ("1999-01-01", datetime(1999, 1, 1)),
        ("9999-12-31", datetime(9999, 12, 31)),
    ],
)
def test_a_table_of_the_events_up_to_a_moment_is_what_duckdb_makes_of_them(
    shop: fh.Lake, moment: Any, last: datetime
) -> None:
    land(shop, 9)  # no table has folded these
    assert ordered(shop.until(sums, moment), "k") == asked(shop, sums, SUMS, last)


def test_tables_of_tables_and_of_covered_days_follow(shop: fh.Lake) -> None:
    last = datetime(2024, 3, 3, 7)
    heads = [shop.head(one) for one in (sums, by_size, daily)]
    # by_size is behind sums: it is folded from the state of sums that it has folded
    assert ordered(shop.until(by_size, last), "rows") == asked(shop, sums, BY_SIZE, last, folded_by_size(shop))
    assert ordered(shop.until(daily, last), "day") == asked(shop, daily, DAILY, last)
    assert [shop.head(one) for one in (sums, by_size, daily)] == heads


def folded_by_size(lake: fh.Lake) -> int | None:
    """The snapshot of `sums` that `by_size` has folded."""
    head = lake.head(by_size)
    assert head is not None
    return position_of(head)[sums.name]


def test_as_of_is_what_was_known_then_of_the_events_up_to_the_moment(shop: fh.Lake) -> None:
    last = datetime(2024, 3, 4, 12)
    found = {one.id: ordered(shop.until(sums, last, as_of=one.id), "k") for one in shop.history(sums)}
    assert found == {one: asked(shop, sums, SUMS, last, one) for one in found}
    assert len({json.dumps(rows) for rows in found.values()}) == len(found) == 4


def test_a_stream_is_filtered(shop: fh.Lake) -> None:
    rows = shop.until(events, "2024-03-02")
    assert 0 < rows.num_rows < shop.count(events)
    assert max(rows["at"].to_pylist()) < datetime(2024, 3, 3)


versions = fh.stream(
    "u.versions",
    schema={
        "id": "string", "k": "string", "at": "timestamp", "n": "long", "seq": "long",
        "code": "uuid", "tags": "map<string, int>", "parts": "list<struct<x: double>>",
    },
    keys="k", event_id="id", sequence_by="seq", event_time="at",
)  # fmt: skip
by_key = fh.table("u.by_key", source=versions, keys="k", fold=fh.fold(n=fh.total("n"), rows=fh.count()))
LAST_DELIVERIES = """select * from (
select *, row_number() over (partition by coalesce(id, seq::text) order by seq desc) as r from versions
) where r = 1 and "at" <= $last"""


@pytest.mark.parametrize("seed", range(3))
def test_the_last_delivery_of_an_event_counts_even_if_an_earlier_one_is_up_to_the_moment(
    lake: fh.Lake, seed: int
) -> None:
    chance = random.Random(seed)
    for batch in range(3):
        rows = [
            {
                "id": chance.choice(["e1", "e2", "e3", "e4", "e5", None]), "k": chance.choice("ab"),
                "at": chance.choice([None, *(FIRST + timedelta(hours=12 * half) for half in range(8))]),
                "n": chance.randrange(50), "seq": batch * 10 + number,
                "code": uuid.UUID(int=number).bytes, "tags": {"a": number}, "parts": [{"x": 0.5}, None],
            }
            for number in range(7)
        ]  # fmt: skip
        lake.append(versions, rows)
        lake.refresh(by_key)
    given = lake.to_arrow(versions)
    for day in range(1, 6):
        last = datetime(2024, 3, day, 23, 59, 59, 999_999)
        with duckdb.connect() as db:
            db.register("versions", given.select(["id", "k", "at", "n", "seq"]))
            query = f"with e as ({LAST_DELIVERIES}) select k, sum(n)::bigint n, count(*) as rows from e group by k"
            folded = db.sql(f"{query} order by k", params={"last": last}).to_arrow_table().to_pylist()
            events = db.sql(f"select seq from ({LAST_DELIVERIES})", params={"last": last}).fetchall()
        moment = last.date()
        assert ordered(lake.until(by_key, moment), "k") == folded
        found = lake.until(versions, moment)
        assert found.to_pylist() == [row for row in given.to_pylist() if (row["seq"],) in events]
        assert found.schema == given.schema


def test_a_stream_from_before_its_event_id_has_each_row_as_an_event(lake: fh.Lake) -> None:
    before = fh.stream("u.sent", schema={"k": "string", "day": "date"}, event_time="day")
    after = fh.stream("u.sent", schema={"k": "string", "day": "date", "id": "long"}, event_id="id", event_time="day")
    rows = [{"k": "a", "day": date(2024, 3, 1)}, {"k": "a", "day": date(2024, 3, 2)}]
    first = lake.append(before, rows).snapshot_id
    lake.append(after, [{**row, "id": 1} for row in rows])
    assert lake.until(after, "2024-03-02", as_of=first).to_pylist() == rows
    assert lake.until(after, "2024-03-01").to_pylist() == [{**rows[0], "id": None}]


def test_a_column_is_named_where_no_stream_names_one(lake: fh.Lake) -> None:
    noon = datetime(2024, 3, 1, 12, tzinfo=UTC)
    lake.append(timeless, [{"k": "a", "happened": noon + timedelta(hours=hour), "n": 1} for hour in range(-3, 3)])
    lake.refresh(counts)
    with pytest.raises(fh.InvalidCall, match=r"u\.timeless declares no event_time"):
        lake.until(counts, noon)
    assert lake.until(counts, noon, column="happened").to_pylist() == [{"k": "a", "n": 4}]
    with pytest.raises(fh.InvalidCall, match=r"u\.timeless\.n is int64"):
        lake.until(counts, noon, column="n")
    with pytest.raises(fh.InvalidCall, match="give a day such as"):
        lake.until(counts, "yesterday")


@pytest.mark.parametrize(("table", "expired"), [(sums, events), (by_size, sums)], ids=["stream", "table"])
def test_an_expired_position_is_said(shop: fh.Lake, table: fh.Table, expired: fh.Stream | fh.Table) -> None:
    shop.expire(expired, older_than=timedelta(), in_use=timedelta(), keep_last=1)
    first = shop.history(table)[-1].id
    with pytest.raises(fh.UnknownSnapshot, match=rf"{table.name} was folded from snapshot .* of {expired.name}, which"):
        shop.until(table, "2024-03-02", as_of=first)
    assert shop.until(table, "2024-03-02").num_rows


def test_a_column_that_no_stream_has_is_refused(shop: fh.Lake) -> None:
    """A typing error would be answered by another column, as if none had been named."""
    for source in (events, sums, by_size):
        with pytest.raises(fh.InvalidCall, match=r"no stream has the column 'att'.*u\.events has day, at, k"):
            shop.until(source, "2024-03-02", column="att")


def test_a_time_is_refused_for_a_column_of_days(shop: fh.Lake) -> None:
    assert shop.until(sums, "2024-03-02", column="day").num_rows > 0
    with pytest.raises(fh.InvalidCall, match=r"u\.events\.day has days; give a day"):
        shop.until(sums, "2024-03-02T12:00:00", column="day")


def test_another_declaration_is_refused(shop: fh.Lake) -> None:
    other = fh.table("u.sums", source=events, fold=fh.fold(n=fh.maximum("n")))
    with pytest.raises(fh.DefinitionChanged, match=r"u\.sums was folded under another declaration"):
        shop.until(other, "2024-03-02")


def test_two_states_of_one_stream_are_refused(lake: fh.Lake) -> None:
    land(lake, 1)
    lake.refresh(sums)
    land(lake, 2)
    both = fh.table(
        "u.both", source=[sums, events], keys="k", rows=lambda sums, events: sums, fold=fh.fold(n=fh.total("n"))
    )
    metadata = lake.load(events).metadata
    here = Position(str(metadata.table_uuid), metadata.current_snapshot_id)
    folded = Folded(lake.load, None, Until.of("2024-03-02"), {events.name: replace(here, snapshot_id=1)})  # type: ignore[arg-type]
    with pytest.raises(fh.InvalidCall, match=r"different states of u\.events"):
        folded.fold(events, here, both.name)


def test_the_command_takes_both_moments_and_leaves_nothing_behind(
    shop: fh.Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = types.ModuleType("shop_until")
    module.__dict__.update(tables=[sums, by_size, daily])
    monkeypatch.setitem(sys.modules, "shop_until", module)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))

    def show(*words: str) -> Any:
        given = ["show", *words, "--json", "--lake", str(tmp_path / "lake"), "--declared-in", "shop_until"]
        return CliRunner().invoke(main, given)

    first = shop.history(sums)[-1].id
    said = show("u.sums", "--until", "2024-03-03", "--as-of", str(first))
    assert said.exit_code == 0, said.output
    last = datetime(2024, 3, 3, 23, 59, 59, 999_999)
    assert [json.loads(line) for line in said.stdout.splitlines()] == asked(shop, sums, SUMS, last, first)
    assert show("u.sums", "--until", "at=2024-03-03").exit_code == 0
    assert show("u.events", "--until", "2024-03-01").exit_code == 0
    assert show("u.sums", "--until", "soon").exit_code == 2
    assert os.listdir(temporary) == []


def renamed(lake: fh.Lake, *renames: tuple[str, str]) -> None:
    """Rename columns of the stream as another tool does, one after the other: its snapshot stays the same one."""
    for old, new in renames:
        with lake.load("u.sent").update_schema() as update:
            update.rename_column(old, new)


def test_columns_that_changed_their_names_are_those_that_the_table_was_folded_from(lake: fh.Lake) -> None:
    """The table was folded after they did, and the newest events came before."""
    sent = fh.stream("u.sent", schema={"k": "string", "day": "date", "n": "int", "m": "int"}, event_time="day")
    folded = fh.table("u.folded", source=sent, keys="k", fold=fh.fold(n=fh.total("n")))
    lake.append(sent, [{"k": "a", "day": date(2024, 3, 1), "n": 5, "m": 1}])
    lake.refresh(folded)
    assert lake.until(folded, "2024-03-01").to_pylist() == [{"k": "a", "n": 5}]
    renamed(lake, ("n", "other"), ("m", "n"), ("other", "m"))
    assert lake.until(folded, "2024-03-01").to_pylist() == [{"k": "a", "n": 5}]
    lake.rebuild(folded)
    assert lake.to_arrow(folded).to_pylist() == [{"k": "a", "n": 1}]
    assert lake.until(folded, "2024-03-01").to_pylist() == [{"k": "a", "n": 1}]


def test_a_column_that_was_widened_since_the_newest_events_has_its_type(lake: fh.Lake) -> None:
    sent = fh.stream("u.sent", schema={"k": "string", "day": "date", "n": "int"}, event_time="day")
    lake.append(sent, [{"k": "a", "day": date(2024, 3, 1), "n": 5}])
    wide = fh.stream("u.sent", schema={"k": "string", "day": "date", "n": "long"}, event_time="day")
    lake.evolve(wide)
    folded = fh.table("u.folded", source=wide, keys="k", fold=fh.fold(n=fh.maximum("n")))
    lake.refresh(folded)
    assert lake.until(folded, "2024-03-01").schema == lake.to_arrow(folded).schema


def test_ties_are_decided_by_the_fields_in_the_order_that_the_table_was_folded_with(lake: fh.Lake) -> None:
    types = {"k": "string", "day": "date", "t": "int", "v": "struct<one: int, two: int>"}
    sent = fh.stream("u.sent", schema=types, sequence_by="t", event_time="day")
    folded = fh.table("u.folded", source=sent, keys="k", fold=fh.fold(v=fh.latest("v")))
    for one, two in ((1, 9), (2, 5)):
        lake.append(sent, [{"k": "a", "day": date(2024, 3, 1), "t": 1, "v": {"one": one, "two": two}}])
    with lake.load(sent).update_schema() as update:
        update.move_before("v.two", "v.one")
    lake.refresh(folded)
    assert lake.to_arrow(folded)["v"].to_pylist() == [{"two": 9, "one": 1}]
    assert lake.until(folded, "2024-03-01")["v"].to_pylist() == [{"two": 9, "one": 1}]


def test_two_tables_that_read_other_columns_under_one_name_are_refused(lake: fh.Lake) -> None:
    """They stand at one snapshot of the stream, between which another tool gave two columns each other's names."""
    sent = fh.stream("u.sent", schema={"k": "string", "day": "date", "n": "int", "m": "int"}, event_time="day")
    lake.append(sent, [{"k": "a", "day": date(2024, 3, 1), "n": 5, "m": 1}])
    schemas = [lake.load(sent).schema().schema_id]
    renamed(lake, ("n", "other"), ("m", "n"), ("other", "m"))
    schemas.append(lake.load(sent).schema().schema_id)
    metadata = lake.load(sent).metadata
    one, two = (Position(str(metadata.table_uuid), metadata.current_snapshot_id, schema) for schema in schemas)
    folded = Folded(lake.load, None, Until.of("2024-03-02"), {"u.sent": one})  # type: ignore[arg-type]
    folded.fold(sent, one, "u.both")
    with pytest.raises(fh.InvalidCall, match=r"different states of u\.sent"):
        folded.fold(sent, two, "u.both")
