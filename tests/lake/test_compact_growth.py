"""Compacting a stream again and again: how often a row is written again, and how many rows are in memory at once."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table.snapshots import Operation

import foldhouse as fh
from foldhouse.storage import pieces as reader
from foldhouse.storage.commit import FileChanges, commit
from foldhouse.storage.files import write_position_deletes
from foldhouse.storage.live import Partition, Piece, Slice, live_slices
from foldhouse.storage.schema import Layout

numbers = fh.stream("g.numbers", schema={"n": "long", "text": "string"})


def a_batch(seed: int, rows: int) -> pa.Table:
    drawn = np.random.default_rng(seed).integers(0, 1 << 40, rows)
    return pa.table({"n": drawn, "text": [f"t{one % 977}" for one in drawn]})


def files(lake: fh.Lake) -> list[Slice]:
    iceberg = lake.load(numbers)
    return list(live_slices(iceberg, iceberg.metadata.current_snapshot_id).values())


def held(lake: fh.Lake) -> Counter[tuple[int, str]]:
    """The rows as pyiceberg reads them."""
    rows = lake.load(numbers).scan(selected_fields=("n", "text")).to_arrow()
    return Counter(zip(rows["n"].to_pylist(), rows["text"].to_pylist(), strict=True))


@pytest.mark.slow
def test_a_row_is_written_again_a_few_times_however_often_the_stream_is_compacted(lake: fh.Lake) -> None:
    written = largest = 0
    for number in range(40):
        for part in range(5):
            lake.append(numbers, a_batch(number * 5 + part, 400))
        written += lake.compact(numbers).rows_written
        largest = max(largest, len(files(lake)))
    rows = 40 * 5 * 400
    assert sum(one.file.rows for one in files(lake)) == rows
    assert written <= 5 * rows  # 20 times, if each compaction writes all rows again
    assert largest <= 12


def test_what_is_due_is_what_a_compaction_removes(lake: fh.Lake) -> None:
    lake.append(numbers, a_batch(0, 50_000))
    for number in range(1, 8):
        lake.append(numbers, a_batch(number, 10))
    (large,) = [one for one in files(lake) if one.file.rows == 50_000]
    due = next(one.files_to_compact for one in lake.status() if one.table == numbers.name)
    done = lake.compact(numbers)
    assert (done.files_removed, done.files_added) == (due, 1) == (7, 1)
    assert large in files(lake)


@pytest.mark.parametrize("at_once", [300, 700, 2_000, 1 << 20])
def test_rows_that_are_read_and_written_in_parts_are_the_same(lake: fh.Lake, at_once: int) -> None:
    """Files of many small row groups, one of them with deleted rows in several of these."""
    lake.append(numbers, a_batch(0, 10))
    with lake.load(numbers).transaction() as properties:
        properties.set_properties({"write.parquet.row-group-size-bytes": "16384"})
    for number in range(1, 7):
        lake.append(numbers, a_batch(number, 3_000))
    iceberg = lake.load(numbers)
    layout = Layout.of(iceberg)
    worn = next(one.file for one in files(lake) if one.file.rows == 3_000)
    assert pq.read_metadata(worn.path.removeprefix("file://")).num_row_groups >= 4
    gone = sorted(random.Random(3).sample(range(3_000), 1_000))
    added = write_position_deletes(layout, Partition(worn.partition), [(worn.path, np.array(gone))])
    commit(lake.catalog, iceberg, FileChanges([added], operation=Operation.DELETE), {})
    before = held(lake)
    lake.tuning = fh.Tuning(compacted_part_rows=at_once)
    done = lake.compact(numbers)
    assert done.committed
    assert held(lake) == before
    assert before.total() == 10 + 18_000 - 1_000
    assert not any(one.deletes for one in files(lake))


def test_no_more_rows_are_in_memory_than_the_tuning_says(lake: fh.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(6):
        lake.append(numbers, a_batch(number, 200_000))
    parts: list[int] = []

    def read(layout: Layout, piece: Piece, rows_at_once: int) -> object:
        for rows in reader.read_in_parts(layout, piece, rows_at_once):
            parts.append(rows.num_rows)
            yield rows

    monkeypatch.setattr("foldhouse.upkeep.compact.read_in_parts", read)
    lake.tuning = fh.Tuning(compacted_part_rows=70_000)
    done = lake.compact(numbers)
    assert (done.rows_written, sum(parts)) == (1_200_000, 1_200_000)
    assert max(parts) <= 70_000  # a row group has 65,536


def test_portions_have_the_sizes_that_were_asked_for() -> None:
    for seed in range(50):
        chance = random.Random(seed)
        given = [chance.randrange(0, 9) for _ in range(chance.randrange(1, 12))]
        tables = [pa.table({"n": np.array([chance.random() for _ in range(size)])}) for size in given]
        whole = pa.concat_tables(tables)["n"].to_pylist()
        sizes: list[int] = []
        while sum(sizes) < len(whole):
            sizes.append(min(chance.randrange(1, 7), len(whole) - sum(sizes)))
        found = list(reader.portions(iter(tables), sizes))
        assert [one.num_rows for one in found] == sizes
        assert [value for one in found for value in one["n"].to_pylist()] == whole
