"""Another tool adds a file with events of days to the partition of no day: `add_files` of pyiceberg, no statistics."""

from __future__ import annotations

from datetime import date

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table.snapshots import Operation

import foldhouse as fh
from foldhouse.storage.commit import FileChanges, commit
from foldhouse.storage.files import write_position_deletes
from foldhouse.storage.live import Partition
from foldhouse.storage.schema import Layout

FIRST, SECOND = date(2024, 1, 1), date(2024, 1, 2)
events = fh.stream("u.events", schema={"key": "string", "day": "date", "n": "long"}, partition_by="day")
by_day = fh.table(
    "u.by_day", source=events, keys=["key", "day"], partition_by="day", fold=fh.fold(n=fh.total("n"), rows=fh.count())
)


def a_row(key: str, day: date | None, n: int) -> dict[str, object]:
    return {"key": key, "day": day, "n": n}


def add_undated(lake: fh.Lake, rows: list[dict[str, object]]) -> None:
    with lake.load(events).transaction() as properties:
        properties.set_properties({"write.metadata.metrics.default": "none"})
    iceberg = lake.load(events)
    path = f"{iceberg.location()}/data/theirs.parquet"
    kind = pa.schema([("key", pa.string()), ("day", pa.date32()), ("n", pa.int64())])
    with iceberg.io.new_output(path).create() as file:
        pq.write_table(pa.Table.from_pylist(rows, kind), file)
    iceberg.add_files([path])
    (added,) = [one for one in lake.load(events).scan().plan_files() if one.file.file_path == path]
    assert added.file.partition[0] is None, "the trap is gone"


def rows_of(lake: fh.Lake) -> list[tuple[object, ...]]:
    return sorted(tuple(one.values()) for one in lake.to_arrow(by_day).to_pylist())


@pytest.fixture
def undated(lake: fh.Lake) -> fh.Lake:
    lake.append(events, [a_row("a", FIRST, 1), a_row("b", SECOND, 2)])
    lake.backfill(by_day, [FIRST, SECOND])
    add_undated(lake, [a_row("a", FIRST, 10), a_row("c", FIRST, 100)])
    return lake


def test_its_events_are_folded_into_their_days_also_by_a_restatement_and_a_rebuild(undated: fh.Lake) -> None:
    expected = [("a", FIRST, 11, 2), ("b", SECOND, 2, 1), ("c", FIRST, 100, 1)]
    undated.refresh(by_day)
    assert rows_of(undated) == expected
    undated.restate(by_day, [FIRST])
    assert rows_of(undated) == expected
    undated.rebuild(by_day)
    assert rows_of(undated) == expected


def test_its_day_cannot_be_replaced_and_is_not_proven(undated: fh.Lake) -> None:
    before = sorted(map(str, undated.to_arrow(events).to_pylist()))
    with pytest.raises(fh.DefinitionError, match=r"theirs\.parquet in the partition of no day, with events of days"):
        undated.replace(events, [a_row("a", FIRST, 7)], partitions=[FIRST])
    assert sorted(map(str, undated.to_arrow(events).to_pylist())) == before
    assert not undated.landed(events, [FIRST]).states
    assert undated.days(events) == [FIRST, SECOND]


def delete(lake: fh.Lake, *positions: int) -> None:
    """Another tool deletes rows of the file that it added."""
    iceberg = lake.load(events)
    path = f"{iceberg.location()}/data/theirs.parquet"
    gone = write_position_deletes(Layout.of(iceberg), Partition((None,)), [(path, np.array(positions, np.int64))])
    commit(lake.catalog, iceberg, FileChanges([gone], operation=Operation.DELETE), {})


@pytest.mark.parametrize(
    ("rows", "deleted"),
    [
        ([a_row("y", None, 6)], ()),
        ([a_row("x", None, 4), a_row("y", None, 6)], (0,)),
        ([a_row("y", None, 6), a_row("x", FIRST, 4)], (1,)),
    ],
    ids=["as it is", "one deleted", "the one with a day deleted"],
)
def test_a_file_of_events_without_a_day_stands_in_no_way(
    lake: fh.Lake, rows: list[dict[str, object]], deleted: tuple[int, ...]
) -> None:
    lake.append(events, [a_row("z", None, 5)])
    lake.replace(events, [a_row("a", FIRST, 1)], partitions=[FIRST])
    add_undated(lake, rows)
    if deleted:
        delete(lake, *deleted)
    assert list(lake.landed(events, [FIRST]).states) == [FIRST]
    lake.replace(events, [a_row("a", FIRST, 7)], partitions=[FIRST])
    found = sorted((one["key"], one["n"]) for one in lake.to_arrow(events).to_pylist())
    assert found == [("a", 7), ("y", 6), ("z", 5)]


def test_a_file_with_events_of_a_day_beside_deleted_ones_is_refused(lake: fh.Lake) -> None:
    lake.append(events, [a_row("a", FIRST, 1)])
    add_undated(lake, [a_row("x", None, 4), a_row("y", FIRST, 6)])
    delete(lake, 0)
    with pytest.raises(fh.DefinitionError, match=r"theirs\.parquet in the partition of no day, with events of days"):
        lake.replace(events, [a_row("a", FIRST, 7)], partitions=[FIRST])
