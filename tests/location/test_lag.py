"""The page's check of a table is what its position says, whoever committed, and the sensor keeps it so."""

from contextlib import closing, nullcontext
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest

import foldhouse as fh
from foldhouse.dagster import fold_asset, lag_check, lag_sensor

events = fh.stream("late.events", schema={"k": "string", "n": "long"}, keys="k")
sums = fh.table("late.sums", source=events, fold=fh.fold(n=fh.total("n")))
above = fh.table("late.above", source=sums, keys="k", fold=fh.fold(n=fh.maximum("n")))
SENSOR = lag_sensor("lag", [sums, above])
REPOSITORY = dg.Definitions(
    assets=[fold_asset(sums), fold_asset(above)],
    asset_checks=[lag_check(sums), lag_check(above)],
    sensors=[SENSOR],
    resources={"lake": object()},
).get_repository_def()


class Opened:
    """A lake as a resource."""

    def __init__(self, lake):
        self.lake = lake

    def open(self):
        return self.lake


def append(lake):
    lake.append(events, pa.table({"k": ["a", "b"], "n": [1, 2]}))


def look(lake, cursor=None, instance=None):
    """One tick: what is reported, and the cursor afterwards."""
    with (
        nullcontext(instance) if instance is not None else dg.DagsterInstance.ephemeral() as page,
        dg.build_sensor_context(
            cursor=cursor, resources={"lake": Opened(lake)}, repository_def=REPOSITORY, instance=page
        ) as context,
    ):
        tick = SENSOR.evaluate_tick(context)
        for one in tick.asset_events:
            page.report_runless_asset_event(one)
    assert not tick.run_requests
    return {one.asset_key.to_user_string(): one for one in tick.asset_events}, tick.cursor or cursor


def test_a_commit_by_anybody_is_told_of_every_table_downstream_and_so_is_its_fold(lake):
    assert look(lake) == ({}, None), "nothing is folded yet"
    append(lake)
    lake.refresh(sums)
    lake.refresh(above)
    told, cursor = look(lake)
    assert {name: one.passed for name, one in told.items()} == {"late/sums": True, "late/above": True}
    assert look(lake, cursor) == ({}, cursor), "nothing changed"
    append(lake)
    append(lake)
    told, cursor = look(lake, cursor)
    assert {name: (one.passed, one.description) for name, one in told.items()} == {
        "late/sums": (False, "2 commits behind late.events"),
        "late/above": (False, "up to date with late.sums, which is 2 commits behind late.events"),
    }
    late = told["late/sums"]
    assert (late.check_name, late.severity) == ("up_to_date", dg.AssetCheckSeverity.WARN)
    assert (late.metadata["commits_behind"].value, late.metadata["rows_behind"].value) == (2, 4)
    assert 0 <= late.metadata["seconds_behind"].value < 600
    lake.refresh(sums)
    told, cursor = look(lake, cursor)
    assert {name: one.passed for name, one in told.items()} == {"late/sums": True, "late/above": False}
    assert told["late/above"].description == "1 commit behind late.sums"
    lake.refresh(above)
    assert [one.passed for one in look(lake, cursor)[0].values()] == [True]


def test_a_source_that_was_rolled_back_is_told(lake):
    append(lake)
    append(lake)
    lake.refresh(sums)
    lake.refresh(above)
    _, cursor = look(lake)
    lake.rollback(events, to=lake.history(events)[-1].id)
    told, _ = look(lake, cursor)
    assert told["late/sums"].description == "elsewhere in late.events"
    assert not told["late/sums"].passed


@pytest.mark.parametrize("lost", ["", "not JSON", "[]", "7"])
def test_a_lost_cursor_tells_everything_again(lake, lost):
    append(lake)
    lake.refresh(sums)
    assert set(look(lake, lost)[0]) == {"late/sums"}


def test_the_check_is_part_of_a_run(lake):
    append(lake)
    assets = [fold_asset(sums), lag_check(sums)]
    done = dg.materialize(assets, resources={"lake": Opened(lake)})
    [evaluation] = done.get_asset_check_evaluations()
    assert (evaluation.check_name, evaluation.passed) == ("up_to_date", True)
    append(lake)
    done = dg.materialize(
        assets, resources={"lake": Opened(lake)}, selection=dg.AssetSelection.checks_for_assets(assets[0])
    )
    [evaluation] = done.get_asset_check_evaluations()
    assert (evaluation.passed, evaluation.description) == (False, "1 commit behind late.events")
    assert done.success, "it warns"


def test_a_commit_that_follows_the_check_of_a_run_is_told(lake):
    append(lake)
    lake.refresh(sums)
    assets = [fold_asset(sums), lag_check(sums)]
    with dg.DagsterInstance.ephemeral() as instance:
        _, cursor = look(lake, None, instance)
        append(lake)
        told, cursor = look(lake, cursor, instance)
        assert [one.description for one in told.values()] == ["1 commit behind late.events"]
        dg.materialize(assets, resources={"lake": Opened(lake)}, instance=instance)
        append(lake)
        told, cursor = look(lake, cursor, instance)
        assert [one.description for one in told.values()] == ["1 commit behind late.events"], "the page was green"
        assert look(lake, cursor, instance) == ({}, cursor), "the page says so"


@pytest.fixture
def page(lake, tmp_path):
    """Looks as another process, which has read no metadata yet."""

    def looked(cursor=None):
        with closing(fh.Lake.local(tmp_path / "lake")) as opened:
            return look(opened, cursor)

    return looked


def metadata_of(lake, table):
    return Path(lake.load(table).metadata_location.removeprefix("file://"))


def test_a_table_that_cannot_be_read_does_not_hide_the_others(lake, page):
    append(lake)
    for table in (sums, above):
        lake.refresh(table)
    _, cursor = page()
    file = metadata_of(lake, above)
    whole = file.read_bytes()
    file.write_bytes(whole[:100])
    append(lake)
    told, cursor = page(cursor)
    assert told["late/sums"].description == "1 commit behind late.events"
    damaged = told["late/above"]
    assert (damaged.passed, damaged.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert damaged.description.startswith(f"cannot be read: file://{file} is not what was written")
    assert page(cursor) == ({}, cursor), "it was told"
    file.write_bytes(whole)
    [mended] = page(cursor)[0].values()
    assert mended.description == "up to date with late.sums, which is 1 commit behind late.events"


def test_a_look_fails_if_no_table_can_be_read(lake, page):
    append(lake)
    for table in (sums, above):
        lake.refresh(table)
    for table in (sums, above):
        metadata_of(lake, table).write_bytes(b"{}")
    with pytest.raises(fh.CorruptFile):
        page()
