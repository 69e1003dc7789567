"""Clocks that are wrong: a table that is ahead can be used for everything, loses nothing, and can be mended."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from expiring import NOW, Clock, ids
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table as IcebergTable

import foldhouse as fh

START = datetime(2050, 3, 4, 9, 0, 20, tzinfo=UTC)
YEAR = timedelta(days=365)
events = fh.stream("c.events", schema={"key": "long", "n": "long"}, keys="key", sequence_by="n")
newest = fh.table("c.newest", source=events, fold=fh.latest())
wider = fh.table("c.newest", source=events, fold=fh.fold(n=fh.total("n")))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch, START)


def put(lake: fh.Lake, n: int) -> None:
    lake.append(events, pa.table({"key": [n % 4], "n": [n]}), batch_id=f"batch {n}")
    lake.refresh(newest)


def numbers(lake: fh.Lake, as_of: Any = None) -> list[int]:
    return sorted(lake.to_arrow(newest, as_of=as_of)["n"].to_pylist())


def assert_java_opens(iceberg: IcebergTable) -> None:
    """What the constructor of Iceberg's `TableMetadata` demands, which allows for a minute: we allow for none."""
    metadata = iceberg.metadata
    for log in (metadata.snapshot_log, metadata.metadata_log):
        stamps = [entry.timestamp_ms for entry in log]
        assert stamps == sorted(stamps)
        assert all(stamp <= metadata.last_updated_ms for stamp in stamps)
    assert all(one.timestamp_ms <= metadata.last_updated_ms for one in metadata.snapshots)


def a_year_ahead_once(lake: fh.Lake, clock: Clock) -> None:
    """Commits 0 and 1 by a right clock, 2 by one a year ahead, 3 and 4 by a right one again, an hour apart."""
    for n in range(5):
        clock.now = START + timedelta(hours=n) + (YEAR if n == 2 else timedelta())
        put(lake, n)


def test_a_table_that_is_ahead_goes_on_by_a_millisecond_a_commit(lake: fh.Lake, clock: Clock) -> None:
    a_year_ahead_once(lake, clock)
    ahead = int((START + YEAR + timedelta(hours=2)).timestamp() * 1000)
    assert [one.timestamp_ms for one in lake.load(events).snapshots()][2:] == [ahead, ahead + 1, ahead + 2]
    assert_java_opens(lake.load(events))


def test_every_operation_works_on_a_table_that_is_ahead(lake: fh.Lake, clock: Clock) -> None:
    a_year_ahead_once(lake, clock)
    for table in (events, newest):
        lake.compact(table, min_files=2)
        lake.rollback(table, to=lake.history(table)[1].id)
        lake.expire(table, **{**NOW, "keep_last": 2})
        assert_java_opens(lake.load(table))
    more = fh.stream("c.events", schema={"key": "long", "n": "long", "more": "string"}, keys="key", sequence_by="n")
    lake.evolve(more)
    assert_java_opens(lake.load(events))
    lake.rebuild(wider, publish=False)
    lake.publish(wider)
    lake.rebuild(newest)
    lake.refresh(newest)
    assert_java_opens(lake.load(newest))


def test_who_meets_a_table_that_is_ahead_is_told_so(
    lake: fh.Lake, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    put(lake, 0)
    clock.forward(seconds=-30)
    with caplog.at_level(logging.WARNING):
        put(lake, 1)
        assert not caplog.records, "clocks of two machines may differ so much"
        assert lake.upkeep(newest) == ()
        clock.forward(hours=-1)
        put(lake, 2)
    assert "run `foldhouse mend-clock c.events`" in caplog.text
    (said,) = lake.upkeep(newest)
    assert "ahead of this clock: foldhouse mend-clock" in said


@pytest.mark.parametrize("wrong", [YEAR, -YEAR], ids=["a year ahead", "a year behind"])
def test_two_machines_one_of_which_is_wrong_by_a_year_commit_in_turns(
    lake: fh.Lake, clock: Clock, wrong: timedelta
) -> None:
    for n in range(8):
        clock.now = START + timedelta(minutes=n) + (wrong if n % 2 else timedelta())
        put(lake, n)
        lake.expire(newest)
        lake.expire(events)
    assert numbers(lake) == [4, 5, 6, 7]
    assert len(ids(lake, newest)) == len(ids(lake, events)) == 8, (
        "all of it is of the last hour by the table's own times"
    )
    for table in (events, newest):
        assert_java_opens(lake.load(table))
    for n in range(8):
        assert not lake.append(events, pa.table({"key": [0], "n": [n]}), batch_id=f"batch {n}").committed


def test_a_commit_of_another_tool_whose_clock_is_behind_is_the_head_since_the_one_before(
    lake: fh.Lake, clock: Clock
) -> None:
    """By its own stamp it would have been the head before the commit that it follows, and never after that one."""
    put(lake, 0)
    lake.load(events).append(pa.table({"key": [1], "n": [1]}))  # stamped now, decades before START
    assert lake.load(events).current_snapshot().timestamp_ms < START.timestamp() * 1000
    behind, first = lake.head(events).id, lake.history(events)[1].id
    clock.now = START + timedelta(hours=1)

    def at(moment: datetime) -> list[int]:
        return sorted(lake.to_arrow(events, as_of=moment)["n"].to_pylist())

    for moment in (START + timedelta(seconds=1), clock.now):
        assert at(moment) == [0, 1]
        assert lake.load(events).snapshot_as_of_timestamp(int(moment.timestamp() * 1000)).snapshot_id == behind
    for moment in (START - timedelta(minutes=1), START - timedelta(hours=2)):
        with pytest.raises(fh.UnknownSnapshot, match="had no snapshot yet"):
            at(moment)
    put(lake, 2)
    assert at(clock.now) == [0, 1, 2]
    assert at(clock.now - timedelta(minutes=1)) == [0, 1]
    lake.rollback(events, to=first)
    clock.forward(hours=1)
    assert at(clock.now) == [0]


def test_a_commit_of_another_tool_whose_clock_is_behind_waits_since_it_came(lake: fh.Lake, clock: Clock) -> None:
    put(lake, 0)
    lake.load(events).append(pa.table({"key": [1], "n": [1]}))  # stamped now, decades before START
    clock.now = START + timedelta(minutes=1)
    (behind,) = lake.lag(newest)
    assert behind.commits_behind == 1
    assert behind.seconds_behind == pytest.approx(60, abs=0.1)
    (status,) = lake.status([newest.name])
    assert status.sources == (behind,)
    lake.refresh(newest)
    assert lake.figures(newest)[-1].lag_seconds == pytest.approx(60, abs=0.1)


def test_the_last_of_several_commits_of_one_millisecond_is_the_head_of_it(
    lake: fh.Lake, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(lake, 0)
    moment = START + timedelta(seconds=1)
    with monkeypatch.context() as theirs:
        theirs.setattr("time.time", lambda: moment.timestamp())
        for n in (1, 2):
            lake.load(events).append(pa.table({"key": [n], "n": [n]}))
    assert [one.timestamp_ms for one in lake.load(events).snapshots()][1:] == [int(moment.timestamp() * 1000)] * 2
    for later in (timedelta(), timedelta(seconds=1)):
        clock.now = moment + later
        assert sorted(lake.to_arrow(events, as_of=clock.now)["n"].to_pylist()) == [0, 1, 2]
    assert lake.to_arrow(events, as_of=moment - timedelta(milliseconds=1))["n"].to_pylist() == [0]


def test_a_commit_a_year_ahead_does_not_make_the_others_expire(lake: fh.Lake, clock: Clock) -> None:
    for n in range(4):
        clock.now = START + timedelta(minutes=n)
        put(lake, n)
    clock.forward(days=365)
    put(lake, 4)
    clock.now = START + timedelta(minutes=10)
    assert not lake.expire(newest).snapshots_removed
    assert len(ids(lake, newest)) == 5


def test_maintenance_by_a_clock_a_year_ahead_does_not_make_anything_expire(lake: fh.Lake, clock: Clock) -> None:
    for n in range(4):
        clock.now = START + timedelta(minutes=n)
        put(lake, n)
    clock.forward(days=800)
    assert not lake.expire(newest).snapshots_removed
    assert lake.expire(newest, older_than="5d").snapshots_removed == 3, "who names an age, means the clock's"


def test_mending_takes_the_times_back_to_now_and_refuses_those_that_nobody_knows(lake: fh.Lake, clock: Clock) -> None:
    a_year_ahead_once(lake, clock)
    clock.now = START + timedelta(hours=6)
    before = [(one.id, one.parent_id) for one in lake.history(newest)]
    assert lake.mend_clock(newest) > YEAR - timedelta(days=1)
    assert lake.mend_clock(newest) == timedelta()
    assert [(one.id, one.parent_id) for one in lake.history(newest)] == before
    assert_java_opens(lake.load(newest))
    assert all(one.committed_at <= clock.now for one in lake.history(newest))
    assert numbers(lake) == [1, 2, 3, 4]
    assert numbers(lake, as_of=START + timedelta(hours=1)) == [0, 1]
    assert numbers(lake, as_of=START) == [0]
    for hours in (2, 3, 5.9):
        with pytest.raises(fh.UnknownSnapshot, match="is no longer known for certain"):
            numbers(lake, as_of=START + timedelta(hours=hours))
    clock.forward(minutes=1)
    lake.mend_clock(events)
    put(lake, 5)
    assert numbers(lake, as_of=clock.now) == [2, 3, 4, 5]
    assert numbers(lake, as_of=clock.now - timedelta(seconds=1)) == [1, 2, 3, 4]
    clock.forward(hours=30)
    put(lake, 6)
    assert lake.expire(newest).snapshots_removed
    assert numbers(lake, as_of=START + timedelta(minutes=59)) == [0]


def test_a_table_thinned_while_it_was_ahead_is_mended_too(lake: fh.Lake, clock: Clock) -> None:
    a_year_ahead_once(lake, clock)
    lake.expire(newest, **{**NOW, "keep_last": 2})
    clock.now = START + timedelta(hours=6)
    lake.mend_clock(newest)
    assert_java_opens(lake.load(newest))
    with pytest.raises(fh.UnknownSnapshot, match="is no longer known for certain"):
        numbers(lake, as_of=START + timedelta(hours=3))
    clock.now += timedelta(seconds=1)
    assert numbers(lake, as_of=clock.now) == [1, 2, 3, 4]


def test_a_mending_that_meets_a_commit_starts_over(lake: fh.Lake, clock: Clock) -> None:
    a_year_ahead_once(lake, clock)

    class Busy:
        """A catalog in which somebody commits just before the mending."""

        def __init__(self, catalog: Catalog) -> None:
            self._catalog, self._times = catalog, 1

        def __getattr__(self, name: str) -> Any:
            return getattr(self._catalog, name)

        def commit_table(self, *arguments: Any) -> Any:
            if self._times:
                self._times -= 1
                lake.append(events, pa.table({"key": [9], "n": [9]}))
            return self._catalog.commit_table(*arguments)

    from foldhouse.storage.clock import mend

    busy: Any = Busy(lake.catalog)
    with pytest.raises(fh.Unsupported, match="kept by a server"):
        mend(busy, lake.load(events))
    busy.__class__ = type("Local", (Busy, type(lake.catalog)), {})
    with pytest.raises(fh.CommitConflict):
        mend(busy, lake.load(events))
    assert lake.mend_clock(events)
    assert_java_opens(lake.load(events))
