"""The number of files of a table, over many refreshes."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

import foldhouse as fh
from foldhouse.storage.live import live_slices

MOST_FILES = 10
"""Data and delete files of a bucket: the large one, some steps of smaller ones, and the deletes."""


@pytest.mark.slow
def test_a_table_that_is_refreshed_again_and_again_keeps_few_files_and_all_rows(lake: fh.Lake, tmp_path: Path) -> None:
    events = fh.stream("a.events", schema={"k": "long", "n": "long"}, keys="k", sequence_by="n")
    table = fh.table("a.table", source=events, buckets=1, fold=fh.latest())
    lake.append(events, pa.table({"k": range(2_000), "n": [0] * 2_000}))
    lake.refresh(table)
    expected = dict.fromkeys(range(2_000), 0)
    chance = random.Random(7)
    for number in range(1, 60):
        keys = [chance.randrange(2_000) for _ in range(20)]
        lake.append(events, pa.table({"k": keys, "n": [number * 100 + place for place in range(20)]}))
        lake.refresh(table)
        expected |= {key: number * 100 + place for place, key in enumerate(keys)}
        slices = live_slices(lake.catalog.load_table("a.table"), lake.history(table)[0].id).values()
        assert len(slices) + len({path for one in slices for path in one.deletes}) <= MOST_FILES
    found = lake.to_arrow(table).to_pydict()
    assert dict(zip(found["k"], found["n"], strict=True)) == expected


def test_a_table_that_says_copy_on_write_never_keeps_a_deleted_row(lake: fh.Lake) -> None:
    events = fh.stream("a.events", schema={"k": "long", "n": "long"}, keys="k", sequence_by="n")
    table = fh.table("a.table", source=events, buckets=2, fold=fh.latest())
    lake.append(events, pa.table({"k": range(200), "n": [0] * 200}))
    lake.append(events, pa.table({"k": range(5), "n": [1] * 5}))
    lake.refresh(table)
    lake.append(events, pa.table({"k": range(3), "n": [2] * 3}))
    assert lake.refresh(table).rows_carried == 0
    with lake.load(table).transaction() as transaction:
        transaction.set_properties({"write.merge.mode": "Copy-on-Write"})
    for number in range(3, 8):
        lake.append(events, pa.table({"k": [2, 3, 200 + number], "n": [number] * 3}))
        lake.refresh(table)
        slices = live_slices(lake.load(table), lake.history(table)[0].id).values()
        assert not any(one.deletes for one in slices)
        assert sum(one.file.rows for one in slices) == lake.count(table) == 198 + number
    found = lake.to_arrow(table).to_pydict()
    expected = dict.fromkeys(range(200), 0) | {0: 2, 1: 2, 4: 1, 2: 7, 3: 7} | {200 + n: n for n in range(3, 8)}
    assert dict(zip(found["k"], found["n"], strict=True)) == expected


def test_a_large_file_is_not_written_again_because_small_ones_are_merged(lake: fh.Lake) -> None:
    lake.tuning = fh.Tuning(small_most_rows=500, always_small_rows=10, deleted_share=0.9)
    events = fh.stream("a.events", schema={"k": "long", "n": "long"}, keys="k", sequence_by="n")
    table = fh.table("a.table", source=events, buckets=1, fold=fh.latest())
    lake.append(events, pa.table({"k": range(2_000), "n": [0] * 2_000}))
    lake.refresh(table)
    expected = dict.fromkeys(range(2_000), 0)
    (large,) = live_slices(lake.load(table), lake.history(table)[0].id)
    chance = random.Random(5)
    carried = []
    for number in range(1, 21):
        keys = chance.sample(range(2_000), 100)
        lake.append(events, pa.table({"k": keys, "n": [number] * 100}))
        carried.append(lake.refresh(table).rows_carried)
        expected |= dict.fromkeys(keys, number)
        files = live_slices(lake.load(table), lake.history(table)[0].id)
        assert len(files) <= 8
        assert large in files
    assert any(carried)  # small files were merged: 8 times the added rows are 800, and the large file has fewer left
    assert max(carried) <= 3 * 500
    found = lake.to_arrow(table).to_pydict()
    assert dict(zip(found["k"], found["n"], strict=True)) == expected
