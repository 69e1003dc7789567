"""The commit: one snapshot, whole or not at all; its manifests and its summary."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import polars as pl
import pytest
from committing import KINDS, a_file, deletes, numbers, one_two_three, paths, rows, stream
from pyiceberg.manifest import DataFileContent, ManifestContent
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Operation

import foldhouse as fh
from foldhouse.storage.commit import FileChanges, commit
from foldhouse.storage.live import live_slices


@pytest.fixture(autouse=True)
def _polars_plans_with_pyiceberg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")


@pytest.fixture
def iceberg(lake: fh.Lake) -> Callable[[], IcebergTable]:
    return one_two_three(lake)


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


@pytest.mark.slow
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
