"""The Dagster instance that foldhouse ships: three runs, one per table, two of backfills, live runs first."""

from datetime import UTC, datetime

import dagster as dg
import pytest

from foldhouse.cli.template import FILES
from foldhouse.dagster import fold_asset, landing_asset, stream_asset
from foldhouse.dagster.foreground import instance_of
from tests.conftest import ROOT
from tests.location.fakes import (
    DAILY,
    FORMAT,
    FakeLake,
    customers,
    daily_orders,
    days,
    orders,
    range_tags,
    rejected,
    tick_of,
)

SHIPPED = {"repository": (ROOT / "dagster.yaml").read_text(), "init": FILES["dagster.yaml"]}


def test_a_new_project_has_the_instance_of_the_repository():
    repository, init = (text.split("\n", 1)[1] for text in SHIPPED.values())
    assert repository == init


@pytest.mark.parametrize("shipped", SHIPPED)
def test_an_instance_loads_it_and_says_what_it_says(shipped, tmp_path):
    (tmp_path / "dagster.yaml").write_text(SHIPPED[shipped])
    with instance_of(tmp_path) as instance:
        assert not instance.telemetry_enabled
        assert not instance.nux_enabled
        queue = instance.get_concurrency_config()
        assert queue.run_queue_config.max_concurrent_runs == 3
        assert list(queue.run_queue_config.tag_concurrency_limits) == [{"key": "dagster/backfill", "limit": 2}]
        assert (queue.pool_config.default_pool_limit, queue.pool_config.pool_granularity.value) == (1, "run")
        assert (instance.run_retries_enabled, instance.run_retries_max_retries) == (True, 1)
        assert not instance.run_retries_retry_on_asset_or_op_failure
        assert instance.run_monitoring_enabled
        assert instance.run_monitoring_max_runtime_seconds == 86_400
        assert type(instance.event_log_storage).__name__ == "EventLog"
        assert instance.get_settings("retention") == {"sensor": {"purge_after_days": {"skipped": 1}}}


def test_each_table_and_stream_has_a_pool_of_its_name():
    assets = [
        fold_asset(customers),
        fold_asset(daily_orders, partitions_def=DAILY),
        stream_asset(orders, lambda day: None, partitions_def=DAILY),
        landing_asset(orders, rejected, FORMAT, partitions_def=DAILY),
    ]
    pools = [sorted(one.node_def.pools) for one in assets]
    assert pools == [["shop.customers"], ["shop.daily_orders"], ["shop.orders"], ["shop.orders"]]


def test_a_backfill_is_one_run_or_runs_of_so_many_days_between_which_others_go_first():
    for days_per_run, expected in ((None, None), (7, 7)):
        for asset in (
            fold_asset(daily_orders, partitions_def=DAILY, days_per_run=days_per_run),
            stream_asset(orders, lambda day: None, partitions_def=DAILY, days_per_run=days_per_run),
            landing_asset(orders, rejected, FORMAT, partitions_def=DAILY, days_per_run=days_per_run),
        ):
            assert asset.backfill_policy.max_partitions_per_run == expected
    asset, lake = fold_asset(daily_orders, partitions_def=DAILY, days_per_run=2), FakeLake()
    assert dg.materialize([asset], resources={"lake": lake}, tags=range_tags(days(4, 9))).success
    assert lake.calls == [("backfill shop.daily_orders", tuple(days(4, 9)))]  # a run by hand takes the days it is given


def test_a_schedule_of_a_project_has_the_priority_of_live_runs():
    from definitions import defs

    schedule = defs.resolve_schedule_def("shop_daily")
    when = datetime.now(UTC).replace(hour=6, minute=0, second=0, microsecond=0)
    told = tick_of(schedule, defs, when)
    assert told.run_requests, told.skip_message
    [request] = told.run_requests
    assert request.tags["dagster/priority"] == "1"
