"""A long history: all of its snapshots are listed for every reader, and thinning takes some out of its middle."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from expiring import NOW, Clock, ids, named, on_disk
from pyiceberg.catalog.sql import SqlCatalog

import foldhouse as fh
from foldhouse.cli.plan import rollback_text
from foldhouse.storage.history import heads, thinned
from foldhouse.storage.live import live_slices

START = datetime(2050, 3, 4, 9, 0, 20, tzinfo=UTC)
COMMITS = 12
"""One every 20 minutes: four hours, from 20 seconds past nine."""
events = fh.stream("h.events", schema={"key": "long", "n": "long"}, keys="key", sequence_by="n")
newest = fh.table("h.newest", source=events, fold=fh.latest())
HOURLY: dict[str, Any] = {"keep": "hourly for 1 week", "in_use": timedelta()}


def put(lake: fh.Lake, n: int) -> None:
    lake.append(events, pa.table({"key": [n % 4], "n": [n]}), batch_id=f"batch {n}")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch, START)


def prepare(lake: fh.Lake) -> None:
    """Give a stream and a table many commits each: event number n comes with the n-th, counted from 0."""
    with pytest.MonkeyPatch.context() as patch:
        clock = Clock(patch, START)
        for n in range(COMMITS):
            clock.now = at(n)
            put(lake, n)
            lake.refresh(newest)


@pytest.fixture
def long(kept_lake: Callable[..., fh.Lake], clock: Clock) -> fh.Lake:
    clock.now = at(COMMITS - 1)
    return kept_lake(prepare)


def at(n: int) -> datetime:
    return START + timedelta(minutes=20 * n)


def rows(lake: fh.Lake, table: fh.Stream | fh.Table, as_of: int | datetime | None = None) -> list[tuple[int, int]]:
    found = lake.to_arrow(table, as_of=as_of).to_pylist()
    return sorted((row["key"], row["n"]) for row in found)


def expected(last: int) -> list[tuple[int, int]]:
    return sorted({n % 4: n for n in range(last + 1)}.items())


def stock(lake: fh.Lake) -> SqlCatalog:
    """The same catalog as pyiceberg's own class opens it."""
    return SqlCatalog("foldhouse", **lake.catalog.properties)


KEPT = [2, 5, 8, 11]
"""The commits that were the head at a full hour, and the head."""


@pytest.mark.heavy
def test_stock_pyiceberg_lists_every_snapshot_after_110_refreshes_and_reads_the_first(lake: fh.Lake) -> None:
    for n in range(110):
        lake.append(events, pa.table({"key": [n % 4], "n": [n]}))
        lake.refresh(newest)
    catalog = stock(lake)
    for table in (events, newest):
        loaded = catalog.load_table(table.name)
        snapshots = loaded.snapshots()
        assert len(snapshots) == 110
        assert [one.snapshot_id for one in snapshots] == [info.id for info in reversed(lake.history(table))]
        assert loaded.scan(snapshot_id=snapshots[0].snapshot_id).to_arrow().select(["key", "n"]).to_pylist() == [
            {"key": 0, "n": 0}
        ]
    catalog.close()


def test_the_states_at_full_hours_stay(long: fh.Lake) -> None:
    for table in (events, newest):
        before = [info.id for info in reversed(long.history(table))]
        done = long.expire(table, **HOURLY)
        assert (done.snapshots_removed, done.snapshots_left) == (COMMITS - len(KEPT), len(KEPT))
        assert [info.id for info in reversed(long.history(table))] == [before[n] for n in KEPT]
        assert on_disk(long, table) == named(long, table)


def test_every_kept_state_is_read_by_its_id_and_from_its_commit_to_the_next_one(long: fh.Lake, clock: Clock) -> None:
    long.expire(newest, **HOURLY)
    clock.now = at(COMMITS)
    for n, info in zip(KEPT, reversed(long.history(newest)), strict=True):
        assert rows(long, newest, info.id) == expected(n)
        assert rows(long, newest, info.committed_at) == expected(n)
        assert rows(long, newest, at(n) + timedelta(minutes=19, seconds=59)) == expected(n)
    for hour in range(10, 13):
        assert rows(long, newest, datetime(2050, 3, 4, hour, tzinfo=UTC)) == expected(3 * (hour - 9) - 1)


def test_a_moment_in_a_gap_is_refused_with_the_snapshots_beside_it(long: fh.Lake) -> None:
    long.expire(newest, **HOURLY)
    kept = [info.id for info in reversed(long.history(newest))]
    with pytest.raises(fh.UnknownSnapshot, match=rf"nearest kept snapshots are {kept[0]} since .* and {kept[1]} since"):
        long.to_arrow(newest, as_of=at(3))
    with pytest.raises(fh.UnknownSnapshot, match="was expired"):
        long.to_arrow(newest, as_of=at(1))
    with pytest.raises(fh.UnknownSnapshot, match="had no snapshot yet"):
        long.to_arrow(newest, as_of=at(-1))


def test_thinning_twice_is_thinning_once_and_what_is_known_of_time_stays(long: fh.Lake, clock: Clock) -> None:
    long.expire(newest, **HOURLY)
    location, known = long.load(newest).metadata_location, heads(long.load(newest).metadata)
    assert not long.expire(newest, **HOURLY).committed
    assert long.load(newest).metadata_location == location
    for n in range(COMMITS, 2 * COMMITS):
        clock.now = at(n)
        put(long, n)
        long.refresh(newest)
    long.expire(newest, **HOURLY)
    assert heads(long.load(newest).metadata)[: len(known)] == known
    assert rows(long, newest, datetime(2050, 3, 4, 11, tzinfo=UTC)) == expected(5)
    assert rows(long, newest, datetime(2050, 3, 4, 16, tzinfo=UTC)) == expected(20)
    with pytest.raises(fh.UnknownSnapshot, match="was expired"):
        long.to_arrow(newest, as_of=at(7))


def test_changes_over_thinned_history_are_those_between_the_kept_states(long: fh.Lake) -> None:
    whole = long.changes(events, after=0)
    assert len(set(whole["_commit_snapshot_id"].to_pylist())) == COMMITS
    long.expire(events, **HOURLY)
    history = [info.id for info in reversed(long.history(events))]
    found = long.changes(events, after=0).to_pylist()
    numbers = {one: sorted(row["n"] for row in found if row["_commit_snapshot_id"] == one) for one in history}
    assert list(numbers.values()) == [list(range(3 * place, 3 * place + 3)) for place in range(4)]
    assert {row["_change_type"] for row in found} == {"INSERT"}


def test_the_way_back_leads_over_a_gap_and_forward_again(long: fh.Lake) -> None:
    long.expire(newest, **HOURLY)
    to = long.history(newest)[-2]
    assert long.rollback(newest, to=to.id) == to.id
    assert rows(long, newest) == expected(5)
    assert long.history(newest)[0].id == to.id
    assert long.refresh(newest).rows_read == COMMITS - 6
    assert rows(long, newest) == expected(COMMITS - 1)


def test_tables_follow_a_source_that_is_rolled_back_over_a_gap(long: fh.Lake) -> None:
    long.expire(events, **HOURLY)
    long.rollback(events, to=long.history(events)[-2].id)
    long.refresh(newest)
    assert rows(long, newest) == expected(5)
    put(long, 6)  # forgotten with the rest, so that it comes again
    put(long, 3)  # expired, and there
    long.refresh(newest)
    assert rows(long, newest) == expected(6)


def test_a_table_that_stands_far_back_goes_on_from_there(lake: fh.Lake, clock: Clock) -> None:
    put(lake, 0)
    lake.refresh(newest)
    stood = lake.history(events)[0].id
    for n in range(1, COMMITS):
        clock.now = at(n)
        put(lake, n)
    lake.expire(events, **HOURLY)
    assert stood in ids(lake, events)
    clock.forward(seconds=1)
    lake.expire(events, **NOW)
    assert ids(lake, events) == {stood, lake.history(events)[0].id}
    came = lake.refresh(newest)
    assert (came.rows_read, rows(lake, newest)) == (COMMITS - 1, expected(COMMITS - 1))


def test_a_batch_whose_commit_was_thinned_is_not_appended_again(long: fh.Lake) -> None:
    long.expire(events, **HOURLY)
    for n in (0, 2, 3, 10, 11):
        put(long, n)
    assert len(long.history(events)) == len(KEPT)


def test_parents_are_named_although_they_are_gone_and_the_nearest_kept_one_is_known(long: fh.Lake) -> None:
    history = [info.id for info in reversed(long.history(newest))]
    long.expire(newest, **HOURLY)
    iceberg = long.load(newest)
    for snapshot, n in zip(iceberg.snapshots(), KEPT, strict=True):
        assert snapshot.parent_snapshot_id == history[n - 1]
    below = thinned(iceberg.metadata).below
    assert below == {history[n]: history[m] for m, n in itertools.pairwise(KEPT)}


def test_icebergs_own_log_holds_nothing_before_the_newest_removed_snapshot(long: fh.Lake) -> None:
    """So says the specification: a reader that knows no gaps must not answer with the state before one."""
    long.expire(newest, **HOURLY)
    assert [entry.snapshot_id for entry in long.load(newest).metadata.snapshot_log] == [long.history(newest)[0].id]
    assert len(heads(long.load(newest).metadata)) == 2 * len(KEPT)


def test_what_another_tool_expired_is_refused_and_never_guessed(long: fh.Lake) -> None:
    long.expire(newest, **HOURLY)
    kept = [info.id for info in reversed(long.history(newest))]
    long.load(newest).maintenance.expire_snapshots().by_ids(kept[1:2]).commit()
    assert [info.id for info in long.history(newest)] == [kept[3], kept[2]], "nobody says what these stood on"
    for n in (5, 6, 7):
        with pytest.raises(fh.UnknownSnapshot, match="was expired"):
            long.to_arrow(newest, as_of=at(n))
    assert rows(long, newest, at(2)) == expected(2)
    assert rows(long, newest, at(8)) == expected(8)
    with pytest.raises(fh.UnknownSnapshot, match="not in the history of its head"):
        long.rollback(newest, to=kept[0])
    put(long, COMMITS)
    long.refresh(newest)
    assert rows(long, newest) == expected(COMMITS)


def test_a_state_that_was_rolled_back_stays_known_by_its_time(long: fh.Lake, clock: Clock) -> None:
    back = long.history(newest)[4].id
    clock.now = at(COMMITS) + timedelta(hours=2)
    long.rollback(newest, to=back)
    clock.forward(hours=2)
    long.refresh(newest)
    for _ in range(2):
        assert rows(long, newest, at(COMMITS) + timedelta(hours=1)) == expected(COMMITS - 1)
        assert rows(long, newest, at(COMMITS) + timedelta(hours=3)) == expected(COMMITS - 5)
        assert rows(long, newest, clock.now) == expected(COMMITS - 1)
        long.expire(newest, **HOURLY)


def test_a_consumer_that_another_tool_left_behind_is_told_both_ways_out(lake: fh.Lake) -> None:
    for n in range(4):
        put(lake, n)
        lake.refresh(newest)
    put(lake, 4)
    sources, own = ([info.id for info in lake.history(table)] for table in (events, newest))
    lake.load(events).maintenance.expire_snapshots().by_ids(sources[1:3]).commit()
    with pytest.raises(fh.UnknownSnapshot, match="another tool expired it") as refused:
        lake.refresh(newest)
    assert "`foldhouse rebuild h.newest`" in str(refused.value)
    assert f"`foldhouse rollback h.newest --to {own[2]}`" in str(refused.value)
    lake.rollback(newest, to=own[2])
    lake.refresh(newest)
    assert rows(lake, newest) == expected(4)


def test_a_table_that_is_rolled_back_to_before_an_expiry_of_its_source_is_told_so(lake: fh.Lake) -> None:
    for n in range(3):
        put(lake, n)
        lake.refresh(newest)
    lake.expire(events, older_than=timedelta(), in_use=timedelta(), keep_last=1)
    planned = lake.plan_rollback(newest, to=lake.history(newest)[1].id)
    assert planned.expired == ("h.events",)
    assert "Its position in h.events has expired there: every refresh is then refused until" in rollback_text(planned)
    assert lake.plan_rollback(newest, to=lake.history(newest)[0].id).expired == ()
    lake.rollback(newest, to=planned.snapshot_id)
    with pytest.raises(
        fh.UnknownSnapshot, match=r"or h\.newest was rolled back to a commit whose position had expired"
    ):
        lake.refresh(newest)
    lake.rebuild(newest)
    assert rows(lake, newest) == expected(2)


def test_a_consumer_none_of_whose_commits_can_go_on_is_told_so(lake: fh.Lake) -> None:
    for n in range(3):
        put(lake, n)
        lake.refresh(newest)
    put(lake, 3)
    gone = [info.id for info in lake.history(events)][1:]
    lake.load(events).maintenance.expire_snapshots().by_ids(gone).commit()
    with pytest.raises(fh.UnknownSnapshot, match=r"no kept commit of h\.newest has a position that is still"):
        lake.refresh(newest)
    lake.rebuild(newest)
    assert rows(lake, newest) == expected(3)


def test_nothing_outside_the_tables_location_is_deleted_whatever_its_metadata_names(
    lake: fh.Lake, tmp_path: Path
) -> None:
    """A file that is registered from elsewhere belongs to somebody else."""
    put(lake, 0)
    iceberg = lake.load(events)
    (path,) = live_slices(iceberg, iceberg.metadata.current_snapshot_id)
    elsewhere = tmp_path / "elsewhere.parquet"
    elsewhere.write_bytes(Path(path.removeprefix("file://")).read_bytes())
    linked = Path(iceberg.location().removeprefix("file://")) / "data" / "link"
    linked.symlink_to(tmp_path, target_is_directory=True)
    from foldhouse.storage.removal import delete

    for named_path in (str(elsewhere), elsewhere.as_uri(), f"{iceberg.location()}/../../../../elsewhere.parquet"):
        assert not delete(iceberg, named_path)
    assert not delete(iceberg, f"{iceberg.location()}/data/link/elsewhere.parquet")
    assert elsewhere.exists()
    assert delete(iceberg, path)


def test_a_table_says_when_its_expiry_is_overdue(long: fh.Lake, clock: Clock) -> None:
    assert long.upkeep(newest) == ()
    long.tuning = fh.Tuning(overdue_snapshots=5)
    (said,) = long.upkeep(newest)
    assert said.startswith("foldhouse expire is overdue")
    long.expire(newest)
    assert long.upkeep(newest) == ()


def test_times_are_told_as_before(long: fh.Lake) -> None:
    times = {info.id: info.committed_at for info in long.history(events)}
    assert list(times.values()) == sorted(times.values(), reverse=True)
    long.expire(events, **HOURLY)
    for info in long.history(events):
        assert info.committed_at == times[info.id]
