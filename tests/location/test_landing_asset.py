from collections import defaultdict

import dagster as dg
import pytest

import foldhouse as fh
from foldhouse.dagster import landing_asset
from tests.location.fakes import DAILY, FORMAT, FakeFolder, FakeLake, days, orders, range_tags, rejected

ORDERS, REJECTED = dg.AssetKey(["shop", "orders"]), dg.AssetKey(["shop", "rejected"])


@pytest.fixture
def folder(tmp_path):
    return FakeFolder(tmp_path)


def land(folder, lake, asked, instance=None, *, days_per_commit=31, raise_on_error=True):
    asset = landing_asset(orders, rejected, FORMAT, partitions_def=DAILY, days_per_commit=days_per_commit)
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


def test_too_many_bad_lines_fail_the_run_before_anything_of_their_chunk_is_committed(folder):
    for day in days(2, 6):
        folder.land(day, 1)
    folder.land(days(5, 5)[0], "x", "y")
    lake = FakeLake()
    with pytest.raises(fh.TooManyBadLines, match=r"2024-03-05\.csv"):
        land(folder, lake, days(2, 6), days_per_commit=2)
    assert [asked for _, asked in lake.calls] == [tuple(days(2, 3))] * 2


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
