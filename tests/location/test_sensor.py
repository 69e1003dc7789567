import os
from datetime import date

import dagster as dg
import pytest

import foldhouse as fh
from foldhouse.dagster import landing_asset, landing_sensor
from resources.landing import LandingFolder
from tests.location.fakes import DAILY, FORMAT, FakeFolder, days, orders, rejected, started

SENSOR = landing_sensor("shop_landing", job_name="shop", format=FORMAT, partitions_def=DAILY)
REPOSITORY = dg.Definitions(
    assets=[landing_asset(orders, rejected, FORMAT, partitions_def=DAILY)],
    jobs=[dg.define_asset_job("shop", selection="*")],
    sensors=[SENSOR],
    resources={"lake": object(), "landing": LandingFolder()},
).get_repository_def()


@pytest.fixture
def folder(tmp_path):
    return FakeFolder(tmp_path)


def look(folder, cursor=None):
    """One tick, as the daemon evaluates it: what is asked for, with the cursor afterwards."""
    tick = tick_of(SENSOR, folder, cursor)
    return tick.run_requests or [], tick.cursor or cursor


def tick_of(sensor, folder, cursor=None, instance=None):
    with dg.build_sensor_context(
        instance,
        cursor=cursor,
        resources={"landing": folder},
        repository_def=REPOSITORY,
        sensor_name=sensor.name,
        last_sensor_start_time=1.0,
    ) as context:
        return sensor.evaluate_tick(context)


def asked(requests):
    """Every day that is asked for."""
    ranges = [
        (
            one.tags.get("dagster/asset_partition_range_start") or one.partition_key,
            one.tags.get("dagster/asset_partition_range_end") or one.partition_key,
        )
        for one in requests
    ]
    return [
        str(date.fromordinal(day))
        for first, last in ranges
        for day in range(date.fromisoformat(first).toordinal(), date.fromisoformat(last).toordinal() + 1)
    ]


def test_the_first_look_asks_for_every_day_with_a_file_and_one_run_for_each_range(folder):
    for day in (*days(2, 4), *days(6, 6), *days(8, 9)):
        folder.land(day, 1)
    requests, _ = look(folder)
    assert asked(requests) == [f"2024-03-0{day}" for day in (2, 3, 4, 6, 8, 9)]
    assert len(requests) == 3
    assert requests[1].tags["dagster/partition"] == "2024-03-06"


def test_a_second_look_asks_for_nothing_and_says_why(folder):
    folder.land(*days(2, 2), 1)
    _, cursor = look(folder)
    assert look(folder, cursor) == ([], cursor)
    assert tick_of(SENSOR, folder, cursor).skip_message == "none of 1 files is new or changed"


def test_exactly_the_new_and_the_changed_days_are_asked_for(folder):
    for day in days(2, 6):
        folder.land(day, 1)
    _, cursor = look(folder)
    folder.land(days(3, 3)[0], 1, 2)
    folder.land(days(7, 7)[0], 1)
    requests, cursor = look(folder, cursor)
    assert asked(requests) == ["2024-03-03", "2024-03-07"]
    assert look(folder, cursor)[0] == []


def test_a_day_that_goes_back_to_an_earlier_file_gets_a_run_again(folder, monkeypatch):
    """Times of a bucket have whole seconds, so a file that is put back can look as it did before."""
    keys, cursor = set(), None
    for file in ("one", "two", "one"):
        found = {days(2, 2)[0]: file}
        monkeypatch.setattr("foldhouse.landing.folder.Landing.fingerprints", lambda self, found=found: found)
        requests, cursor = look(folder, cursor)
        assert len(started(requests, keys)) == 1


def test_a_bad_file_is_asked_for_once_and_again_when_it_changes(folder):
    for day in days(2, 4):
        folder.land(day, 1)
    (folder.path / "2024-03-03.csv").unlink()
    os.mkfifo(folder.path / "2024-03-03.csv")
    requests, cursor = look(folder)
    assert asked(requests) == ["2024-03-02", "2024-03-03", "2024-03-04"]
    assert [look(folder, cursor)[0] for _ in range(3)] == [[], [], []]
    (folder.path / "2024-03-03.csv").unlink()
    folder.land(days(3, 3)[0], 1)
    requests, cursor = look(folder, cursor)
    assert asked(requests) == ["2024-03-03"]


def test_a_file_that_vanished_is_no_correction(folder):
    for day in days(2, 3):
        folder.land(day, 1)
    _, cursor = look(folder)
    (folder.path / "2024-03-02.csv").unlink()
    assert look(folder, cursor) == ([], cursor)


def test_a_day_outside_of_the_partitions_waits(folder):
    folder.land(date(2024, 2, 29), 1)
    folder.land(date(2024, 6, 1), 1)
    requests, cursor = look(folder)
    assert (requests, cursor) == ([], None)


@pytest.mark.parametrize(
    "lost", [None, "", "not JSON", "[]", '{"2024-03-02": 5}', '{"2024-03-02": null}', "[" * 100_000]
)
def test_after_a_lost_cursor_everything_gets_a_run_again(folder, lost):
    keys = set()
    for day in days(2, 6):
        folder.land(day, 1)
    for cursor in (None, lost):
        requests, _ = look(folder, cursor)
        assert asked(started(requests, keys)) == [str(day) for day in days(2, 6)]


@pytest.mark.slow
def test_ten_years_of_files_are_looked_at_in_seconds(folder, monkeypatch):
    many = dg.DailyPartitionsDefinition("2014-01-01", end_date="2025-01-01")
    sensor = landing_sensor("shop_landing", job_name="shop", format=FORMAT, partitions_def=many)
    start = date(2014, 1, 1).toordinal()
    for number in range(3650):
        (folder.path / f"{date.fromordinal(start + number)}.csv").touch()
    before = os.times().user
    tick = tick_of(sensor, folder)
    assert os.times().user - before < 10
    assert len(tick.run_requests) == 1
    assert len(tick.cursor) < 200_000


def test_a_folder_that_is_not_there_is_a_clear_error(tmp_path):
    with pytest.raises(fh.LandingError, match="create it, or name the folder"):
        look(FakeFolder(tmp_path / "missing"))


class Held:
    """A lake that has events of some days."""

    def __init__(self, *held):
        self.held = held

    def open(self):
        return self

    def days(self, stream):
        assert stream is orders
        return list(self.held)


WITH_STREAM = landing_sensor("orders", job_name="shop", format=FORMAT, partitions_def=DAILY, stream=orders)


def ranges(folder, held, cursor=None):
    """The ranges that are asked for, in order, with their priorities; and the cursor."""
    resources = {"landing": folder, "lake": Held(*held)}
    with dg.build_sensor_context(cursor=cursor, resources=resources, repository_def=REPOSITORY) as context:
        tick = WITH_STREAM.evaluate_tick(context)
    asked = [
        (one.tags["foldhouse/days"], one.tags["foldhouse/files"], one.tags["dagster/priority"])
        for one in tick.run_requests
    ]
    return asked, tick.cursor


def test_days_without_a_file_and_without_an_event_do_not_divide_a_range(folder):
    for day in (2, 3, 6, 9):
        folder.land(date(2024, 3, day), 1)
    assert ranges(folder, held=[])[0] == [("2024-03-02..2024-03-09", "4", "1")]
    # The file of the fifth was archived: a run over it would empty the day.
    assert ranges(folder, held=[date(2024, 3, 5)])[0] == [
        ("2024-03-02..2024-03-03", "2", "1"),
        ("2024-03-06..2024-03-09", "2", "1"),
    ]


def test_a_changed_day_comes_before_new_ones_and_takes_no_unchanged_day_along(folder):
    for day in (2, 3, 4):
        folder.land(date(2024, 3, day), 1)
    _, cursor = ranges(folder, held=[])
    folder.land(date(2024, 3, 2), 1, 2)
    folder.land(date(2024, 3, 4), 1, 2)
    folder.land(date(2024, 3, 6), 1)
    folder.land(date(2024, 3, 8), 1)
    assert ranges(folder, held=[], cursor=cursor)[0] == [
        ("2024-03-02", "1", "2"),
        ("2024-03-04", "1", "2"),
        ("2024-03-06..2024-03-08", "2", "1"),
    ]


def test_the_page_is_asked_to_load_again_once_for_days_it_may_not_know(folder, monkeypatch):
    asked_page = []
    monkeypatch.setattr("foldhouse.dagster.sensor.reload_page", lambda: asked_page.append(1))
    following = landing_sensor("following", job_name="shop", format=FORMAT, partitions_def=DAILY, reloads_page=True)

    def looked(cursor=None):
        before = len(asked_page)
        tick = tick_of(following, folder, cursor)
        return tick.cursor or cursor, len(asked_page) - before, tick.skip_message

    for day in days(2, 4):
        folder.land(day, 1)
    cursor, reloads, _ = looked()
    assert reloads == 1  # the page may have loaded before the first file
    folder.land(days(3, 3)[0], 1, 2)
    cursor, reloads, _ = looked(cursor)
    assert reloads == 0  # a corrected day is known
    folder.land(date(2024, 7, 1), 1)
    cursor, reloads, said = looked(cursor)
    assert (reloads, said) == (
        1,
        "none of 4 files is new or changed, and the day 2024-07-01 with a file is no partition (yet)",
    )
    assert looked(cursor)[1] == 0  # not at each look
    folder.land(days(5, 5)[0], 1)
    assert looked(cursor)[1] == 1  # the day after all earlier ones
