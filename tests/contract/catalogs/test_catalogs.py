"""The requirements of foldhouse on a catalog, tried over every catalog of `conftest.py`.

Covered without a server are SQLite as `fh.Lake.local` opens it, pyiceberg's `SqlCatalog` over a SQLite file and over
SQLite in memory, and its `InMemoryCatalog`. Covered with servers are Postgres and Iceberg's own REST catalog, each over
files and over S3 by moto, and Glue by moto. Not covered are AWS's own Glue, Hive, DynamoDB and BigQuery: nothing here
shows that foldhouse is right over those.
"""

from __future__ import annotations

from datetime import date, timedelta
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyarrow.fs import FileSelector, FileType
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table.update import AssertRefSnapshotId, SetPropertiesUpdate

import foldhouse as fh
from foldhouse.storage import races
from foldhouse.testing import FaultyCatalog

DAYS = [date(2024, 1, day) for day in (1, 2, 3)]
SCHEMA = {"key": "string", "day": "date", "n": "int"}
NOW: dict[str, Any] = {"older_than": timedelta(), "in_use": timedelta(), "keep_last": 1}

events = fh.stream("c.events", schema=SCHEMA, partition_by="day")
other = fh.stream("c.other", schema=SCHEMA)
totals = fh.table("c.totals", source=events, keys="key", fold=fh.fold(n=fh.total("n"), rows=fh.count()))
by_day = fh.table("c.totals", source=events, keys="day", partition_by="day", fold=fh.fold(n=fh.total("n")))
over_events = fh.table("c.events", source=other, keys="key", fold=fh.fold(n=fh.total("n")))
into_totals = fh.stream("c.totals", schema=SCHEMA)

UNKNOWN = [ConnectionError("connection reset by peer"), TimeoutError("gave up waiting"), OSError("input/output error")]


def over(catalog: Any) -> fh.Lake:
    return fh.Lake(catalog, lambda: pytest.fail("no JVM is needed"))


@pytest.fixture
def faulty(lake: fh.Lake) -> FaultyCatalog:
    return FaultyCatalog(lake.catalog)


def batch(*values: int, day: date = DAYS[0]) -> pa.Table:
    return pa.table(
        {
            "key": ["odd" if value % 2 else "even" for value in values],
            "day": pa.array([day] * len(values), pa.date32()),
            "n": pa.array(values, pa.int32()),
        }
    )


def held(lake: fh.Lake, stream: fh.Stream = events) -> list[int]:
    found: list[int] = lake.to_arrow(stream)["n"].to_pylist()
    return sorted(found)


def folded(lake: fh.Lake) -> dict[str, tuple[int, int]]:
    return {row["key"]: (row["n"], row["rows"]) for row in lake.to_arrow(totals).to_pylist()}


def expected(*values: int) -> dict[str, tuple[int, int]]:
    groups = {"odd": [one for one in values if one % 2], "even": [one for one in values if not one % 2]}
    return {key: (sum(group), len(group)) for key, group in groups.items() if group}


def files(lake: fh.Lake, stream: fh.Stream) -> set[str]:
    iceberg = lake.load(stream)
    assert isinstance(iceberg.io, PyArrowFileIO)
    scheme, netloc, path = iceberg.io.parse_location(iceberg.location())
    found = iceberg.io.fs_by_scheme(scheme, netloc).get_file_info(FileSelector(path, recursive=True))
    return {one.path for one in found if one.type == FileType.File}


# Appends


def test_what_is_appended_is_there_once_and_in_the_history(lake: fh.Lake) -> None:
    assert lake.tables() == []
    first = lake.append(events, batch(1, 2))
    second = lake.append(events, batch(3))
    assert held(lake) == [1, 2, 3]
    assert [one.id for one in lake.history(events)] == [second.snapshot_id, first.snapshot_id]
    assert lake.tables() == ["c.events"]


def test_a_batch_is_appended_once_however_often_it_is_sent(lake: fh.Lake) -> None:
    assert lake.append(events, batch(1, 2), batch_id="monday").committed
    assert not lake.append(events, batch(1, 2), batch_id="monday").committed
    assert lake.append(events, batch(3), batch_id="tuesday").committed
    assert held(lake) == [1, 2, 3]


def test_a_batch_that_was_rolled_back_may_be_appended_again(lake: fh.Lake) -> None:
    first = lake.append(events, batch(1)).snapshot_id
    lake.append(events, batch(2), batch_id="monday")
    lake.rollback(events, to=first)
    assert lake.append(events, batch(2), batch_id="monday").committed
    assert held(lake) == [1, 2]


def test_a_day_that_lands_again_replaces_its_events_alone(lake: fh.Lake) -> None:
    lake.replace(events, batch(1, 2), partitions=DAYS[:1])
    lake.replace(events, batch(3, day=DAYS[1]), partitions=DAYS[1:2])
    lake.replace(events, batch(7), partitions=DAYS[:1])
    assert held(lake) == [3, 7]


# Refreshes


def test_a_refresh_folds_what_is_new_and_says_so_when_nothing_is(lake: fh.Lake) -> None:
    lake.append(events, batch(1, 2))
    assert lake.refresh(totals).committed
    lake.append(events, batch(3))
    assert lake.refresh(totals).rows_read == 1
    assert not lake.refresh(totals).committed
    assert folded(lake) == expected(1, 2, 3)


def test_a_refresh_takes_back_what_was_corrected_and_what_was_rolled_back(lake: fh.Lake) -> None:
    first = lake.replace(events, batch(1, 2), partitions=DAYS[:1]).snapshot_id
    lake.refresh(totals)
    lake.replace(events, batch(5, 7), partitions=DAYS[:1])
    lake.refresh(totals)
    assert folded(lake) == expected(5, 7)
    lake.rollback(events, to=first)
    lake.refresh(totals)
    assert folded(lake) == expected(1, 2)


# Lost races


def test_an_append_that_lost_its_race_is_repeated_and_nothing_is_lost(lake: fh.Lake, faulty: FaultyCatalog) -> None:
    lake.append(events, batch(1))
    faulty.lets_act(lambda: lake.append(events, batch(2)))
    over(faulty).append(events, batch(3))
    assert held(lake) == [1, 2, 3]
    assert len(lake.history(events)) == 3


def test_a_refresh_that_lost_its_race_is_repeated_and_counts_nothing_twice(
    lake: fh.Lake, faulty: FaultyCatalog
) -> None:
    lake.append(events, batch(1))
    lake.refresh(totals)
    lake.append(events, batch(2))

    def others() -> None:
        lake.append(events, batch(3))
        lake.refresh(totals)

    faulty.lets_act(others)
    over(faulty).refresh(totals)
    assert folded(lake) == expected(1, 2, 3)


def test_a_race_that_is_always_lost_is_a_conflict_and_nothing_is_written(
    lake: fh.Lake, faulty: FaultyCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(races, "time", SimpleNamespace(sleep=lambda _seconds: None))
    lake.append(events, batch(1))
    head = lake.head(events)
    faulty.fails_before(CommitFailedException("somebody else was faster"), times=None)
    with pytest.raises(fh.CommitConflict, match=r"c\.events was committed to by another writer .*tried 10 times"):
        over(faulty).append(events, batch(2))
    assert lake.head(events) == head


def test_the_catalog_itself_refuses_a_commit_on_a_head_that_moved(lake: fh.Lake) -> None:
    lake.append(events, batch(1))
    read = lake.load(events)
    lake.append(events, batch(2))
    asked = AssertRefSnapshotId(ref="main", snapshot_id=read.metadata.current_snapshot_id)
    with pytest.raises(CommitFailedException):
        lake.catalog.commit_table(read, (asked,), (SetPropertiesUpdate(updates={"comment": "late"}),))
    assert lake.load(events).properties.get("comment") != "late"
    assert held(lake) == [1, 2]


# Commits that landed, and were reported failed


def test_an_append_that_landed_but_was_reported_failed_is_applied_once(lake: fh.Lake, faulty: FaultyCatalog) -> None:
    lake.append(events, batch(1))
    faulty.denies(times=3)
    assert over(faulty).append(events, batch(2)).committed
    assert held(lake) == [1, 2]
    assert len(lake.history(events)) == 2


@pytest.mark.parametrize("failure", UNKNOWN, ids=lambda one: type(one).__name__)
def test_a_refresh_whose_answer_was_lost_is_applied_once(
    lake: fh.Lake, faulty: FaultyCatalog, failure: Exception
) -> None:
    lake.append(events, batch(1, 2))
    lake.refresh(totals)
    lake.append(events, batch(3))
    assert over(faulty.fails_after(failure)).refresh(totals).committed
    assert not lake.refresh(totals).committed
    assert folded(lake) == expected(1, 2, 3)


@pytest.mark.parametrize("failure", UNKNOWN, ids=lambda one: type(one).__name__)
def test_a_commit_that_did_not_land_leaves_the_old_state_and_running_it_again_is_right(
    lake: fh.Lake, faulty: FaultyCatalog, failure: Exception
) -> None:
    lake.append(events, batch(1))
    faulty.fails_before(failure)
    with pytest.raises(fh.FoldhouseError, match=str(failure)):
        over(faulty).append(events, batch(2), batch_id="monday")
    assert held(lake) == [1]
    assert lake.append(events, batch(2), batch_id="monday").committed
    assert held(lake) == [1, 2]


# Rollback


def test_a_rollback_brings_back_what_there_was(lake: fh.Lake) -> None:
    first = lake.append(events, batch(1)).snapshot_id
    lake.append(events, batch(2))
    lake.rollback(events, to=first)
    assert held(lake) == [1]
    lake.append(events, batch(3))
    assert held(lake) == [1, 3]


def test_a_rollback_does_not_throw_away_what_others_commit_just_before_it(lake: fh.Lake, faulty: FaultyCatalog) -> None:
    first = lake.append(events, batch(1)).snapshot_id
    lake.append(events, batch(2))
    faulty.lets_act(lambda: lake.append(events, batch(3)))
    with pytest.raises(fh.CommitConflict):
        over(faulty).rollback(events, to=first)
    assert held(lake) == [1, 2, 3]


# Rebuilds


def test_a_rebuild_is_seen_at_once_and_whole(lake: fh.Lake, faulty: FaultyCatalog) -> None:
    lake.append(events, batch(1, 2))
    lake.append(events, batch(3, day=DAYS[1]))
    lake.refresh(totals)
    seen = []
    faulty.lets_act(lambda: seen.append(folded(lake)), nth=1)  # before its columns and partitioning are added
    faulty.lets_act(lambda: seen.append(folded(lake)), nth=2)  # before the commit to the branch
    faulty.lets_act(lambda: seen.append(folded(lake)), nth=3)  # before the swap
    over(faulty).rebuild(by_day)
    assert seen == [expected(1, 2, 3)] * 3
    assert {row["day"]: row["n"] for row in lake.to_arrow(by_day).to_pylist()} == {DAYS[0]: 3, DAYS[1]: 3}
    assert set(lake.load(by_day).metadata.refs) == {"main"}


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_rebuild_that_was_overtaken_at_any_step_starts_over(lake: fh.Lake, faulty: FaultyCatalog, nth: int) -> None:
    lake.append(events, batch(1))
    lake.refresh(totals)

    def others() -> None:
        lake.append(events, batch(2))
        lake.refresh(totals)

    over(faulty.lets_act(others, nth=nth)).rebuild(by_day)
    assert lake.to_arrow(by_day).to_pylist() == [{"day": DAYS[0], "n": 3}]


# Expiry


def test_an_expiry_removes_old_snapshots_and_files_and_no_row(lake: fh.Lake) -> None:
    for value in (1, 2, 3):
        lake.replace(events, batch(value), partitions=DAYS[:1])
    before = files(lake, events)
    expired = lake.expire(events, **NOW)
    assert expired.snapshots_removed == 2
    assert expired.files_deleted > 0
    assert len(files(lake, events) & before) < len(before)
    assert len(lake.load(events).snapshots()) == 1
    assert held(lake) == [3]


def test_an_expiry_loses_nothing_that_others_commit_just_before_it(lake: fh.Lake, faulty: FaultyCatalog) -> None:
    for value in (1, 2, 3):
        lake.append(events, batch(value))
    over(faulty.lets_act(lambda: lake.append(events, batch(4)))).expire(events, **NOW)
    assert held(lake) == [1, 2, 3, 4]


# Kinds


def test_a_fold_is_not_written_over_a_stream_nor_events_into_a_fold(lake: fh.Lake) -> None:
    lake.append(events, batch(1))
    lake.append(other, batch(2))
    lake.refresh(totals)
    heads = lake.head(events), lake.head(totals)
    with pytest.raises(fh.DefinitionError, match=r"c\.events is declared as a table, but the lake's .* is a stream"):
        lake.refresh(over_events)
    with pytest.raises(fh.DefinitionError, match=r"c\.totals"):
        lake.append(into_totals, batch(3))
    assert (lake.head(events), lake.head(totals)) == heads
