"""The commit: one snapshot, whole or not at all, whatever the catalog says about it afterwards."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.manifest import DataFile, DataFileContent, ManifestContent
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Operation

import foldhouse as fh
from foldhouse.storage import commit as commits
from foldhouse.storage.commit import FileChanges, commit
from foldhouse.storage.files import Partition, read_piece, write_data_file, write_position_deletes
from foldhouse.storage.live import Piece, live_slices, pieces_of
from foldhouse.storage.schema import Layout
from foldhouse.storage.swap import move_main

stream = fh.stream("shop.numbers", schema={"n": "int"})
folded = fh.table("shop.folded", source=stream, keys="n", fold=fh.fold(rows=fh.count()))


def numbers(*values: int) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int32())})


@pytest.fixture(autouse=True)
def _polars_plans_with_pyiceberg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")


@pytest.fixture
def iceberg(lake: fh.Lake) -> Callable[[], IcebergTable]:
    """Loads a table that holds 1, 2, 3 in one file."""
    lake.append(stream, numbers(1, 2, 3))
    return lambda: lake.load(stream)


def a_file(iceberg: IcebergTable, *values: int) -> DataFile:
    return write_data_file(Layout.of(iceberg), Partition(()), numbers(*values))


def deletes(iceberg: IcebergTable, path: str, *positions: int) -> DataFile:
    return write_position_deletes(Layout.of(iceberg), Partition(()), [(path, np.array(positions, np.int64))])


def paths(iceberg: IcebergTable) -> list[str]:
    """The live data files, those with the smallest numbers first."""
    slices = live_slices(iceberg, iceberg.metadata.current_snapshot_id).values()
    least = {piece.file.path: min(_held(iceberg, piece), default=0) for piece in pieces_of(slices)}
    return sorted(least, key=lambda path: least[path])


def _held(iceberg: IcebergTable, piece: Piece) -> list[int]:
    found: list[int] = read_piece(Layout.of(iceberg), piece)["n"].to_pylist()
    return found


def rows(iceberg: IcebergTable) -> list[int]:
    pieces = pieces_of(live_slices(iceberg, iceberg.metadata.current_snapshot_id).values())
    return sorted(n for piece in pieces for n in _held(iceberg, piece))


def files_on_disk(lake: fh.Lake) -> dict[str, bytes]:
    root = Path(lake.catalog.properties["warehouse"].removeprefix("file://"))
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


class Liar:
    """A catalog whose answer is an exception: instead of the commit, or after it."""

    def __init__(
        self,
        catalog: Catalog,
        failure: Exception,
        *,
        landed: bool,
        times: int = 1,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> None:
        self._catalog, self._failure, self._landed, self._times = catalog, failure, landed, times
        self._meanwhile = meanwhile

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)

    def commit_table(self, *arguments: Any) -> Any:
        if self._times == 0:
            return self._catalog.commit_table(*arguments)
        self._times -= 1
        if self._landed:
            self._catalog.commit_table(*arguments)
        self._meanwhile()
        raise self._failure


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


# One snapshot


KINDS: dict[str, Callable[[IcebergTable], FileChanges]] = {
    "an append": lambda t: FileChanges([a_file(t, 4)], operation=Operation.APPEND),
    "two files": lambda t: FileChanges([a_file(t, 4), a_file(t, 5)]),
    "an overwrite": lambda t: FileChanges([a_file(t, 4)], frozenset(paths(t))),
    "a delete of rows": lambda t: FileChanges([deletes(t, paths(t)[0], 1)]),
    "rows and deletes": lambda t: FileChanges([a_file(t, 4), deletes(t, paths(t)[0], 1)]),
    "a delete of files": lambda t: FileChanges(removed=frozenset(paths(t)), operation=Operation.DELETE),
    "a compaction": lambda t: FileChanges([a_file(t, *rows(t))], frozenset(paths(t)), Operation.REPLACE),
    "nothing but properties": lambda t: FileChanges(),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_commit_makes_exactly_one_snapshot_on_top_of_the_head(lake: fh.Lake, iceberg: Any, kind: str) -> None:
    before = iceberg()
    changes = KINDS[kind](before)
    snapshot_id = commit(lake.catalog, before, changes, {"foldhouse.run-id": "r1"})
    after = iceberg()
    assert len(after.snapshots()) == len(before.snapshots()) + 1
    head = after.current_snapshot()
    assert head.snapshot_id == snapshot_id
    assert head.parent_snapshot_id == before.metadata.current_snapshot_id
    assert head.sequence_number == before.metadata.last_sequence_number + 1
    assert head.summary.operation == changes.operation
    assert head.summary.additional_properties["foldhouse.run-id"] == "r1"


@pytest.mark.parametrize(
    ("kind", "left"),
    [
        ("an append", [1, 2, 3, 4]),
        ("two files", [1, 2, 3, 4, 5]),
        ("an overwrite", [4]),
        ("a delete of rows", [1, 3]),
        ("rows and deletes", [1, 3, 4]),
        ("a delete of files", []),
        ("a compaction", [1, 2, 3]),
        ("nothing but properties", [1, 2, 3]),
    ],
)
def test_every_reader_sees_exactly_the_live_rows(lake: fh.Lake, iceberg: Any, kind: str, left: list[int]) -> None:
    commit(lake.catalog, iceberg(), KINDS[kind](iceberg()), {})
    assert rows(iceberg()) == left
    assert sorted(iceberg().scan().to_arrow()["n"].to_pylist()) == left
    assert sorted(pl.scan_iceberg(iceberg()).collect()["n"].to_list()) == left
    assert lake.count(stream) == len(left)


def test_history_stays_as_it_was_when_files_go(lake: fh.Lake, iceberg: Any) -> None:
    before = iceberg().metadata.current_snapshot_id
    commit(lake.catalog, iceberg(), KINDS["an overwrite"](iceberg()), {})
    commit(lake.catalog, iceberg(), FileChanges([deletes(iceberg(), paths(iceberg())[0], 0)]), {})
    assert iceberg().scan(snapshot_id=before).to_arrow()["n"].to_pylist() == [1, 2, 3]
    assert lake.to_arrow(stream, as_of=before)["n"].to_pylist() == [1, 2, 3]
    assert rows(iceberg()) == []


# A lost race


def test_a_head_that_moved_is_a_conflict_and_nothing_of_ours_is_seen(lake: fh.Lake, iceberg: Any) -> None:
    read = iceberg()
    lake.append(stream, numbers(7))
    now = iceberg()
    with pytest.raises(fh.CommitConflict, match=r"shop\.numbers was committed to by somebody else"):
        commit(lake.catalog, read, FileChanges([a_file(read, 4)]), {})
    assert iceberg().metadata == now.metadata
    assert rows(iceberg()) == [1, 2, 3, 7]


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
    with pytest.raises(fh.CommitConflict, match=r"shop\.numbers no longer holds 1 files that were to be replaced"):
        commit(lake.catalog, iceberg(), FileChanges(removed=frozenset({"file:///gone.parquet", *paths(iceberg())})), {})
    assert rows(iceberg()) == [1, 2, 3]


# A catalog that lies


@pytest.mark.parametrize("failure", FAILURES, ids=by_name)
@pytest.mark.parametrize("kind", ["an append", "an overwrite", "rows and deletes"])
def test_a_commit_that_landed_but_was_reported_failed_counts_as_success(
    lake: fh.Lake, iceberg: Any, failure: Exception, kind: str
) -> None:
    read = iceberg()
    snapshot_id = commit(Liar(lake.catalog, failure, landed=True), read, KINDS[kind](read), {})
    assert iceberg().metadata.current_snapshot_id == snapshot_id
    assert len(iceberg().snapshots()) == 2


def test_a_commit_that_landed_is_recognised_even_below_somebody_elses(lake: fh.Lake, iceberg: Any) -> None:
    read = iceberg()
    busy = Liar(
        lake.catalog, CommitFailedException(), landed=True, meanwhile=lambda: lake.append(stream, numbers(8, 9))
    )
    snapshot_id = commit(busy, read, FileChanges([a_file(read, 4)]), {})
    assert rows(iceberg()) == [1, 2, 3, 4, 8, 9]
    assert iceberg().current_snapshot().parent_snapshot_id == snapshot_id


@pytest.mark.parametrize("failure", FAILURES, ids=by_name)
def test_a_commit_that_did_not_land_says_so_and_is_not_seen(lake: fh.Lake, iceberg: Any, failure: Exception) -> None:
    read = iceberg()
    expected = fh.CommitConflict if isinstance(failure, CommitFailedException) else type(failure)
    with pytest.raises(expected):
        commit(Liar(lake.catalog, failure, landed=False), read, FileChanges([a_file(read, 4)]), {})
    assert iceberg().metadata == read.metadata


@pytest.mark.parametrize("landed", [True, False], ids=["landed", "did not land"])
@pytest.mark.parametrize("failure", FAILURES, ids=by_name)
def test_nothing_is_ever_deleted_by_a_commit_that_fails(
    lake: fh.Lake, iceberg: Any, failure: Exception, landed: bool
) -> None:
    changes = KINDS["an overwrite"](iceberg())
    before = files_on_disk(lake)
    try:
        commit(Liar(lake.catalog, failure, landed=landed), iceberg(), changes, {})
    except (fh.CommitConflict, type(failure)):
        assert not landed
    after = files_on_disk(lake)
    assert {path: after.get(path) for path in before} == before
    assert rows(iceberg()) == ([4] if landed else [1, 2, 3])


@pytest.mark.parametrize("failure", FAILURES, ids=by_name)
def test_an_append_that_landed_but_was_reported_failed_is_not_applied_twice(
    lake: fh.Lake, iceberg: Any, failure: Exception
) -> None:
    liar = fh.Lake(Liar(lake.catalog, failure, landed=True, times=3), lambda: pytest.fail("no JVM is needed"))
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
    liar = fh.Lake(Liar(lake.catalog, CommitFailedException(), landed=landed, times=2), lambda: pytest.fail("no JVM"))
    liar.append(stream, numbers(4))
    assert rows(iceberg()) == [1, 2, 3, 4]
    liar = fh.Lake(Liar(lake.catalog, CommitFailedException(), landed=landed, times=2), lambda: pytest.fail("no JVM"))
    liar.refresh(folded)
    assert lake.to_arrow(folded).sort_by("n").to_pylist() == [{"n": n, "rows": 1} for n in (1, 2, 3, 4)]
    assert len(lake.history(folded)) == 1


@pytest.mark.parametrize("failure", FAILURES[1:], ids=by_name)
def test_a_refresh_that_was_cut_off_is_repaired_by_running_it_again(
    lake: fh.Lake, iceberg: Any, failure: Exception
) -> None:
    for landed in (True, False):
        lake.append(stream, numbers(5))
        liar = fh.Lake(Liar(lake.catalog, failure, landed=landed), lambda: pytest.fail("no JVM is needed"))
        try:
            liar.refresh(folded)
        except type(failure):
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
    move_main(Liar(lake.catalog, failure, landed=True), iceberg(), first)
    assert rows(iceberg()) == [1, 2, 3]


def test_a_rollback_does_not_throw_away_what_was_committed_meanwhile(lake: fh.Lake, iceberg: Any) -> None:
    first = iceberg().metadata.current_snapshot_id
    lake.append(stream, numbers(4))
    read = iceberg()
    lake.append(stream, numbers(5))
    with pytest.raises(fh.CommitConflict, match=r"shop\.numbers was committed to by somebody else meanwhile"):
        move_main(lake.catalog, read, first)
    assert rows(iceberg()) == [1, 2, 3, 4, 5]


# Clocks


class Clock:
    """`time` as the commit sees it."""

    def __init__(self, *seconds: float) -> None:
        self._seconds = iter(seconds)

    def time(self) -> float:
        return next(self._seconds)


def test_a_clock_that_runs_backwards_does_not_turn_history_round(
    lake: fh.Lake, iceberg: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iceberg().metadata.last_updated_ms / 1000
    monkeypatch.setattr(commits, "time", Clock(now + 3600, now + 10, now - 7200, now + 3599))
    for _ in range(4):
        commit(lake.catalog, iceberg(), FileChanges([a_file(iceberg(), 4)]), {})
    assert_in_order(iceberg())
    moments = [snapshot.timestamp_ms for snapshot in iceberg().snapshots()]
    assert len(set(moments)) == len(moments), "two snapshots of one moment cannot be told apart by time"


def test_a_rollback_by_a_clock_that_is_far_behind_is_refused_and_history_stays_in_order(
    lake: fh.Lake, iceberg: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = iceberg().metadata.current_snapshot_id
    monkeypatch.setattr(commits, "time", Clock(iceberg().metadata.last_updated_ms / 1000 + 3600))
    commit(lake.catalog, iceberg(), FileChanges([a_file(iceberg(), 4)]), {})
    monkeypatch.undo()  # this clock is now an hour behind the one that committed
    with pytest.raises(fh.FoldhouseError, match="3600 s behind the last commit to"):
        lake.rollback(stream, to=first)
    assert_in_order(iceberg())


def test_a_commit_after_a_change_of_properties_by_a_clock_ahead_is_not_stamped_before_it(
    lake: fh.Lake, iceberg: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = iceberg().metadata.last_updated_ms + 3_600_000
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr("pyiceberg.table.update.datetime_to_millis", lambda _: ahead)
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


# Manifests


def test_the_number_of_manifests_does_not_grow_with_the_number_of_commits(lake: fh.Lake, iceberg: Any) -> None:
    counts = []
    for number in range(4, 44):
        lake.append(stream, numbers(number))
        counts.append(len(iceberg().current_snapshot().manifests(iceberg().io)))
    assert max(counts) <= 17
    assert rows(iceberg()) == list(range(1, 44))
    assert sorted(iceberg().scan().to_arrow()["n"].to_pylist()) == list(range(1, 44))


def born(iceberg: IcebergTable) -> dict[str, tuple[int, int]]:
    """File -> the snapshot that added it and its sequence number; manifests are checked to say what they hold."""
    found = {}
    for manifest in iceberg.current_snapshot().manifests(iceberg.io):
        header = b"\x0econtent" + (b"\x08data" if manifest.content == ManifestContent.DATA else b"\x0edeletes")
        assert header in iceberg.io.new_input(manifest.manifest_path).open().read()
        for entry in manifest.fetch_manifest_entry(iceberg.io, discard_deleted=True):
            is_data = entry.data_file.content == DataFileContent.DATA
            assert is_data == (manifest.content == ManifestContent.DATA)
            found[entry.data_file.file_path] = (entry.snapshot_id, entry.sequence_number)
    return found


def test_merging_keeps_deletes_apart_and_the_age_of_every_file(lake: fh.Lake, iceberg: Any) -> None:
    first, again = paths(iceberg())[0], a_file(iceberg(), 4, 5)
    commit(lake.catalog, iceberg(), FileChanges([again]), {})
    gone = [deletes(iceberg(), first, 0), deletes(iceberg(), again.file_path, 0)]
    commit(lake.catalog, iceberg(), FileChanges(gone), {})
    commit(lake.catalog, iceberg(), FileChanges(removed=frozenset({again.file_path})), {})
    commit(lake.catalog, iceberg(), FileChanges([again]), {})  # younger now than the delete that names it
    ages = born(iceberg())
    for number in range(10, 40):
        commit(lake.catalog, iceberg(), FileChanges([a_file(iceberg(), number)]), {})
        assert {path: born(iceberg())[path] for path in ages} == ages
        assert len(born(iceberg())) == len(ages) + 1
        ages = born(iceberg())
    left = [2, 3, 4, 5, *range(10, 40)]
    assert rows(iceberg()) == left
    assert sorted(iceberg().scan().to_arrow()["n"].to_pylist()) == left
    assert len(iceberg().current_snapshot().manifests(iceberg().io)) <= 17


def test_a_merge_and_a_removal_in_one_commit_remove_exactly_what_they_should(lake: fh.Lake, iceberg: Any) -> None:
    added = []
    for number in range(4, 18):
        added.append(a_file(iceberg(), number))
        commit(lake.catalog, iceberg(), FileChanges([added[-1]]), {})
    gone = frozenset(file.file_path for file in added[::3])
    commit(lake.catalog, iceberg(), FileChanges([a_file(iceberg(), 99)], gone), {})
    left = sorted([1, 2, 3, 99, *(n for n in range(4, 18) if (n - 4) % 3)])
    assert rows(iceberg()) == left
    assert sorted(iceberg().scan().to_arrow()["n"].to_pylist()) == left


# Summaries


def counted(iceberg: IcebergTable) -> dict[str, int]:
    """The totals, counted file by file."""
    snapshot = iceberg.current_snapshot()
    assert snapshot is not None
    manifests = snapshot.manifests(iceberg.io)
    entries = [
        (manifest.content, entry.data_file)
        for manifest in manifests
        for entry in manifest.fetch_manifest_entry(iceberg.io, discard_deleted=True)
    ]
    data = [file for content, file in entries if content == ManifestContent.DATA]
    gone = [file for content, file in entries if content == ManifestContent.DELETES]
    return {
        "total-data-files": len(data),
        "total-delete-files": len(gone),
        "total-records": sum(file.record_count for file in data),
        "total-position-deletes": sum(file.record_count for file in gone),
        "total-equality-deletes": 0,
        "total-files-size": sum(file.file_size_in_bytes for file in (*data, *gone)),
    }


def told(summary: Mapping[str, str], prefix: str) -> dict[str, int]:
    return {name: int(value) for name, value in summary.items() if name.startswith(prefix)}


def test_the_totals_of_a_summary_stay_right_whatever_is_committed(lake: fh.Lake, iceberg: Any) -> None:
    def steps() -> Any:
        yield FileChanges([a_file(iceberg(), 4, 5)], operation=Operation.APPEND)
        yield FileChanges([deletes(iceberg(), paths(iceberg())[0], 0, 2)])
        yield FileChanges([a_file(iceberg(), 6), deletes(iceberg(), paths(iceberg())[1], 1)])
        yield FileChanges(operation=Operation.APPEND)
        slices = live_slices(iceberg(), iceberg().metadata.current_snapshot_id).values()
        everything = frozenset(path for one in slices for path in (one.file.path, *one.deletes))
        yield FileChanges([a_file(iceberg(), *rows(iceberg()))], everything, Operation.REPLACE)
        yield FileChanges([a_file(iceberg(), 7)], frozenset(paths(iceberg())))
        yield FileChanges(removed=frozenset(paths(iceberg())), operation=Operation.DELETE)
        yield FileChanges([a_file(iceberg(), 8)], operation=Operation.APPEND)

    for changes in steps():
        commit(lake.catalog, iceberg(), changes, {})
        summary = iceberg().current_snapshot().summary
        assert told(summary.additional_properties, "total-") == counted(iceberg())
        assert summary.operation == changes.operation


def test_a_summary_says_what_came_and_what_went(lake: fh.Lake, iceberg: Any) -> None:
    gone = frozenset(paths(iceberg()))
    commit(lake.catalog, iceberg(), FileChanges([a_file(iceberg(), 4, 5)], gone), {"foldhouse.coverage": "*"})
    summary = iceberg().current_snapshot().summary.additional_properties
    assert told(summary, "added-data") == {"added-data-files": 1}
    assert told(summary, "added-records") == {"added-records": 2}
    assert told(summary, "deleted-") == {"deleted-data-files": 1, "deleted-records": 3}
    assert summary["foldhouse.coverage"] == "*"


def test_a_summary_is_of_its_own_commit_alone(lake: fh.Lake, iceberg: Any) -> None:
    commit(lake.catalog, iceberg(), FileChanges([a_file(iceberg(), 4)]), {"foldhouse.position": "here"})
    commit(lake.catalog, iceberg(), FileChanges([a_file(iceberg(), 5)]), {})
    assert "foldhouse.position" not in iceberg().current_snapshot().summary.additional_properties


def test_every_commit_has_an_id_of_its_own(lake: fh.Lake, iceberg: Any) -> None:
    ids = [commit(lake.catalog, iceberg(), FileChanges(), {}) for _ in range(3)]
    assert len({iceberg().snapshots()[0].snapshot_id, *ids}) == 4
    parents = [snapshot.parent_snapshot_id for snapshot in iceberg().snapshots()]
    assert list(itertools.pairwise(parents[1:])) == list(
        itertools.pairwise([iceberg().snapshots()[0].snapshot_id, *ids[:-1]])
    )


def test_a_refresh_during_which_the_table_was_refreshed_and_rolled_back_starts_over(lake: fh.Lake) -> None:
    """The head is the same again, but its sequence numbers were used: pyiceberg says so with a plain ValueError."""
    lake.append(stream, numbers(1))
    head = lake.refresh(folded).snapshot_id
    lake.append(stream, numbers(2))

    class Busy(Liar):
        def commit_table(self, *arguments: Any) -> Any:
            if self._times:
                self._times -= 1
                self._meanwhile()
            return self._catalog.commit_table(*arguments)

    def others() -> None:
        lake.refresh(folded)
        lake.rollback(folded, to=head)

    busy = Busy(lake.catalog, ValueError(), landed=False, meanwhile=others)
    fh.Lake(busy, lambda: pytest.fail("no JVM is needed")).refresh(folded)
    assert lake.to_arrow(folded).sort_by("n").to_pylist() == [{"n": 1, "rows": 1}, {"n": 2, "rows": 1}]
