"""The number of rows of a snapshot is exact, even if a delete file outlives a data file that it references."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyiceberg.table.snapshots import Operation

import foldhouse as fh
from foldhouse.cli import main
from foldhouse.heads.row_count import row_count
from foldhouse.storage.commit import FileChanges, commit
from foldhouse.storage.files import write_data_file
from foldhouse.storage.live import Partition, live_slices, pieces_of
from foldhouse.storage.pieces import read_piece
from foldhouse.storage.schema import Layout

events = fh.stream("n.events", schema={"key": "long", "at": "long"}, keys="key", sequence_by="at")
newest = fh.table("n.newest", source=events, fold=fh.latest())


def folded(lake: fh.Lake, at: int, *keys: range) -> fh.Refreshed:
    wanted = [key for some in keys for key in some]
    lake.append(events, pa.table({"key": wanted, "at": [at] * len(wanted)}))
    return lake.refresh(newest)


@pytest.fixture
def worn(lake: fh.Lake) -> fh.Lake:
    """150 rows, of two files of which the first is written anew, while the delete file that names both stays."""
    lake.tuning = fh.Tuning(
        merged_small_files=1_000, merged_delete_files=1_000, patience_least_share=1, patience_spread_share=0
    )
    folded(lake, 1, range(100))
    folded(lake, 2, range(100, 150))
    folded(lake, 3, range(10), range(100, 105))
    assert folded(lake, 4, range(10, 25)).rows_carried == 75
    said = lake.load(newest).current_snapshot().summary.additional_properties
    assert int(said["total-records"]) - int(said["total-position-deletes"]) == 140, "it is not exact any more"
    return lake


def test_rows_are_counted_by_refreshes_and_in_the_history(worn: fh.Lake) -> None:
    assert worn.count(newest) == worn.to_arrow(newest).num_rows == 150
    assert folded(worn, 5, range(149, 160)).rows == worn.count(newest) == 160
    folder = str(worn.catalog.properties["uri"]).removeprefix("sqlite:///").partition("/catalog.db")[0]
    printed = CliRunner().invoke(main, ["history", newest.name, "--lake", folder, "--json"])
    commits = [json.loads(line) for line in printed.stdout.splitlines()]
    assert [(one["written"], one["removed"], one["rows"]) for one in commits] == [
        (11, 1, 160),
        (90, 90, 150),
        (15, 15, 150),
        (50, 0, 150),
        (100, 0, 100),
    ]


def test_rows_are_counted_after_a_compaction_a_rollback_and_a_rebuild(worn: fh.Lake) -> None:
    first = worn.history(newest)[-1].id
    worn.compact(newest, min_files=2)
    assert worn.count(newest) == 150
    worn.rollback(newest, to=first)
    assert worn.count(newest) == 100
    assert worn.rebuild(newest).rows == worn.count(newest) == 150


def test_rows_are_counted_after_a_compaction_by_others(worn: fh.Lake) -> None:
    iceberg = worn.load(newest)
    layout = Layout.of(iceberg)
    slices = sorted(live_slices(iceberg, iceberg.metadata.current_snapshot_id).values(), key=lambda one: one.file.rows)
    (partly,) = (one for one in slices if one.file.rows == 50)
    (rows,) = (read_piece(layout, piece) for piece in pieces_of([partly]))
    changes = FileChanges(
        [write_data_file(layout, Partition(()), rows)], frozenset([partly.file.path]), operation=Operation.REPLACE
    )
    snapshot_id = commit(worn.catalog, iceberg, changes, {})
    assert row_count(worn.load(newest), snapshot_id) == worn.count(newest) == worn.to_arrow(newest).num_rows == 150
    assert folded(worn, 5, range(150, 152)).rows == worn.count(newest) == worn.to_arrow(newest).num_rows == 152
