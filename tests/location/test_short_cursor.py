import json
from datetime import date, timedelta

import dagster as dg
import pytest

from foldhouse.dagster.short_cursor import cursor_of, state_of
from tests.location.fakes import FakeFolder
from tests.location.test_sensor import REPOSITORY, SENSOR, asked, tick_of

LONG, LONGER = "a" * 1_001, "b" * 70_000


@pytest.fixture
def instance():
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def context_of(instance, cursor=None, sensor="landing", since=1.0):
    return dg.build_sensor_context(
        instance,
        cursor=cursor,
        repository_name="shop",
        sensor_name=sensor,
        repository_def=REPOSITORY,
        last_sensor_start_time=since,
    )


def kept(instance, state, cursor=None, **where):
    """The cursor after a tick with a state."""
    with context_of(instance, cursor, **where) as context:
        return cursor_of(context, state)


def found(instance, cursor, **where):
    with context_of(instance, cursor, **where) as context:
        return state_of(context)


@pytest.mark.parametrize("state", ["", "{}", "a" * 1_000, LONG, LONGER, "é" * 2_000])
def test_the_next_tick_finds_the_state(instance, state):
    cursor = kept(instance, state)
    assert found(instance, cursor) == state
    assert len(cursor) <= 1_000


def test_no_cursor_is_no_state(instance):
    assert found(instance, None) is None


def test_an_unchanged_state_has_the_same_cursor(instance):
    cursor = kept(instance, LONG)
    assert kept(instance, LONG, cursor) == cursor


def test_a_tick_that_failed_leaves_the_state_of_its_cursor(instance):
    cursor = kept(instance, LONG)
    for _ in range(3):  # Dagster keeps the cursor of the tick before
        kept(instance, LONGER, cursor)
        assert found(instance, cursor) == LONG
    following = kept(instance, LONGER, cursor)
    kept(instance, LONG, following)
    assert found(instance, following) == LONGER


def test_sensors_do_not_share_their_states(instance):
    cursor, other = kept(instance, LONG), kept(instance, LONGER, sensor="other")
    assert (found(instance, cursor), found(instance, other, sensor="other")) == (LONG, LONGER)


def test_a_state_that_is_not_the_one_of_the_cursor_is_lost(instance):
    old = kept(instance, LONG)
    now = kept(instance, LONGER, old)
    kept(instance, "c" * 2_000, old)  # somebody set an old cursor
    assert found(instance, now) is None
    assert found(instance, "in records:1:0123") is None
    assert found(instance, "in records:") is None


@pytest.mark.parametrize("given", [None, "old", "now"])
def test_a_sensor_that_is_tried_on_the_page_keeps_the_state_of_its_ticks(instance, given):
    old = kept(instance, LONG)
    now = kept(instance, LONGER, old)
    cursor = {None: None, "old": old, "now": now}[given]
    assert kept(instance, "c" * 2_000, cursor, since=None) == "c" * 2_000
    assert kept(instance, LONGER, now, since=None) == now
    assert found(instance, now) == LONGER


def test_without_records_the_cursor_is_the_state(instance, monkeypatch):
    with dg.build_sensor_context(sensor_name="landing", repository_def=REPOSITORY) as context:
        assert cursor_of(context, LONG) == LONG
    monkeypatch.setattr(type(instance.run_storage), "set_cursor_values", _nothing)
    assert kept(instance, LONG) == LONG


def _nothing(*_):
    raise NotImplementedError


def test_many_files_have_a_short_cursor_and_a_changed_day_is_the_only_one_asked_for(instance, tmp_path):
    folder = FakeFolder(tmp_path)
    for number in range(90):
        folder.land(date(2024, 3, 1) + timedelta(number), 1)
    tick = tick_of(SENSOR, folder, instance=instance)
    assert len(tick.run_requests) == 1
    assert len(tick.cursor) < 100
    assert tick_of(SENSOR, folder, tick.cursor, instance=instance).cursor == tick.cursor
    folder.land(date(2024, 5, 1), 1, 2)
    changed = tick_of(SENSOR, folder, tick.cursor, instance=instance)
    assert asked(changed.run_requests) == ["2024-05-01"]
    assert tick_of(SENSOR, folder, changed.cursor, instance=instance).run_requests == []


def test_a_long_cursor_of_an_earlier_version_is_understood(instance, tmp_path):
    folder = FakeFolder(tmp_path)
    for day in range(1, 31):
        folder.land(date(2024, 3, day), 1)
    earlier = tick_of(SENSOR, folder)
    assert isinstance(json.loads(earlier.cursor), dict)
    assert tick_of(SENSOR, folder, earlier.cursor, instance=instance).run_requests == []
