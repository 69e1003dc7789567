"""A full recompute gives the table that following the changes gives, and commits only the rows that differ."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from laws.rules import FULLY

import foldhouse as fh

events = fh.stream(
    "full.events",
    schema={"key": "string", "at": "timestamp", "seq": "long", "amount": "decimal(12,2)", "gone": "boolean"},
    keys="key",
    sequence_by="seq",
    event_time="at",
    partition_by="day(at)",
)
sums = fh.table(
    "full.sums",
    source=events,
    keys="key",
    fold=fh.fold(amount=fh.total("amount"), largest=fh.maximum("amount"), events=fh.count()),
)
newest = fh.table("full.newest", source=events, fold=fh.latest(columns=["amount"], delete_when="gone"))
in_buckets = fh.table("full.in_buckets", source=events, keys="key", fold=fh.fold(n=fh.count()), buckets=8)
SECOND, THIRD = datetime(2024, 1, 2, 9), datetime(2024, 1, 3, 9)


def batch(at: datetime, rows: Sequence[tuple[str | None, int | None, str, bool]]) -> pa.Table:
    keys, sequence, amounts, gone = zip(*rows, strict=True) if rows else ((), (), (), ())
    types = pa.schema(
        [
            ("key", pa.string()),
            ("at", pa.timestamp("us")),
            ("seq", pa.int64()),
            ("amount", pa.decimal128(12, 2)),
            ("gone", pa.bool_()),
        ]
    )
    columns = {"key": keys, "at": [at] * len(rows), "seq": sequence, "amount": map(Decimal, amounts), "gone": gone}
    return pa.table({name: list(values) for name, values in columns.items()}, types)


@pytest.fixture
def full(lake: fh.Lake) -> fh.Lake:
    lake.tuning = fh.Tuning(**FULLY)
    many = [(f"k{n}", n, "1.00", False) for n in range(40)]
    lake.append(events, batch(SECOND, [*many, (None, 1, "5.00", False), ("a", None, "9.00", False)]))
    lake.append(events, batch(THIRD, [("a", 1, "2.00", False), ("a", 2, "3.00", False), ("b", 3, "4.00", False)]))
    return lake


def assert_as_followed(lake: fh.Lake, table: fh.Table) -> fh.Refreshed:
    """Refresh with a full recompute, and again from the same earlier commit by following the changes."""
    full = lake.refresh(table)
    assert full.full_recompute
    assert "full_recompute=True" in repr(full)
    computed, head = lake.to_arrow(table), lake.head(table)
    lake.rollback(table, to=lake.history(table)[1].id)
    lake.tuning = fh.Tuning()
    followed = lake.refresh(table)
    lake.tuning = fh.Tuning(**FULLY)
    assert not followed.full_recompute
    assert "full_recompute" not in repr(followed)
    order = [(name, "ascending") for name in table.keys]
    assert computed.sort_by(order).equals(lake.to_arrow(table).sort_by(order))
    assert (full.rows, full.rows_written, full.rows_deleted) == (
        followed.rows,
        followed.rows_written,
        followed.rows_deleted,
    )
    said, other = (lake.load(table).snapshot_by_id(id) for id in (head.id, followed.snapshot_id))
    for name in ("foldhouse.null-key-rows", "foldhouse.null-sequence-rows", "foldhouse.rows"):
        assert said.summary.additional_properties.get(name) == other.summary.additional_properties.get(name), name
    return full


@pytest.mark.parametrize("table", [sums, newest, in_buckets], ids=lambda table: table.name)
def test_it_writes_only_the_rows_that_differ(full: fh.Lake, table: fh.Table) -> None:
    assert not full.refresh(table).full_recompute, "there is nothing yet that could be compared"
    full.append(events, batch(THIRD, [("a", 9, "7.00", False), ("c", 1, "1.00", False)]))
    done = assert_as_followed(full, table)
    assert (done.rows_written, done.rows_deleted) == (2, 1)
    assert done.rows_read == 47


@pytest.mark.parametrize("table", [sums, newest, in_buckets], ids=lambda table: table.name)
def test_keys_without_rows_disappear_with_their_buckets(full: fh.Lake, table: fh.Table) -> None:
    full.refresh(table)
    full.replace(events, batch(SECOND, [("k7", 7, "2.00", False)]), partitions=[SECOND.date()])
    done = assert_as_followed(full, table)
    assert done.rows == 3


@pytest.mark.parametrize("table", [sums, newest, in_buckets], ids=lambda table: table.name)
def test_a_source_without_rows_empties_the_table(full: fh.Lake, table: fh.Table) -> None:
    full.refresh(table)
    full.replace(events, batch(SECOND, []), partitions=[SECOND.date(), THIRD.date()])
    assert assert_as_followed(full, table).rows == full.count(table) == 0


def test_rows_without_a_key_or_a_sequence_are_counted_once(full: fh.Lake) -> None:
    first = full.refresh(newest)
    assert (first.null_key_rows, first.null_sequence_rows) == (1, 1)
    full.append(events, batch(THIRD, [(None, 5, "1.00", False)]))
    assert_as_followed(full, newest)
    full.refresh(newest)
    full.append(events, batch(THIRD, [("z", 5, "1.00", False)]))
    done = full.refresh(newest)
    assert (done.null_key_rows, done.null_sequence_rows) == (2, 1), "all rows are seen"


def test_a_later_event_older_than_a_delete_does_not_bring_its_key_back(full: fh.Lake) -> None:
    full.refresh(newest)
    full.append(events, batch(THIRD, [("a", 9, "0.00", True)]))
    assert_as_followed(full, newest)
    full.tuning = fh.Tuning()
    full.append(events, batch(THIRD, [("a", 8, "6.00", False)]))
    full.refresh(newest)
    assert "a" not in full.to_arrow(newest)["key"].to_pylist()


def test_it_happens_where_changes_cost_more(lake: fh.Lake) -> None:
    lake.tuning = fh.Tuning(full_recompute_least_rows=10)
    rows = [(f"k{n}", n, "1.00", False) for n in range(40)]
    lake.append(events, batch(SECOND, rows))
    assert not lake.refresh(sums).full_recompute
    lake.append(events, batch(THIRD, rows[:30]))
    assert not lake.refresh(sums).full_recompute, "30 rows are to be folded, of 70, and 40 stored"
    lake.replace(events, batch(SECOND, rows[1:]), partitions=[SECOND.date()])
    assert lake.refresh(sums).full_recompute, "79 rows are, of 69, and 40 stored"
    assert lake.to_arrow(sums).num_rows == 40
    lake.append(events, batch(SECOND, [("k1", 50, "3.00", False)]))
    again = lake.refresh(sums)
    assert not again.full_recompute
    assert again.rows_written == 1


@pytest.mark.parametrize(
    ("turns", "is_full"),
    [
        (2, {"full.newest": True, "full.sums": True, "full.in_buckets": False}),
        (4, {"full.newest": True, "full.sums": False, "full.in_buckets": False}),
    ],
)
def test_rows_that_are_taken_back_and_cannot_be_subtracted_count_what_is_read_again(
    lake: fh.Lake, turns: int, is_full: dict[str, bool]
) -> None:
    """Each key loses its newest row, which `latest` published, and has `turns` others; a maximum may be any of them."""
    lake.tuning = fh.Tuning(full_recompute_least_rows=10)
    for turn in range(turns + 1):
        lake.append(events, batch(SECOND, [(f"k{n}", 10 * n + turn, f"{turn}.00", False) for n in range(40)]))
    tables = (newest, sums, in_buckets)
    for table in tables:
        lake.refresh(table)
    lake.rollback(events, to=lake.history(events)[1].id)
    assert {table.name: lake.refresh(table).full_recompute for table in tables} == is_full
    assert {str(one) for one in lake.to_arrow(newest)["amount"].to_pylist()} == {f"{turns - 1}.00"}
    assert {str(one) for one in lake.to_arrow(sums)["largest"].to_pylist()} == {f"{turns - 1}.00"}


def test_few_rows_that_are_taken_back_are_followed(lake: fh.Lake) -> None:
    lake.tuning = fh.Tuning(full_recompute_least_rows=10)
    lake.append(events, batch(SECOND, [(f"k{n}", n, "1.00", False) for n in range(40)]))
    lake.append(events, batch(THIRD, [(f"k{n}", 50, "2.00", False) for n in range(3)]))
    lake.refresh(newest)
    lake.rollback(events, to=lake.history(events)[1].id)
    done = lake.refresh(newest)
    assert (done.full_recompute, done.rows_written) == (False, 3)


def test_days_that_are_not_covered_stay_out(lake: fh.Lake) -> None:
    sales = fh.stream(
        "full.sales", schema={"day": "date", "key": "string", "n": "long"}, partition_by="day", event_time="day"
    )
    days = fh.table("full.days", source=sales, keys=["day", "key"], fold=fh.fold(n=fh.total("n")), partition_by="day")
    lake.tuning = fh.Tuning(**FULLY)
    one, other = date(2024, 1, 2), date(2024, 1, 3)
    lake.append(sales, [{"day": one, "key": "a", "n": 1}, {"day": other, "key": "b", "n": 2}])
    lake.backfill(days, [one])
    lake.append(sales, [{"day": one, "key": "a", "n": 5}, {"day": other, "key": "b", "n": 6}])
    done = lake.refresh(days)
    assert done.full_recompute
    assert lake.to_arrow(days).to_pylist()[0]["n"] == 6
    assert lake.to_arrow(days)["day"].to_pylist() == [one]
    lake.append(sales, [{"day": one, "key": "c", "n": 5}])
    both = lake.backfill(days, [one, other])
    assert both.full_recompute
    assert sorted(lake.to_arrow(days).select(["key", "n"]).to_pylist(), key=str) == [
        {"key": "a", "n": 6},
        {"key": "b", "n": 8},
        {"key": "c", "n": 5},
    ]
