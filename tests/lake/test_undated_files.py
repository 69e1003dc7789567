"""Another tool adds a file with events of days to the partition of no day: `add_files` of pyiceberg, no statistics."""

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import foldhouse as fh

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


def test_a_file_of_events_without_a_day_stands_in_no_way(lake: fh.Lake) -> None:
    lake.append(events, [a_row("a", FIRST, 1), a_row("z", None, 5)])
    add_undated(lake, [a_row("y", None, 6)])
    lake.replace(events, [a_row("a", FIRST, 7)], partitions=[FIRST])
    found = sorted((one["key"], one["n"]) for one in lake.to_arrow(events).to_pylist())
    assert found == [("a", 7), ("y", 6), ("z", 5)]
