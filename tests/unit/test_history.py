"""A long history: the newest snapshots are listed, the others in chapters, and who asks cannot tell the difference."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from expiring import NOW, ids, named, on_disk
from pyiceberg.table import StaticTable

import foldhouse as fh
from foldhouse.errors import CommitConflict
from foldhouse.storage import archive, history
from foldhouse.storage.history import PROPERTY, chapters, lineage, older_snapshots, snapshot_of, snapshots_of

COMMITS = 30
events = fh.stream("h.events", schema={"key": "long", "n": "long"}, keys="key", sequence_by="n")
newest = fh.table("h.newest", source=events, fold=fh.latest())


@pytest.fixture(autouse=True)
def few_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MOST_LISTED", 5)
    monkeypatch.setattr(archive, "STAY_LISTED", 3)


def put(lake: fh.Lake, n: int) -> None:
    lake.append(events, pa.table({"key": [n % 4], "n": [n]}), batch_id=f"batch {n}")


@pytest.fixture
def long(lake: fh.Lake) -> fh.Lake:
    """A lake whose stream and table have many commits each: event number n came with the n-th, counted from 0."""
    for n in range(COMMITS):
        put(lake, n)
        lake.refresh(newest)
    return lake


def rows(lake: fh.Lake, table: fh.Stream | fh.Table, as_of: int | datetime | None = None) -> list[tuple[int, int]]:
    found = lake.to_arrow(table, as_of=as_of).to_pylist()
    return sorted((row["key"], row["n"]) for row in found)


def expected(last: int) -> list[tuple[int, int]]:
    return sorted({n % 4: n for n in range(last + 1)}.items())


def test_few_snapshots_are_listed_and_all_of_them_are_found(long: fh.Lake) -> None:
    for table in (events, newest):
        iceberg = long.load(table)
        assert len(iceberg.metadata.snapshots) <= archive.MOST_LISTED + 1
        held = [one.snapshot_id for one in snapshots_of(iceberg)]
        assert len(held) == len(set(held)) == COMMITS
        assert [one.id for one in long.history(table)] == [
            one.snapshot_id for one in lineage(iceberg, iceberg.current_snapshot())
        ]
        assert len(long.history(table)) == COMMITS


def test_every_state_is_read_by_its_id_and_by_its_time(long: fh.Lake) -> None:
    for n, info in enumerate(reversed(long.history(newest))):
        assert rows(long, newest, info.id) == expected(n)
        assert rows(long, newest, info.committed_at) == expected(n)


def test_a_moment_before_the_first_commit_is_refused_and_an_unknown_snapshot_too(long: fh.Lake) -> None:
    with pytest.raises(fh.UnknownSnapshot, match="had no snapshot yet"):
        long.to_arrow(newest, as_of=long.history(newest)[-1].committed_at - timedelta(milliseconds=1))
    with pytest.raises(fh.UnknownSnapshot, match="has no snapshot 12345"):
        long.to_arrow(newest, as_of=12345)


def test_changes_lead_from_the_first_commit_to_the_last(long: fh.Lake) -> None:
    found = long.changes(newest, after=0).to_pylist()
    assert [row["n"] for row in found if row["_change_type"] in ("INSERT", "UPDATE_AFTER")] == list(range(COMMITS))
    assert {row["_change_ordinal"] for row in found} == set(range(COMMITS))


def left_behind(lake: fh.Lake) -> int:
    """The table stands at the first of many commits of the stream: which one that is."""
    put(lake, 0)
    lake.refresh(newest)
    for n in range(1, COMMITS):
        put(lake, n)
    return lake.history(events)[-1].id


def test_a_table_that_stands_far_back_goes_on_from_there(lake: fh.Lake) -> None:
    stood = left_behind(lake)
    assert lake.load(events).snapshot_by_id(stood) is None
    came = lake.refresh(newest)
    assert (came.rows_read, rows(lake, newest)) == (COMMITS - 1, expected(COMMITS - 1))


def test_a_batch_that_came_long_ago_is_not_appended_again(long: fh.Lake) -> None:
    put(long, 2)
    assert len(long.history(events)) == COMMITS


def test_a_batch_that_was_appended_writes_nothing_when_it_comes_again(lake: fh.Lake) -> None:
    put(lake, 0)
    before = on_disk(lake, events)
    put(lake, 0)
    assert on_disk(lake, events) == before


def test_history_whose_file_somebody_removed_is_told_by_name(long: fh.Lake) -> None:
    oldest = long.history(newest)[-1].id
    for chapter in chapters(long.load(newest).metadata).held:
        Path(chapter.file.removeprefix("file://")).unlink()
    history._read.cache_clear()
    with pytest.raises(fh.UnknownSnapshot, match=r"older snapshots of h.newest are not in .* any more"):
        long.to_arrow(newest, as_of=oldest)
    put(long, COMMITS)
    long.refresh(newest)  # nobody needs them to go on
    assert rows(long, newest) == expected(COMMITS)


def test_an_expiry_lets_a_stream_go_on_whose_older_history_somebody_removed(long: fh.Lake) -> None:
    for chapter in chapters(long.load(events).metadata).held:
        Path(chapter.file.removeprefix("file://")).unlink()
    history._read.cache_clear()
    history._said.cache_clear()
    with pytest.raises(fh.UnknownSnapshot, match=r"`foldhouse expire h\.events`"):
        put(long, COMMITS)  # whether that batch came before cannot be told
    long.expire(events)
    assert len(long.history(events)) == len(long.load(events).metadata.snapshots)
    put(long, COMMITS)
    long.refresh(newest)
    assert rows(long, newest) == expected(COMMITS)


def test_the_way_back_to_a_listed_snapshot_moves_the_branch_alone(long: fh.Lake) -> None:
    to = long.history(newest)[1].id
    assert long.rollback(newest, to=to) == to
    assert len(long.history(newest)) == COMMITS - 1


def test_the_way_back_to_an_older_one_is_a_commit_that_stands_on_it(long: fh.Lake) -> None:
    older = long.history(newest)[-5]
    head = long.rollback(newest, to=older.id)
    assert head != older.id
    assert rows(long, newest) == expected(4)
    (info, below, *_) = long.history(newest)
    assert (info.id, info.operation, below) == (head, "replace", older)
    assert fh.lake.position_of(info) == fh.lake.position_of(older)
    assert long.changes(newest, after=older.id).num_rows == 0
    assert long.refresh(newest).rows_read == COMMITS - 5
    assert rows(long, newest) == expected(COMMITS - 1)


def test_tables_follow_their_source_far_back(long: fh.Lake) -> None:
    head = long.rollback(events, to=long.history(events)[-5].id)
    assert rows(long, events) == [(n % 4, n) for n in (0, 4, 1, 2, 3)]
    long.refresh(newest)
    assert rows(long, newest) == expected(4)
    put(long, 5)  # forgotten with the rest, so that it comes again
    assert long.history(events)[1].id == head
    long.refresh(newest)
    assert rows(long, newest) == expected(5)


def test_tags_and_what_they_name_stay_listed(lake: fh.Lake) -> None:
    put(lake, 0)
    first = lake.history(events)[0].id
    lake.load(events).manage_snapshots().create_tag(first, "kept").commit()
    for n in range(1, COMMITS):
        put(lake, n)
    assert lake.load(events).snapshot_by_id(first) is not None
    assert rows(lake, events, first) == [(0, 0)]
    assert lake.to_arrow(events, as_of="kept").num_rows == 1


def test_chapters_are_few_and_any_reader_of_iceberg_opens_them(long: fh.Lake) -> None:
    iceberg = long.load(newest)
    held = chapters(iceberg.metadata).held
    sizes = [one.snapshots for one in held]
    assert sizes == sorted(sizes, reverse=True)
    assert sum(sizes) + len(iceberg.metadata.snapshots) == COMMITS
    assert len(sizes) <= 4
    older = StaticTable.from_metadata(held[-1].file)
    last = older.current_snapshot()
    assert last is not None
    found = older.scan(snapshot_id=last.snapshot_id).to_arrow().to_pylist()
    assert sorted((row["key"], row["n"]) for row in found) == rows(long, newest, last.snapshot_id)


def test_nothing_lies_about_that_nothing_names(long: fh.Lake) -> None:
    for table in (events, newest):
        assert on_disk(long, table) == named(long, table)


def test_expiry_reaches_the_chapters(long: fh.Lake) -> None:
    kept = {info.id for info in long.history(newest)[:12]}
    done = long.expire(newest, **{**NOW, "keep_last": 12})
    assert (done.snapshots_removed, done.snapshots_left) == (COMMITS - 12, 12)
    assert ids(long, newest) == kept
    assert done.files_deleted > 0
    assert on_disk(long, newest) == named(long, newest)
    for n, info in enumerate(reversed(long.history(newest)), start=COMMITS - 12):
        assert rows(long, newest, info.id) == expected(n)
    assert long.expire(newest, **NOW).snapshots_left == 1
    assert not list(older_snapshots(long.load(newest)))
    assert rows(long, newest) == expected(COMMITS - 1)


def test_expiry_keeps_a_position_that_is_in_a_chapter(lake: fh.Lake) -> None:
    stood = left_behind(lake)
    lake.expire(events, **NOW)
    assert ids(lake, events) == {stood, lake.history(events)[0].id}
    assert lake.refresh(newest).rows_read == COMMITS - 1
    assert rows(lake, newest) == expected(COMMITS - 1)


def test_what_a_commit_wrote_stands_where_its_history_cannot_be_moved(
    lake: fh.Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> None:
        raise OSError("the disk is full")

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(archive, "write_chapter", fails)
        for n in range(10):
            put(lake, n)
    assert "the older history of h.events could not be moved" in caplog.text
    assert len(lake.load(events).metadata.snapshots) == 10
    put(lake, 10)
    assert len(lake.load(events).metadata.snapshots) == archive.STAY_LISTED
    assert len(lake.history(events)) == 11


def test_a_tag_that_is_set_meanwhile_is_not_lost(lake: fh.Lake) -> None:
    for n in range(5):
        put(lake, n)
    iceberg = lake.load(events)
    first = lake.history(events)[-1].id
    lake.load(events).manage_snapshots().create_tag(first, "kept").commit()
    with pytest.raises(CommitConflict):
        archive.archive(lake.catalog, iceberg)
    assert lake.load(events).refs()["kept"].snapshot_id == first
    assert on_disk(lake, events) == named(lake, events)


def test_two_who_move_the_same_history_do_it_once(lake: fh.Lake) -> None:
    for n in range(5):
        put(lake, n)
    iceberg = lake.load(events)
    archive.archive(lake.catalog, iceberg)
    with pytest.raises(CommitConflict):
        archive.archive(lake.catalog, iceberg)
    assert len(lake.history(events)) == 5
    assert on_disk(lake, events) == named(lake, events)


class _Death(BaseException):
    """The process ends here: nobody handles it."""


def _dies(*_: object, **__: object) -> None:
    raise _Death


@pytest.mark.parametrize(("place", "name"), [(archive, "write_chapter"), (archive, "expire"), (archive, "_delete")])
def test_a_process_that_dies_while_history_moves_loses_none_of_it(
    lake: fh.Lake, monkeypatch: pytest.MonkeyPatch, place: object, name: str
) -> None:
    deaths = 0
    for n in range(COMMITS):
        with monkeypatch.context() as patch:
            if n % 3:
                patch.setattr(place, name, _dies)
            try:
                put(lake, n)
            except _Death:
                deaths += 1
        put(lake, n)  # again, as after any crash: it was appended
        lake.refresh(newest)
    assert deaths
    assert len(lake.history(events)) == COMMITS
    for n, info in enumerate(reversed(lake.history(newest))):
        assert rows(lake, newest, info.id) == expected(n)


def test_parents_are_named_although_they_are_not_listed(long: fh.Lake) -> None:
    """Pyiceberg's own removal makes their children forget them, and the history would end there."""
    iceberg = long.load(newest)
    oldest = min(iceberg.metadata.snapshots, key=lambda one: one.timestamp_ms)
    assert oldest.parent_snapshot_id is not None
    assert iceberg.snapshot_by_id(oldest.parent_snapshot_id) is None
    assert snapshot_of(iceberg, oldest.parent_snapshot_id) is not None


def test_metadata_does_not_grow_with_the_history(long: fh.Lake) -> None:
    size = Path(long.load(events).metadata_location.removeprefix("file://")).stat().st_size
    for n in range(COMMITS, 2 * COMMITS):
        put(long, n)
    after = json.loads(Path(long.load(events).metadata_location.removeprefix("file://")).read_text())
    assert len(json.dumps(after)) < 1.5 * size
    assert len(json.loads(after["properties"][PROPERTY])["held"]) <= 5


def test_times_are_told_as_before(long: fh.Lake) -> None:
    times = [info.committed_at for info in long.history(events)]
    assert times == sorted(times, reverse=True)
    assert all(time <= datetime.now(UTC) for time in times)
