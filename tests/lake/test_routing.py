"""The routing tasks, called here: every row of the source in one part, once, and no part large."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import date

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import foldhouse as fh
from foldhouse.kernel.plan import WEIGHT, plan_of
from foldhouse.refresh.bucket.names import BUCKET
from foldhouse.refresh.run.placement import Placement
from foldhouse.refresh.run.routing import Part, Reading, Route, divided, parts_in, read_task, route_task, split_among
from foldhouse.storage.file_ref import FileRef
from foldhouse.storage.files import write_data_file, write_position_deletes
from foldhouse.storage.live import Partition, Piece
from foldhouse.storage.opened_file import open_file
from foldhouse.storage.schema import Layout

events = fh.stream("r.events", schema={"key": "long", "word": "string", "day": "date"}, keys="key")
table = fh.table("r.table", source=events, buckets=5, fold=fh.fold(rows=fh.count(), least=fh.minimum("word")))
PLAN = plan_of(
    fh.fold(rows=fh.count(), least=fh.minimum("word")).over(["key", "word"], ["key"]),
    {"key": pa.int64()},
    {},
    [pa.string()],
)


@pytest.fixture
def layouts(lake: fh.Lake) -> tuple[Layout, Layout]:
    """Of the stream and of the table."""
    lake.append(events, some_events(1, 0))
    lake.refresh(table)
    return Layout.of_head(lake.load(events)), Layout.of_head(lake.load(table))


def some_events(rows: int, first: int) -> pa.Table:
    keys = [None if n % 97 == 96 else n for n in range(first, first + rows)]
    return pa.table(
        {
            "key": pa.array(keys, pa.int64()),
            "word": pa.array([f"word {n}" for n in range(first, first + rows)]),
            "day": pa.array([date(2024, 1, 1 + n % 3) for n in range(rows)]),
        }
    )


def routed(route: Route, rows: pl.DataFrame) -> list[Part]:
    return [part for parts in divided(route, rows) for part in parts]


def rows_in(parts: Iterable[Part]) -> pl.DataFrame:
    return pl.concat([part.rows for part in parts])


def signed(rows: int) -> pl.DataFrame:
    found = pl.from_arrow(some_events(rows, 0))
    assert isinstance(found, pl.DataFrame)
    return found.select("key", pl.col("word").alias("__a0"), pl.lit(1, pl.Int64).alias(WEIGHT))


def test_every_row_is_in_one_part_with_its_bucket(layouts: tuple[Layout, Layout]) -> None:
    route = Route(PLAN, layouts[1], Placement((5,), (0, 1, 0), 100, subgroups=2), fh.Tuning())
    parts = routed(route, signed(1000))
    rows = rows_in(parts)
    assert Counter(rows["__a0"].to_list()) == Counter(f"word {n}" for n in range(1000))
    assert rows.filter(pl.col("key").is_null())[BUCKET].unique().to_list() == ["null"]
    for part in parts:
        assert {route.placement.group(bucket) for bucket in part.rows[BUCKET]} == {part.group}


def test_blobs_hold_the_parts_and_name_the_task_of_their_group(layouts: tuple[Layout, Layout]) -> None:
    route = Route(PLAN, layouts[1], Placement((5,), (0, 1, 0), 100, subgroups=2), fh.Tuning())
    rows = signed(1000)
    batches = list(route_task(route, rows.to_arrow().to_batches()))
    for part, again in zip(routed(route, rows), parts_in(batches), strict=True):
        assert (part.group, part.subgroup, part.is_recomputed) == (again.group, again.subgroup, again.is_recomputed)
        assert part.rows.equals(again.rows)
    described = pa.Table.from_batches(batches)
    assert [route.placement.tasks[group] for group in described["group"].to_pylist()] == described["task"].to_pylist()


def test_rows_of_other_buckets_are_left_out(layouts: tuple[Layout, Layout]) -> None:
    route = Route(PLAN, layouts[1], Placement((5,), (0,), 100), fh.Tuning(), buckets=frozenset({"[3]"}))
    rows = rows_in(routed(route, signed(1000)))
    assert set(rows[BUCKET]) == {"[3]"}
    everything = rows_in(routed(Route(PLAN, layouts[1], Placement((5,), (0,), 100), fh.Tuning()), signed(1000)))
    assert rows.height == everything.filter(pl.col(BUCKET) == "[3]").height > 0


def test_rows_of_which_all_are_left_out_have_no_part(layouts: tuple[Layout, Layout]) -> None:
    route = Route(PLAN, layouts[1], Placement((5,), (0,), 100), fh.Tuning(), buckets=frozenset({"[99]"}))
    assert [part for part in routed(route, signed(10)) if part.rows.height] == []


def test_no_part_is_larger_than_a_chunk(layouts: tuple[Layout, Layout]) -> None:
    route = Route(PLAN, layouts[1], Placement((5,), (0,), 100), fh.Tuning(chunk_bytes=10_000))
    parts = routed(route, signed(5000))
    assert sum(part.rows.height for part in parts) == 5000
    assert len(parts) > 5
    assert all(part.rows.estimated_size() < 20_000 for part in parts)


def test_batches_of_spark_are_put_together_up_to_a_chunk(layouts: tuple[Layout, Layout]) -> None:
    route = Route(PLAN, layouts[1], Placement((5,), (0,), 100), fh.Tuning(chunk_rows=300))
    found = list(route_task(route, signed(1000).to_arrow().to_batches(max_chunksize=100)))
    assert [sum(part.rows.height for part in parts_in([one])) for one in found] == [300, 300, 300, 100]


def pieces_of(layout: Layout) -> list[Piece]:
    """A file whole, one with deleted positions, and the deleted positions of a third; of several row groups each."""
    files = [write_data_file(layout, Partition(()), some_events(1000, first)) for first in (0, 1000, 2000)]
    deletes = [
        write_position_deletes(layout, Partition(()), [(one.file_path, positions)])
        for one, positions in zip(files[1:], (range(100, 900), [0, 499, 500, 999]), strict=True)
    ]
    refs = [FileRef(one.file_path, one.record_count, one.file_size_in_bytes, 0, (), {}, {}) for one in files]
    return [
        Piece(refs[0]),
        Piece(refs[1], without=(deletes[0].file_path,)),
        Piece(refs[2], only=(deletes[1].file_path,)),
    ]


@pytest.fixture
def small_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = pq.ParquetWriter.write_table
    monkeypatch.setattr(
        pq.ParquetWriter, "write_table", lambda self, rows, row_group_size: whole(self, rows, row_group_size=64)
    )


@pytest.mark.parametrize("tasks", [1, 2, 3, 7, 40])
@pytest.mark.usefixtures("small_row_groups")
def test_however_pieces_are_shared_each_row_they_mean_is_read_once(layouts: tuple[Layout, Layout], tasks: int) -> None:
    source, target = layouts
    wanted = pl.col("day") != date(2024, 1, 2)
    pieces = list(zip(pieces_of(source), (None, None, wanted), (1, -1, -1), strict=True))
    assert open_file(source, pieces[0][0].file.path).footer.num_row_groups == 16
    columns = (pl.col("key"), pl.col("word").alias("__a0"))
    reading = Reading(source, ("key", "word", "day"), columns, split_among(pieces, tasks), 150)
    assert len(reading.splits) <= tasks
    route = Route(PLAN, target, Placement((5,), (0,), 100), fh.Tuning(chunk_rows=150))
    numbers = pa.record_batch({"id": pa.array(range(len(reading.splits)))})
    rows = rows_in(parts_in(read_task(route, reading, [numbers])))
    expected = [(f"word {n}", 1) for n in range(1000)]
    expected += [(f"word {1000 + n}", -1) for n in (*range(100), *range(900, 1000))]
    expected += [(f"word {2000 + n}", -1) for n in (0, 499, 500, 999) if n % 3 != 1]
    assert Counter(rows.select("__a0", WEIGHT).iter_rows()) == Counter(expected)


def test_a_large_file_is_parted_among_tasks_and_small_ones_go_together() -> None:
    sizes = [900, 50, 50, 50, 50, 100]
    pieces = [(Piece(FileRef(f"f{n}", rows, 1, 0, (), {}, {})), None, 1) for n, rows in enumerate(sizes)]
    loads = [sum(split.rows for split in of_task) for of_task in split_among(pieces, 4)]
    assert len(loads) == 4
    assert max(loads) <= 1.2 * sum(sizes) / 4


def test_a_task_without_a_row_of_its_own_has_no_part(layouts: tuple[Layout, Layout]) -> None:
    placement = Placement((5,), (0, 0, 0, 0, 0), 100)
    assert routed(Route(PLAN, layouts[1], placement, fh.Tuning(), task=1), signed(100)) == []
