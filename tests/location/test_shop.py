"""The shop in Dagster: what the page sees of it, and a run over days."""

import json
import os
import subprocess
import sys
from collections import defaultdict
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path

import dagster as dg
import pytest

from assets import shop, wallet
from foldhouse.dagster import run_in_foreground
from tests.location.fakes import FakeLake, on_days, range_tags, tick_of

ROOT = Path(__file__).parents[2]
MONDAY, WEDNESDAY, THURSDAY = date(2010, 12, 6), date(2010, 12, 8), date(2010, 12, 9)
DAYS = dg.DailyPartitionsDefinition("2010-12-06", end_date="2010-12-13", timezone="UTC")
STREAMS = {"shop/order_events", "shop/payments"}
TABLES = {"shop/orders", "shop/revenue_by_day", "shop/order_payments"}


class Opened:
    """A lake as a resource."""

    def __init__(self, lake):
        self.lake = lake

    def open(self):
        return self.lake


@pytest.fixture(scope="module")
def defs():
    from definitions import defs

    return defs


def run(lake, first, last):
    assets = on_days([shop.landed_events, shop.landed_payments, *shop.folded], DAYS)
    asked = [date.fromordinal(day) for day in range(first.toordinal(), last.toordinal() + 1)]
    result = dg.materialize(assets, resources={"lake": lake}, tags=range_tags(asked))
    told = defaultdict(dict)
    for event in result.get_asset_materialization_events():
        one = event.step_materialization_data.materialization
        told[one.asset_key.to_user_string()][one.partition] = {key: value.value for key, value in one.metadata.items()}
    return told


def test_the_job_takes_all_shop_assets_and_a_range_of_days(defs):
    job = defs.resolve_job_def("shop")
    assert {key.to_user_string() for key in job.asset_layer.selected_asset_keys} == STREAMS | TABLES
    assert job.partitions_def == shop.days
    assert job.executor_def == dg.in_process_executor


def test_each_table_comes_after_all_of_its_sources(defs):
    specs = {spec.key.to_user_string(): spec for spec in defs.resolve_all_asset_specs()}
    deps = {name: {dep.asset_key.to_user_string() for dep in specs[name].deps} for name in TABLES}
    assert deps == {
        "shop/orders": {"shop/order_events"},
        "shop/revenue_by_day": {"shop/orders"},
        "shop/order_payments": {"shop/orders", "shop/payments"},
    }


def test_the_schedule_is_off_and_asks_for_the_day_before(defs):
    schedule = defs.resolve_schedule_def("shop_daily")
    assert schedule.default_status == dg.DefaultScheduleStatus.STOPPED
    when = datetime.combine(date.today(), time(7), UTC)
    [request] = tick_of(schedule, defs, when).run_requests
    assert (request.partition_key, request.run_key) == (str(when.date() - timedelta(days=1)),) * 2


def test_a_day_is_replaced_by_what_arrived_on_it_and_tells_its_events():
    lake = FakeLake()
    told = run(lake, MONDAY, WEDNESDAY)
    asked = (MONDAY, date(2010, 12, 7), WEDNESDAY)
    assert ("replace shop.order_events", asked) in lake.calls
    assert ("replace shop.payments", asked) in lake.calls
    of_day = shop.shop_days.order_events(MONDAY, shop.OPENED, shop.SEED)
    said = told["shop/order_events"]["2010-12-06"]
    assert (said["dagster/partition_row_count"], said["rows_added"]) == (of_day.num_rows, 4)
    assert list(told["shop/payments"]) == [str(day) for day in asked]


@pytest.mark.slow
@pytest.mark.spark
def test_a_run_of_thursday_lands_it_and_reports_the_monday_it_corrects(spark_lake):
    lake = Opened(spark_lake())
    told = run(lake, MONDAY, WEDNESDAY)
    assert list(told["shop/revenue_by_day"]) == ["2010-12-06", "2010-12-07", "2010-12-08"]
    before = lake.lake.to_arrow(shop.revenue_by_day)
    told = run(lake, THURSDAY, THURSDAY)
    assert list(told["shop/order_events"]) == ["2010-12-09"]
    changed = {row["day"] for row in lake.lake.changes(shop.revenue_by_day, after=_previous(lake.lake)).to_pylist()}
    assert set(told["shop/revenue_by_day"]) == {str(day) for day in changed | {THURSDAY}}
    assert min(changed) < THURSDAY
    assert not lake.lake.to_arrow(shop.revenue_by_day).equals(before)
    heads = {name: lake.lake.head(name) for name in lake.lake.tables()}
    run(lake, MONDAY, THURSDAY)
    assert {name: lake.lake.head(name) for name in lake.lake.tables()} == heads


def _previous(lake):
    return lake.history(shop.revenue_by_day)[1].id


@pytest.mark.slow
def test_foldhouse_backfill_takes_days_that_the_page_does_not_show_yet(tmp_path):
    """A function can be asked for any day; the page shows the last weeks until there are events."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FOLDHOUSE_")}
    environment |= {"FOLDHOUSE_LAKE": str(tmp_path / "lake"), "DAGSTER_HOME": str(tmp_path)}
    command = [sys.executable, "-c", "from foldhouse.cli import main; main()", "backfill", "wallet", "--json"]
    command += ["--from", "2024-03-06", "--to", "2024-03-07"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert {one["table"]: one["days"] for one in map(json.loads, done.stdout.splitlines())} == {
        "wallet.movements": 2,
        "wallet.balances": None,
    }


def test_foldhouse_backfill_takes_the_job_by_its_name(tmp_path, monkeypatch):
    monkeypatch.setenv("FOLDHOUSE_LAKE", str(tmp_path / "lake"))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    plans, told = [], []
    first = wallet.days.start.date()
    run_in_foreground(
        "wallet", first, first + timedelta(days=2), on_start=plans.append, on_partition=lambda *one: told.append(one)
    )
    assert plans == [{"wallet.movements": 3, "wallet.balances": 1}]
    assert ("wallet.movements", first) in told
    assert ("wallet.balances", None) in told
    assert os.path.exists(tmp_path / "lake" / "catalog.db")
