from collections import defaultdict
from dataclasses import replace

import dagster as dg
import pytest

import foldhouse as fh
from foldhouse.dagster import fold_asset, landing_asset
from foldhouse.landing import Limits
from resources.landing import LandingFolder
from tests.location import fakes
from tests.location.fakes import (
    DAILY,
    FORMAT,
    FakeFolder,
    FakeLake,
    customers,
    daily_orders,
    days,
    failing,
    orders,
    range_tags,
    rejected,
)

ORDERS, REJECTED = dg.AssetKey(["shop", "orders"]), dg.AssetKey(["shop", "rejected"])


@pytest.fixture
def folder(tmp_path):
    return FakeFolder(tmp_path)


def land(folder, lake, asked, instance=None, *, days_per_commit=31, raise_on_error=True, format=FORMAT):
    asset = landing_asset(orders, rejected, format, partitions_def=DAILY, days_per_commit=days_per_commit)
    resources = {"lake": lake, "landing": folder}
    return dg.materialize(
        [asset], resources=resources, tags=range_tags(asked), instance=instance, raise_on_error=raise_on_error
    )


def told(result):
    by_key = defaultdict(dict)
    for event in result.get_asset_materialization_events():
        materialization = event.step_materialization_data.materialization
        by_key[materialization.asset_key][materialization.partition] = {
            name: found.value for name, found in materialization.metadata.items()
        }
    return by_key


def green(instance, key, asked):
    statuses = instance.get_status_by_partition(key, [str(day) for day in asked], DAILY) or {}
    return [key for key, status in statuses.items() if status is not None and status.value == "MATERIALIZED"]


def test_both_streams_are_assets_of_one_step_with_their_columns():
    asset = landing_asset(orders, rejected, FORMAT, partitions_def=DAILY)
    specs = {spec.key: spec for spec in asset.specs}
    assert set(specs) == {ORDERS, REJECTED}
    assert {spec.group_name for spec in specs.values()} == {"shop"}
    assert all(spec.description and spec.kinds and spec.partitions_def == DAILY for spec in specs.values())
    columns = specs[ORDERS].metadata["dagster/column_schema"].columns
    assert [(column.name, column.type) for column in columns] == list(orders.schema)


def test_each_day_is_told_with_its_lines_events_quarantined_lines_file_and_digest(folder):
    folder.land(days(2, 2)[0], *range(30), "x")
    folder.land(days(3, 3)[0], 1, 2)
    result = told(land(folder, FakeLake(), days(2, 3)))
    assert list(result[ORDERS]) == list(result[REJECTED]) == ["2024-03-02", "2024-03-03"]
    second = result[ORDERS]["2024-03-02"]
    assert (second["lines"], second["events"], second["quarantined"]) == (31, 30, 1)
    assert (second["file"], len(second["digest"])) == ("2024-03-02.csv", 64)
    assert (second["dagster/partition_row_count"], second["rows_added"], second["rows_removed"]) == (30, 4, 3)
    assert result[REJECTED]["2024-03-02"]["dagster/partition_row_count"] == 1


def test_a_day_without_a_file_is_an_empty_day_and_says_so(folder):
    folder.land(days(2, 2)[0], 1)
    lake = FakeLake()
    result = told(land(folder, lake, days(2, 4)))
    assert lake.calls[-1] == ("replace shop.orders", tuple(days(2, 4)))
    assert result[ORDERS]["2024-03-03"]["events"] == 0
    assert result[ORDERS]["2024-03-03"]["file"] == "no file, an empty day"


def test_the_quarantine_is_committed_before_the_events(folder):
    lake = FakeLake()
    land(folder, lake, days(2, 3))
    assert [call for call, _ in lake.calls] == ["replace shop.rejected", "replace shop.orders"]


def test_a_long_range_is_committed_in_chunks_of_at_most_31_days(folder):
    lake = FakeLake()
    land(folder, lake, days(1, 70))
    chunks = [asked for call, asked in lake.calls if call == "replace shop.orders"]
    assert [len(asked) for asked in chunks] == [31, 31, 8]
    assert [day for asked in chunks for day in asked] == days(1, 70)


def observed(instance):
    seen = instance.fetch_observations(ORDERS, limit=100).records
    return {one.partition_key: one.asset_observation.description for one in seen}


def test_a_bad_file_fails_the_run_at_its_end_and_holds_back_no_other_day(folder):
    for day in days(2, 6):
        folder.land(day, 1)
    folder.land(days(4, 4)[0], "x", "y")
    (folder.path / "2024-03-05.csv").unlink()
    (folder.path / "2024-03-05.csv").mkdir()
    lake = FakeLake()
    with dg.DagsterInstance.ephemeral() as instance:
        with failing(fh.DaysNotLanded) as refused:
            land(folder, lake, days(2, 6), instance)
        assert "2 days of shop.orders did not land, the other days of the run did" in str(refused.value)
        assert "2024-03-04.csv: 2 of 2 lines (100.00%) cannot be events" in str(refused.value)
        assert "2024-03-05.csv is a directory" in str(refused.value)
        good = ["2024-03-02", "2024-03-03", "2024-03-06"]
        for key in (ORDERS, REJECTED):
            assert green(instance, key, days(2, 6)) == good
            statuses = instance.get_status_by_partition(key, ["2024-03-04", "2024-03-05"], DAILY)
            assert {status.value for status in statuses.values()} == {"FAILED"}
        assert lake.calls[-1] == ("replace shop.orders", (*days(2, 3), *days(6, 6)))
        assert observed(instance).keys() == {"2024-03-04", "2024-03-05"}


def test_running_it_again_lands_the_corrected_file_and_still_names_the_other(folder):
    for day in days(2, 4):
        folder.land(day, "x", "y")
    with dg.DagsterInstance.ephemeral() as instance:
        assert not land(folder, FakeLake(), days(2, 4), instance, raise_on_error=False).success
        folder.land(days(2, 2)[0], 1)
        folder.land(days(3, 3)[0], 1)
        with failing(fh.DaysNotLanded, match=r"1 day of shop\.orders did not land.*2024-03-04\.csv"):
            land(folder, FakeLake(), days(2, 4), instance)
        assert green(instance, ORDERS, days(2, 4)) == ["2024-03-02", "2024-03-03"]
        folder.land(days(4, 4)[0], 1)
        assert land(folder, FakeLake(), days(2, 4), instance).success
        assert green(instance, ORDERS, days(2, 4)) == [str(day) for day in days(2, 4)]


def test_the_check_fails_while_a_day_of_an_earlier_run_has_not_landed(folder):
    folder.land(days(2, 2)[0], "x", "y")
    folder.land(days(3, 3)[0], 1)
    with dg.DagsterInstance.ephemeral() as instance:
        assert not land(folder, FakeLake(), days(2, 2), instance, raise_on_error=False).success
        later = land(folder, FakeLake(), days(3, 3), instance)
        assert later.success
        [found] = later.get_asset_check_evaluations()
        assert (found.passed, found.metadata["days"].value, found.metadata["days_not_landed"].value) == (
            False,
            "2024-03-02",
            1,
        )
        assert found.description == "2024-03-02: did not land in an earlier run; run it again"
        folder.land(days(2, 2)[0], 1)
        [found] = land(folder, FakeLake(), days(2, 2), instance).get_asset_check_evaluations()
        assert (found.passed, found.metadata["days"].value) == (True, "none")


def test_tables_are_folded_with_the_good_days_before_the_run_fails(folder):
    folder.land(days(2, 2)[0], 1)
    folder.land(days(3, 3)[0], "x", "y")
    lake = FakeLake()
    landed = landing_asset(orders, rejected, FORMAT, partitions_def=DAILY)
    folded = [fold_asset(daily_orders, partitions_def=DAILY), fold_asset(customers)]
    with dg.DagsterInstance.ephemeral() as instance, failing(fh.DaysNotLanded):
        dg.materialize(
            [landed, *folded],
            resources={"lake": lake, "landing": folder},
            tags=range_tags(days(2, 3)),
            instance=instance,
        )
    assert sorted(call for call, _ in lake.calls[2:]) == ["backfill shop.daily_orders", "refresh shop.customers"]


@pytest.mark.slow
def test_a_run_started_again_from_its_failure_does_not_pass_while_its_day_has_not_landed(folder, tmp_path):
    folder.land(days(2, 2)[0], 1)
    folder.land(days(3, 3)[0], "x", "y")
    fakes.REEXECUTED.update(lake=FakeLake(), landing=folder)
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        job = dg.reconstructable(fakes.reexecuted_job)
        first = dg.execute_job(job, instance, tags=range_tags(days(2, 3)))
        assert not first.success
        again = dg.execute_job(
            job, instance, reexecution_options=dg.ReexecutionOptions.from_failure(first.run_id, instance)
        )
        assert {event.step_key for event in again.get_step_success_events()} == set()
        assert not again.success


def test_a_day_that_does_not_fit_the_stream_is_named_and_the_other_days_of_its_chunk_land(folder):
    for day in days(2, 4):
        folder.land(day, 1)
    lake = FakeLake(unfit=days(3, 3)[0])
    with dg.DagsterInstance.ephemeral() as instance:
        with failing(fh.DaysNotLanded, match="2024-03-03: an event of another day"):
            land(folder, lake, days(2, 4), instance)
        assert green(instance, ORDERS, days(2, 4)) == ["2024-03-02", "2024-03-04"]


def test_days_whose_events_take_much_memory_are_committed_in_more_steps(folder):
    for day in days(2, 5):
        folder.land(day, *range(10_000))
    small = replace(FORMAT, limits=Limits(event_bytes=400_000))
    lake = FakeLake()
    assert land(folder, lake, days(2, 5), format=small).success
    assert [asked for call, asked in lake.calls if call == "replace shop.orders"] == [
        tuple(days(2, 3)),
        tuple(days(4, 5)),
    ]


def test_a_folder_that_is_gone_fails_the_run_at_once_and_is_no_bad_day(folder):
    folder.path.rmdir()
    lake = FakeLake()
    with failing(fh.LandingError, match="create it, or name the folder"):
        land(folder, lake, days(2, 3))
    assert lake.calls == []


def test_a_deployment_without_a_folder_says_so_first(monkeypatch):
    monkeypatch.delenv("FOLDHOUSE_LANDING", raising=False)
    with failing(fh.LandingError, match="FOLDHOUSE_LANDING is not set; set it to the folder"):
        land(LandingFolder(), FakeLake(), days(2, 3))


def test_days_landed_before_a_failure_stay_green(folder):
    lake = FakeLake(fails_at=("replace shop.orders", days(5, 5)[0]))
    with dg.DagsterInstance.ephemeral() as instance:
        result = land(folder, lake, days(2, 6), instance, days_per_commit=2, raise_on_error=False)
        assert not result.success
        assert green(instance, ORDERS, days(2, 6)) == ["2024-03-02", "2024-03-03"]
        assert green(instance, REJECTED, days(2, 6)) == ["2024-03-02", "2024-03-03"]
        lake.fails_at = None
        assert land(folder, lake, days(2, 6), instance, days_per_commit=2).success
        assert green(instance, ORDERS, days(2, 6)) == [str(day) for day in days(2, 6)]
