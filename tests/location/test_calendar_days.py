"""Partitions that are not one day each are refused: a week would be shown as materialized with one day of it folded."""

from datetime import datetime
from typing import Any

import dagster as dg
import pytest

import foldhouse as fh
from foldhouse.dagster import commit_sensor, fold_asset, landing_asset, landing_sensor, stream_asset
from tests.location.fakes import DAILY, FORMAT, FakeLake, daily_orders, days, orders, range_tags, rejected

NO_DAYS = {
    "weeks": dg.WeeklyPartitionsDefinition("2024-03-03"),
    "months": dg.MonthlyPartitionsDefinition("2024-03-01"),
    "hours": dg.HourlyPartitionsDefinition("2024-03-03-00:00"),
    "every other day": dg.TimeWindowPartitionsDefinition(
        start="2024-03-01", cron_schedule="0 0 */2 * *", fmt="%Y-%m-%d"
    ),
    "days from six": dg.DailyPartitionsDefinition("2024-03-01", hour_offset=6),
    "days before months": dg.DailyPartitionsDefinition("2024-01-03", fmt="%Y-%d-%m"),
    "days without dashes": dg.DailyPartitionsDefinition("20240303", fmt="%Y%m%d"),
    "names": dg.StaticPartitionsDefinition(["2024-03-03"]),
    "names that come later": dg.DynamicPartitionsDefinition(name="days"),
    "two dimensions": dg.MultiPartitionsDefinition({"day": DAILY, "shop": dg.StaticPartitionsDefinition(["a"])}),
}


@pytest.mark.parametrize("partitions_def", NO_DAYS.values(), ids=NO_DAYS)
def test_partitions_that_are_not_one_day_each_are_refused_by_all_that_take_days(partitions_def: Any) -> None:
    with pytest.raises(fh.DefinitionError, match=r"^shop\.daily_orders: .*give dg\.DailyPartitionsDefinition"):
        fold_asset(daily_orders, partitions_def=partitions_def)
    with pytest.raises(fh.DefinitionError, match=r"^shop\.orders: "):
        stream_asset(orders, lambda day: [], partitions_def=partitions_def)
    with pytest.raises(fh.DefinitionError, match=r"^shop\.orders: "):
        landing_asset(orders, rejected, FORMAT, partitions_def=partitions_def)
    with pytest.raises(fh.DefinitionError, match=r"^landing: "):
        landing_sensor("landing", job_name="shop", format=FORMAT, partitions_def=partitions_def)
    with pytest.raises(fh.DefinitionError, match=r"^shop\.daily_orders: "):
        commit_sensor("commits", [daily_orders], partitions_def={daily_orders.name: partitions_def})
    with pytest.raises(fh.DefinitionError, match=r"^commits: "):
        commit_sensor("commits", [daily_orders], partitions_def=partitions_def)


@pytest.mark.parametrize(
    "partitions_def",
    [
        dg.DailyPartitionsDefinition("2024-03-01", timezone="Europe/Berlin"),
        dg.DailyPartitionsDefinition("2024-03-01", end_date="2024-03-09", end_offset=3),
        dg.DailyPartitionsDefinition(datetime(2024, 2, 29, 12), exclusions=[datetime(2024, 3, 4)]),
    ],
)
def test_days_of_any_zone_end_and_exclusion_are_taken(partitions_def: dg.DailyPartitionsDefinition) -> None:
    lake = FakeLake()
    asset = fold_asset(daily_orders, partitions_def=partitions_def)
    tags = range_tags(days(3, 5))
    assert dg.materialize([asset], resources={"lake": lake}, tags=tags).success
    asked = [day for day in days(3, 5) if partitions_def.has_partition_key(str(day))]
    assert lake.calls == [("backfill shop.daily_orders", tuple(asked))]


def test_a_run_of_an_asset_that_was_given_other_partitions_says_which_of_them_is_no_day() -> None:
    hours = dg.HourlyPartitionsDefinition("2024-03-03-00:00")
    asset = fold_asset(daily_orders, partitions_def=DAILY)
    moved = list(dg.map_asset_specs(lambda spec: spec.replace_attributes(partitions_def=hours), [asset]))
    lake = FakeLake()
    with pytest.raises(dg.Failure, match="the partition '2024-03-03-04:00' is not a day"):
        dg.materialize(moved, resources={"lake": lake}, partition_key="2024-03-03-04:00")
    assert lake.calls == []
