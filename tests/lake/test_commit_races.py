"""A commit that meets others, a catalog that lies about it, and clocks that are wrong."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from committing import KINDS, a_file, numbers, one_two_three, paths, rows, stream
from expiring import Clock
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table import CommitTableResponse
from pyiceberg.table import Table as IcebergTable

import foldhouse as fh
from foldhouse.storage.commit import FileChanges, commit
from foldhouse.storage.metadata import SealedCatalog
from foldhouse.storage.restore import roll_back
from foldhouse.testing import FaultyCatalog

folded = fh.table("shop.folded", source=stream, keys="n", fold=fh.fold(rows=fh.count()))


@pytest.fixture
def iceberg(lake: fh.Lake) -> Callable[[], IcebergTable]:
    return one_two_three(lake)


def files_on_disk(lake: fh.Lake) -> dict[str, bytes]:
    root = Path(lake.catalog.properties["warehouse"].removeprefix("file://"))
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def saying(catalog: Catalog, failure: Exception, *, landed: bool, times: int = 1) -> FaultyCatalog:
    """A catalog whose answer is an exception: instead of the commit, or after it."""
    faulty = FaultyCatalog(catalog)
    return faulty.fails_after(failure, times=times) if landed else faulty.fails_before(failure, times=times)


FAILURES = [
    CommitFailedException("the head moved, it says"),
    CommitStateUnknownException("502"),
    ConnectionError("connection reset by peer"),
    TimeoutError("gave up waiting"),
    OSError("input/output error"),
    ValueError("not what was expected"),
]


def by_name(failure: Exception) -> str:
    return type(failure).__name__


# A lost race


def test_a_head_that_moved_is_a_conflict_and_nothing_of_ours_is_seen(lake: fh.Lake, iceberg: Any) -> None:
    read = iceberg()
    lake.append(stream, numbers(7))
    now = iceberg()
    with pytest.raises(fh.CommitConflict, match=r"shop\.numbers was committed to by another writer"):
        commit(lake.catalog, read, FileChanges([a_file(read, 4)]), {})
    assert iceberg().metadata == now.metadata
    assert rows(iceberg()) == [1, 2, 3, 7]


def test_a_commit_that_loses_to_one_of_the_same_thread_removes_its_own_metadata_file_alone(
    lake: fh.Lake, iceberg: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal handler or a finalizer may commit while the thread that it interrupts is in a commit."""
    read, go_on = iceberg(), SqlCatalog.commit_table

    def interrupted(*given: Any) -> CommitTableResponse:
        monkeypatch.undo()
        lake.append(fh.stream("shop.others", schema={"n": "long"}), pa.table({"n": [8]}))
        lake.append(stream, numbers(7))
        return go_on(*given)

    monkeypatch.setattr(SqlCatalog, "commit_table", interrupted)
    with pytest.raises(fh.CommitConflict):
        commit(lake.catalog, read, FileChanges([a_file(read, 4)]), {})
    assert rows(iceberg()) == [1, 2, 3, 7]
    assert lake.to_arrow("shop.others")["n"].to_pylist() == [8]
    written = [path for path in files_on_disk(lake) if path.endswith(".metadata.json") and "/numbers/" in path]
    assert len(written) == len(iceberg().metadata.metadata_log) + 1


def test_a_commit_of_the_same_thread_between_staging_and_writing_leaves_both_files_whole(
    lake: fh.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = fh.stream("shop.others", schema={"n": "long"})
    lake.append(others, pa.table({"n": [8]}))
    lake.append(stream, numbers(1))
    with lake.load(stream).transaction() as changing:
        changing.set_properties({"write.metadata.compression-codec": "gzip"})
    go_on = SealedCatalog._write_metadata

    def interrupted(*given: Any) -> None:
        monkeypatch.undo()
        time.sleep(1.1)  # a gzip has the second it was made
        lake.append(others, pa.table({"n": [9]}))
        go_on(*given)

    monkeypatch.setattr(SealedCatalog, "_write_metadata", interrupted)
    lake.append(stream, numbers(2))
    lake.catalog._known.clear()  # type: ignore[attr-defined]  # so that the files are read
    assert sorted(lake.to_arrow(stream)["n"].to_pylist()) == [1, 2]
    assert sorted(lake.to_arrow(others)["n"].to_pylist()) == [8, 9]


def test_a_head_that_moved_back_is_a_conflict_too(lake: fh.Lake, iceberg: Any) -> None:
    first = iceberg().metadata.current_snapshot_id
    lake.append(stream, numbers(7))
    read = iceberg()
    lake.rollback(stream, to=first)
    with pytest.raises(fh.CommitConflict):
        commit(lake.catalog, read, FileChanges([a_file(read, 4)]), {})
    assert rows(iceberg()) == [1, 2, 3]


def test_a_first_commit_does_not_go_on_top_of_somebody_elses_first(lake: fh.Lake) -> None:
    lake.append(stream, numbers())
    read = lake.load(stream)
    lake.append(stream, numbers(1))
    with pytest.raises(fh.CommitConflict):
        commit(lake.catalog, read, FileChanges([a_file(read, 4)]), {})
    assert rows(lake.load(stream)) == [1]


def test_a_table_that_was_created_again_under_its_name_is_another_table(lake: fh.Lake) -> None:
    lake.append(stream, numbers())
    read = lake.load(stream)
    added = a_file(read, 4)
    lake.catalog.drop_table(stream.name)
    lake.append(stream, numbers())  # neither has a snapshot, so that the uuid alone tells them apart
    with pytest.raises(fh.CommitConflict):
        commit(lake.catalog, read, FileChanges([added]), {})
    assert rows(lake.load(stream)) == []


@pytest.mark.parametrize("again", [True, False], ids=["created again", "dropped"])
def test_a_table_that_was_dropped_meanwhile_is_a_conflict(lake: fh.Lake, iceberg: Any, again: bool) -> None:
    read = iceberg()
    added = a_file(read, 4)
    lake.catalog.drop_table(stream.name)
    if again:
        lake.append(stream, numbers())
    with pytest.raises(fh.CommitConflict):
        commit(lake.catalog, read, FileChanges([added]), {})
    assert lake.tables() == ([stream.name] if again else [])


def test_a_file_that_is_no_longer_there_to_be_replaced_is_a_conflict(lake: fh.Lake, iceberg: Any) -> None:
    with pytest.raises(fh.CommitConflict, match=r"shop\.numbers no longer has 1 files that were to be replaced"):
        commit(lake.catalog, iceberg(), FileChanges(removed=frozenset({"file:///gone.parquet", *paths(iceberg())})), {})
    assert rows(iceberg()) == [1, 2, 3]


# A catalog that lies


@pytest.mark.parametrize("failure", FAILURES, ids=by_name)
@pytest.mark.parametrize("kind", ["an append", "an overwrite", "rows and deletes"])
def test_a_commit_that_landed_but_was_reported_failed_counts_as_success(
    lake: fh.Lake, iceberg: Any, failure: Exception, kind: str
) -> None:
    read = iceberg()
    snapshot_id = commit(saying(lake.catalog, failure, landed=True), read, KINDS[kind](read), {})
    assert iceberg().metadata.current_snapshot_id == snapshot_id
    assert len(iceberg().snapshots()) == 2


def test_a_commit_that_landed_is_recognised_even_below_somebody_elses(lake: fh.Lake, iceberg: Any) -> None:
    read = iceberg()
    busy = FaultyCatalog(lake.catalog).lets_act_after(lambda: lake.append(stream, numbers(8, 9))).denies()
    snapshot_id = commit(busy, read, FileChanges([a_file(read, 4)]), {})
    assert rows(iceberg()) == [1, 2, 3, 4, 8, 9]
    assert iceberg().current_snapshot().parent_snapshot_id == snapshot_id


@pytest.mark.parametrize("failure", FAILURES, ids=by_name)
def test_a_commit_that_did_not_land_says_so_and_is_not_seen(lake: fh.Lake, iceberg: Any, failure: Exception) -> None:
    read = iceberg()
    expected = fh.CommitConflict if isinstance(failure, CommitFailedException) else type(failure)
    with pytest.raises(expected):
        commit(saying(lake.catalog, failure, landed=False), read, FileChanges([a_file(read, 4)]), {})
    assert iceberg().metadata == read.metadata


@pytest.mark.parametrize("landed", [True, False], ids=["landed", "did not land"])
@pytest.mark.parametrize("failure", FAILURES, ids=by_name)
def test_nothing_is_ever_deleted_by_a_commit_that_fails(
    lake: fh.Lake, iceberg: Any, failure: Exception, landed: bool
) -> None:
    changes = KINDS["an overwrite"](iceberg())
    before = files_on_disk(lake)
    try:
        commit(saying(lake.catalog, failure, landed=landed), iceberg(), changes, {})
    except (fh.CommitConflict, type(failure)):
        assert not landed
    after = files_on_disk(lake)
    assert {path: after.get(path) for path in before} == before
    assert rows(iceberg()) == ([4] if landed else [1, 2, 3])


@pytest.mark.parametrize("failure", FAILURES, ids=by_name)
def test_an_append_that_landed_but_was_reported_failed_is_not_applied_twice(
    lake: fh.Lake, iceberg: Any, failure: Exception
) -> None:
    liar = fh.Lake(saying(lake.catalog, failure, landed=True, times=3), lambda: pytest.fail("no JVM is needed"))
    liar.append(stream, numbers(4))
    assert rows(iceberg()) == [1, 2, 3, 4]


def test_a_batch_that_was_rolled_back_can_be_appended_again(lake: fh.Lake, iceberg: Any) -> None:
    first = iceberg().metadata.current_snapshot_id
    for _ in range(2):
        assert lake.append(stream, numbers(4), batch_id="b").committed
        assert not lake.append(stream, numbers(4), batch_id="b").committed
        assert rows(iceberg()) == [1, 2, 3, 4]
        lake.rollback(stream, to=first)


@pytest.mark.parametrize("landed", [True, False], ids=["landed", "did not land"])
def test_lost_races_are_run_again_until_they_are_won(lake: fh.Lake, iceberg: Any, landed: bool) -> None:
    liar = fh.Lake(saying(lake.catalog, CommitFailedException(), landed=landed, times=2), lambda: pytest.fail("no JVM"))
    liar.append(stream, numbers(4))
    assert rows(iceberg()) == [1, 2, 3, 4]
    liar = fh.Lake(saying(lake.catalog, CommitFailedException(), landed=landed, times=2), lambda: pytest.fail("no JVM"))
    liar.refresh(folded)
    assert lake.to_arrow(folded).sort_by("n").to_pylist() == [{"n": n, "rows": 1} for n in (1, 2, 3, 4)]
    assert len(lake.history(folded)) == 1


@pytest.mark.parametrize("failure", FAILURES[1:], ids=by_name)
def test_a_refresh_that_was_cut_off_is_repaired_by_running_it_again(
    lake: fh.Lake, iceberg: Any, failure: Exception
) -> None:
    for landed in (True, False):
        lake.append(stream, numbers(5))
        liar = fh.Lake(saying(lake.catalog, failure, landed=landed), lambda: pytest.fail("no JVM is needed"))
        try:
            liar.refresh(folded)
        except (fh.FoldhouseError, ValueError):
            assert not landed
        lake.refresh(folded)
    assert {row["n"]: row["rows"] for row in lake.to_arrow(folded).to_pylist()} == {1: 1, 2: 1, 3: 1, 5: 2}
    assert len(lake.history(folded)) == 2


@pytest.mark.parametrize("failure", FAILURES, ids=by_name)
def test_a_rollback_that_landed_but_was_reported_failed_counts_as_success(
    lake: fh.Lake, iceberg: Any, failure: Exception
) -> None:
    first = iceberg().metadata.current_snapshot_id
    lake.append(stream, numbers(4))
    roll_back(saying(lake.catalog, failure, landed=True), iceberg(), first)
    assert rows(iceberg()) == [1, 2, 3]


def test_a_rollback_does_not_throw_away_what_was_committed_meanwhile(lake: fh.Lake, iceberg: Any) -> None:
    first = iceberg().metadata.current_snapshot_id
    lake.append(stream, numbers(4))
    read = iceberg()
    lake.append(stream, numbers(5))
    with pytest.raises(fh.CommitConflict, match=r"shop\.numbers was committed to by another writer meanwhile"):
        roll_back(lake.catalog, read, first)
    assert rows(iceberg()) == [1, 2, 3, 4, 5]


# Clocks


def test_a_clock_that_runs_backwards_does_not_turn_history_round(
    lake: fh.Lake, iceberg: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iceberg().metadata.last_updated_ms / 1000
    clock = Clock(monkeypatch)
    for seconds in (3600, 10, -7200, 3599):
        clock.now = datetime.fromtimestamp(now + seconds, UTC)
        commit(lake.catalog, iceberg(), FileChanges([a_file(iceberg(), 4)]), {})
    assert_in_order(iceberg())
    moments = [snapshot.timestamp_ms for snapshot in iceberg().snapshots()]
    assert len(set(moments)) == len(moments), "two snapshots of one moment cannot be told apart by time"


def test_a_rollback_by_a_clock_that_is_far_behind_leaves_history_in_order(
    lake: fh.Lake, iceberg: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = iceberg().metadata.current_snapshot_id
    with monkeypatch.context() as elsewhere:
        Clock(elsewhere, datetime.now(UTC) + timedelta(hours=1))
        commit(lake.catalog, iceberg(), FileChanges([a_file(iceberg(), 4)]), {})
    lake.rollback(stream, to=first)  # this clock is now an hour behind the one that committed
    assert rows(iceberg()) == [1, 2, 3]
    assert_in_order(iceberg())


def test_a_commit_after_a_change_of_properties_by_a_clock_ahead_is_not_stamped_before_it(
    lake: fh.Lake, iceberg: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = iceberg().metadata.last_updated_ms + 3_600_000
    with monkeypatch.context() as elsewhere:
        Clock(elsewhere, datetime.fromtimestamp(ahead / 1000, UTC))
        iceberg().transaction().set_properties({"comment": "an hour ahead"}).commit_transaction()
    assert iceberg().metadata.last_updated_ms == ahead
    commit(lake.catalog, iceberg(), FileChanges([a_file(iceberg(), 4)]), {})
    assert_in_order(iceberg())


def assert_in_order(iceberg: IcebergTable) -> None:
    """What Iceberg's Java library checks before it opens a table (it allows for a minute)."""
    metadata = iceberg.metadata
    logged = [entry.timestamp_ms for entry in metadata.snapshot_log]
    assert logged == sorted(logged)
    committed = [snapshot.timestamp_ms for snapshot in iceberg.snapshots()]
    assert committed == sorted(committed)
    assert metadata.last_updated_ms >= max(logged[-1], *committed)


def test_a_refresh_during_which_the_table_was_refreshed_and_rolled_back_starts_over(lake: fh.Lake) -> None:
    """The head is the same again, but its sequence numbers were used: pyiceberg says so with a plain ValueError."""
    lake.append(stream, numbers(1))
    head = lake.refresh(folded).snapshot_id
    lake.append(stream, numbers(2))

    def others() -> None:
        lake.refresh(folded)
        lake.rollback(folded, to=head)

    busy = FaultyCatalog(lake.catalog).lets_act(others)
    fh.Lake(busy, lambda: pytest.fail("no JVM is needed")).refresh(folded)
    assert lake.to_arrow(folded).sort_by("n").to_pylist() == [{"n": 1, "rows": 1}, {"n": 2, "rows": 1}]
