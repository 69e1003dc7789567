"""What a commit changed in published rows, the figures of the latest commits, and rows by day."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest

import foldhouse as fh
from foldhouse.lake import reading
from foldhouse.values.corrected import Correction

DAY = date(2024, 3, 4)
events = fh.stream("c.events", schema={"key": "string", "n": "long", "at": "date"}, keys="key", sequence_by="n")
last = fh.table("c.last", source=events, fold=fh.latest(delete_when="n = 100"))
by_day = fh.table(
    "c.by_day", source=events, keys="at", fold=fh.fold(n=fh.total("n"), least=fh.minimum("n")), partition_by="at"
)


def add(lake: fh.Lake, *rows: tuple[str, int, int]) -> None:
    lake.append(events, [{"key": key, "n": n, "at": DAY + timedelta(days=day)} for key, n, day in rows])


def snapshot(done: fh.Refreshed) -> int:
    assert done.snapshot_id is not None
    return done.snapshot_id


def test_a_first_fold_and_new_rows_correct_nothing(lake: fh.Lake) -> None:
    add(lake, ("a", 1, 0))
    first = lake.refresh(by_day)
    assert lake.corrections(by_day, as_of=snapshot(first)).total == 0
    add(lake, ("b", 2, 1))
    assert lake.corrections(by_day, as_of=snapshot(lake.refresh(by_day))).total == 0


def test_changed_columns_are_shown_before_and_after_and_removed_rows_as_they_were(spark_lake) -> None:
    lake = spark_lake()
    add(lake, ("a", 1, 0), ("b", 2, 0), ("c", 3, 0))
    lake.refresh(last)
    add(lake, ("a", 5, 0), ("b", 100, 1), ("d", 7, 0))
    found = lake.corrections(last, as_of=snapshot(lake.refresh(last)))
    assert found.total == 2
    assert found.rows == (
        Correction({"key": "a"}, {"n": 1}, {"n": 5}),
        Correction({"key": "b"}, {"n": 2, "at": DAY}, None),
    )


def test_the_first_rows_are_returned_and_all_are_counted(lake: fh.Lake) -> None:
    add(lake, *((str(day), 10, day) for day in range(9)))
    lake.refresh(by_day)
    add(lake, *((str(day), 1, day) for day in range(9)))
    found = lake.corrections(by_day, as_of=snapshot(lake.refresh(by_day)), most=2)
    assert found.total == 9
    assert [one.key for one in found.rows] == [{"at": DAY}, {"at": DAY + timedelta(days=1)}]
    assert found.rows[0] == Correction({"at": DAY}, {"n": 10, "least": 10}, {"n": 11, "least": 1})


def test_a_commit_that_changed_large_files_is_not_read(lake: fh.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    add(lake, ("a", 1, 0))
    lake.refresh(by_day)
    add(lake, ("b", 2, 0))
    done = lake.refresh(by_day)
    monkeypatch.setattr(reading, "_MOST_COMPARED", 1)
    found = lake.corrections(by_day, as_of=snapshot(done))
    assert (found.total, found.rows) == (None, ())


def test_a_snapshot_that_is_not_there_is_refused(lake: fh.Lake) -> None:
    add(lake, ("a", 1, 0))
    lake.refresh(by_day)
    with pytest.raises(fh.UnknownSnapshot):
        lake.corrections(by_day, as_of=7)


def test_the_figures_are_those_of_the_latest_folding_commits(lake: fh.Lake) -> None:
    lake.tuning = fh.Tuning(merged_small_files=1_000, merged_delete_files=1_000)  # leaves files to the compaction
    all_keys = fh.table("c.keys", source=events, fold=fh.fold(n=fh.total("n")))
    add(lake, *((f"k{number}", 1, 0) for number in range(1_500)))
    lake.refresh(all_keys)
    for number in range(3):
        add(lake, (f"new{number}", 1, 0))
        lake.refresh(all_keys)
    assert lake.compact(all_keys, min_files=2).committed  # changes no row, so it is no figure
    found = lake.figures(all_keys, commits=3)
    assert [one.rows for one in found] == [1_501, 1_502, 1_503]
    assert [one.rows_read for one in found] == [1, 1, 1]
    assert all(0 < (one.seconds or 0) < 60 and 0 <= (one.lag_seconds or 0) < 60 for one in found)
    assert [one.committed_at for one in found] == sorted(one.committed_at for one in found)


def test_left_out_rows_are_those_of_all_commits_also_after_a_correction_that_has_none(lake: fh.Lake) -> None:
    lake.append(events, [{"key": None, "n": 1, "at": DAY}, {"key": "a", "n": 2, "at": DAY}])
    all_keys = fh.table("c.keys", source=events, fold=fh.fold(n=fh.total("n")))
    assert lake.refresh(all_keys).null_key_rows == 1
    add(lake, ("a", 1, 0))
    assert lake.refresh(all_keys).null_key_rows == 0
    assert [one.rows_left_out for one in lake.figures(all_keys)] == [1, 1]


def test_the_lag_of_a_commit_counts_from_the_newest_commit_that_it_folded(lake: fh.Lake) -> None:
    add(lake, ("a", 1, 0))
    lake.refresh(by_day)
    [before] = lake.history(events)
    [figures] = lake.figures(by_day)
    assert figures.lag_seconds == (figures.committed_at - before.committed_at).total_seconds()
    assert figures.committed_at <= datetime.now(UTC)
    lake.catalog.drop_table("c.events")
    assert [one.lag_seconds for one in lake.figures(by_day)] == [None]


def test_rows_by_day_are_counted_for_days_with_and_without_rows(lake: fh.Lake) -> None:
    add(lake, ("a", 1, 0), ("b", 1, 2))
    lake.refresh(by_day)
    asked = [DAY + timedelta(days=number) for number in range(3)]
    assert lake.rows_by_day(by_day, asked) == dict(zip(asked, [1, 0, 1], strict=True))
    assert lake.rows_by_day(by_day, []) == {}
