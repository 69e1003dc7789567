import dagster as dg
import pytest

import foldhouse as fh
from foldhouse.dagster import fold_asset, landing_asset, stream_asset
from tests.location.fakes import (
    DAILY,
    FORMAT,
    FakeFolder,
    FakeLake,
    customers,
    daily_orders,
    days,
    orders,
    range_tags,
    rejected,
)

DAILY_ORDERS = dg.AssetKey(["shop", "daily_orders"])


def run(asset, lake, instance=None, asked=None, **options):
    tags = range_tags(asked) if asked else None
    return dg.materialize([asset], resources={"lake": lake}, instance=instance, tags=tags, **options)


def materializations(result):
    return [event.step_materialization_data.materialization for event in result.get_asset_materialization_events()]


def value(materialization, name):
    return materialization.metadata[name].value


def test_a_table_is_an_asset_by_its_dotted_name_and_depends_on_its_source():
    spec = fold_asset(daily_orders, partitions_def=DAILY).get_asset_spec()
    assert spec.key == DAILY_ORDERS
    assert [dep.asset_key for dep in spec.deps] == [dg.AssetKey(["shop", "orders"])]
    assert (spec.group_name, spec.kinds, spec.partitions_def) == ("shop", {"iceberg", "spark"}, DAILY)
    assert spec.description


def test_days_for_a_table_without_partition_by_are_refused():
    with pytest.raises(fh.DefinitionError, match=r"shop\.customers has no partition_by"):
        fold_asset(customers, partitions_def=DAILY)


@pytest.mark.parametrize("argument", ["days_per_commit", "days_per_run"])
@pytest.mark.parametrize("days", [-1, 0, 1.5, True, "7"])
def test_a_number_of_days_that_is_no_whole_number_from_1_is_refused_at_the_declaration(argument, days):
    given = {"partitions_def": DAILY, argument: days}
    for declare in (
        lambda: fold_asset(daily_orders, **given),
        lambda: landing_asset(orders, rejected, FORMAT, **given),
        lambda: stream_asset(orders, lambda day: None, **given),
    ):
        with pytest.raises(fh.DefinitionError, match=rf"orders: {argument} is .*{days}.*; give a whole number of days"):
            declare()


@pytest.mark.parametrize(
    "asset",
    [
        fold_asset(daily_orders, partitions_def=DAILY),
        landing_asset(orders, rejected, FORMAT, partitions_def=DAILY),
        stream_asset(orders, lambda day: None, partitions_def=DAILY),
    ],
    ids=["a table", "a landing", "a stream"],
)
def test_a_run_without_a_day_fails_in_words_if_there_are_days(asset, tmp_path):
    lake = FakeLake()
    with pytest.raises(dg.Failure, match=r"shop\.orders|shop\.daily_orders") as failed:
        dg.materialize([asset], resources={"lake": lake, "landing": FakeFolder(tmp_path)})
    assert "the run has no day, but what it materializes is partitioned by day; launch it for a day" in str(
        failed.value
    )
    assert lake.calls == []


def test_a_run_of_a_table_without_days_refreshes_it_and_says_what_it_came_to():
    lake = FakeLake()
    [only] = materializations(run(fold_asset(customers), lake))
    assert lake.calls == [("refresh shop.customers", ())]
    assert only.partition is None
    assert value(only, "dagster/row_count") == 7
    assert value(only, "rows_read") == 9
    assert value(only, "position") == {"shop.orders": "11"}


def test_a_snapshot_id_is_told_as_text_because_a_page_would_round_it():
    [only] = materializations(run(fold_asset(customers), FakeLake()))
    assert value(only, "snapshot_id") == str(2**62 + 1)


def test_a_range_run_folds_its_days_in_one_commit_and_reports_each_of_them():
    lake = FakeLake()
    asked = days(4, 9)
    told = materializations(run(fold_asset(daily_orders, partitions_def=DAILY), lake, asked=asked))
    assert lake.calls == [("backfill shop.daily_orders", tuple(asked))]
    assert [one.partition for one in told] == [str(day) for day in asked]
    assert [value(one, "dagster/partition_row_count") for one in told] == [day.day for day in asked]
    for name, expected in {"rows_written": 2, "rows_deleted": 1}.items():
        assert {value(one, name) for one in told} == {expected}
    assert [column.name for column in value(told[-1], "dagster/column_schema").columns] == ["day", "lines"]


def test_the_numbers_of_a_day_are_its_own_and_those_of_the_commit_are_apart():
    told = materializations(run(fold_asset(daily_orders, partitions_def=DAILY), FakeLake(), asked=days(4, 9)))
    numbers = {name for one in told for name, found in one.metadata.items() if isinstance(found.value, int | float)}
    assert numbers - {"committed"} == {"dagster/partition_row_count", "rows_written", "rows_deleted"}
    for one in told:
        commit = value(one, "commit")
        assert (commit["rows"], commit["rows_written"], commit["rows_read"], commit["files_read"]) == (70, 100, 9, 6)


def test_days_that_are_committed_in_parts_are_reported_while_the_run_goes_on():
    asset = fold_asset(daily_orders, partitions_def=DAILY, days_per_commit=2)
    seen = []
    with dg.DagsterInstance.ephemeral() as instance:

        class Watched(FakeLake):
            def backfill(self, table, partitions):
                counts = instance.get_materialized_partitions(DAILY_ORDERS)
                seen.append(sorted(counts))
                return super().backfill(table, partitions)

        told = materializations(run(asset, Watched(), instance, asked=days(3, 7)))
    assert [len(found) for found in seen] == [0, 2, 4]
    assert [one.partition for one in told] == [str(day) for day in days(3, 7)]  # and none of them twice
    assert {one.tags["dagster/data_version"] for one in told} == {"23"}


def test_a_run_of_one_day_folds_one_day():
    lake = FakeLake()
    result = run(fold_asset(daily_orders, partitions_def=DAILY), lake, partition_key="2024-03-04")
    assert lake.calls == [("backfill shop.daily_orders", tuple(days(4, 4)))]
    assert [one.partition for one in materializations(result)] == ["2024-03-04"]


def test_a_day_that_changed_without_being_asked_for_is_reported_too():
    [late] = days(2, 2)
    told = materializations(run(fold_asset(daily_orders, partitions_def=DAILY), FakeLake(late=late), asked=days(4, 5)))
    assert sorted(one.partition for one in told) == ["2024-03-02", "2024-03-04", "2024-03-05"]


def test_days_committed_before_a_failure_stay_green_and_the_others_are_failed():
    lake = FakeLake(fails_at=("backfill shop.daily_orders", days(7, 7)[0]))
    asset = fold_asset(daily_orders, partitions_def=DAILY, days_per_commit=2)
    with dg.DagsterInstance.ephemeral() as instance:
        assert not run(asset, lake, instance, asked=days(3, 8), raise_on_error=False).success
        statuses = instance.get_status_by_partition(DAILY_ORDERS, [str(day) for day in days(3, 8)], DAILY)
    green = [key for key, status in (statuses or {}).items() if status.value == "MATERIALIZED"]
    failed = [key for key, status in (statuses or {}).items() if status.value == "FAILED"]
    assert green == ["2024-03-03", "2024-03-04", "2024-03-05", "2024-03-06"]
    assert failed == ["2024-03-07", "2024-03-08"]


def test_a_run_that_commits_nothing_has_the_data_version_of_the_one_before():
    asset = fold_asset(customers)
    versions = [materializations(run(asset, FakeLake()))[0].tags["dagster/data_version"] for _ in range(2)]
    assert versions == [str(2**62 + 1)] * 2
