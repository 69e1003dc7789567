"""The shop and the wallet on generated weeks: in whatever order days land, DuckDB over the raw events says the same."""

from __future__ import annotations

import random
from datetime import date, timedelta

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import shop_oracle
from laws.amount import share
from oracle import assert_same

import foldhouse as fh
from assets import shop, wallet
from examples import shop_days

pytestmark = pytest.mark.spark

MONDAY = date(2024, 3, 4)
WEEKS = [MONDAY + timedelta(days=number) for number in range(21)]
THURSDAY = MONDAY + timedelta(days=3)
SOURCES = {
    shop.order_events: shop_days.order_events,
    shop.payments: shop_days.payments,
    wallet.movements: shop_days.movements,
}
TABLES = (*shop.TABLES, wallet.balances)

Streams = dict[str, pa.Table]
"""The last words of the streams' names -> events."""


def generated(day: date, seed: int = shop.SEED) -> Streams:
    return {stream.name.split(".")[1]: of_day(day, MONDAY, seed) for stream, of_day in SOURCES.items()}


def together(days: list[Streams]) -> Streams:
    return {name: pa.concat_tables([day[name] for day in days]) for name in days[0]}


def land(lake: fh.Lake, events: Streams, days: list[date]) -> None:
    for stream in SOURCES:
        lake.replace(stream, events[stream.name.split(".")[1]], partitions=days)


def fold(lake: fh.Lake, days: list[date] | None = None) -> dict[str, fh.Refreshed]:
    return {
        table.name: lake.backfill(table, days or WEEKS) if table.partition_by else lake.refresh(table)
        for table in TABLES
    }


def assert_equals_duckdb(lake: fh.Lake, events: Streams) -> None:
    for name, expected in shop_oracle.expected(events).items():
        assert_same(lake.to_arrow(name), expected, shop_oracle.KEYS[name])


@pytest.mark.parametrize("seed", share([1, 2], 2))
def test_weeks_that_land_in_random_order_equal_duckdb_all_the_way(spark_lake, seed: int) -> None:
    land_in_random_order(spark_lake(), seed, days_at_once=6)


@pytest.mark.heavy
@pytest.mark.parametrize("seed", share([3, 4], 2))
def test_in_tasks_of_spark_it_is_the_same(spark_lake, seed: int) -> None:
    land_in_random_order(spark_lake(in_process_rows=-1), seed, days_at_once=11)


def land_in_random_order(lake: fh.Lake, seed: int, days_at_once: int) -> None:
    days, landed = WEEKS[:], []
    random.Random(seed).shuffle(days)
    for start in range(0, len(days), days_at_once):
        some = days[start : start + days_at_once]
        chunk = [generated(day, seed) for day in some]
        land(lake, together(chunk), some)
        fold(lake)
        landed += chunk
        assert_equals_duckdb(lake, together(landed))
    assert wallet.disagreements(lake) == []


@pytest.mark.slow
def test_a_day_that_lands_again_otherwise_replaces_what_it_said(spark_lake) -> None:
    """The other seed's events bear the same ids with other contents, as corrected deliveries do."""
    lake = spark_lake()
    events = {day: generated(day) for day in WEEKS[:8]}
    land(lake, together(list(events.values())), list(events))
    fold(lake)
    for restated in (
        {name: some.slice(3, some.num_rows - 9) for name, some in events[THURSDAY].items()},
        generated(THURSDAY, 4),
    ):
        events[THURSDAY] = restated
        land(lake, restated, [THURSDAY])
        fold(lake)
        assert_equals_duckdb(lake, together(list(events.values())))


@pytest.fixture
def thursday(spark_lake) -> tuple[fh.Lake, dict[str, fh.Refreshed], dict[str, fh.Refreshed]]:
    """A lake after Thursday, and what the folds before and of Thursday came to."""
    lake = spark_lake()
    land(lake, together([generated(day) for day in WEEKS[:3]]), WEEKS[:3])
    before = fold(lake)
    land(lake, generated(THURSDAY), [THURSDAY])
    return lake, before, fold(lake)


def test_a_refund_that_lands_on_thursday_corrects_monday_and_the_changes_say_so(thursday) -> None:
    lake, before, after = thursday
    events = pl.from_arrow(generated(THURSDAY)["order_events"])
    [refund] = events.filter(pl.col("status") == "refunded", pl.col("ordered_at").dt.date() == MONDAY).to_dicts()
    name = shop.revenue_by_day.name
    changes = pl.from_arrow(lake.changes(name, after=before[name].snapshot_id)).filter(pl.col("day") == MONDAY)
    old, new = changes.to_dicts()
    assert (old["_change_type"], new["_change_type"]) == ("UPDATE_BEFORE", "UPDATE_AFTER")
    assert {old["_commit_snapshot_id"], new["_commit_snapshot_id"]} == {after[name].snapshot_id}
    assert new["country"] == refund["country"]
    assert new["refunded"] - old["refunded"] == old["revenue"] - new["revenue"] == refund["refunded"]
    assert MONDAY in after[name].partitions
    order = lake.to_arrow(shop.order_payments).filter(pc.field("order_id") == refund["order_id"]).to_pylist()[0]
    assert (order["status"], order["paid"]) == ("refunded", refund["amount"] - refund["refunded"])


def test_a_stream_that_is_rolled_back_takes_its_refund_back(thursday) -> None:
    lake, before, _ = thursday
    for stream in SOURCES:
        lake.rollback(stream, to=lake.history(stream)[1].id)
    fold(lake)
    for table in TABLES:
        then = lake.to_arrow(table, as_of=before[table.name].snapshot_id)
        assert_same(lake.to_arrow(table), then, shop_oracle.KEYS[table.name])


def test_events_that_are_delivered_again_change_nothing(thursday) -> None:
    lake, *_ = thursday
    seen = {table.name: lake.to_arrow(table) for table in TABLES}
    friday = WEEKS[4]
    again = {}
    for name, some in generated(THURSDAY).items():
        place = some.schema.get_field_index("landed_at")
        later = pc.add(some["landed_at"], pa.scalar(timedelta(days=1)))
        again[name] = some.set_column(place, "landed_at", later.cast(pa.timestamp("us")))
    land(lake, again, [friday])
    done = fold(lake)
    assert all(done[name].rows_written == 0 for name in ("shop.revenue_by_day", "shop.order_payments"))
    for name, rows in seen.items():
        assert_same(lake.to_arrow(name), rows, shop_oracle.KEYS[name])
