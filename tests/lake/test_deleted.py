"""The deleted rows of a file and the rows of a piece, compared with Python's sets."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import foldhouse as fh
from foldhouse.storage.deleted import deleted_by_file, deleted_positions, selected_positions
from foldhouse.storage.file_ref import FileRef
from foldhouse.storage.files import write_data_file, write_position_deletes
from foldhouse.storage.live import Partition, Piece, Slice
from foldhouse.storage.schema import Layout

ROWS = 200


@pytest.fixture
def layout(lake: fh.Lake) -> Layout:
    stream = fh.stream("f.events", schema={"key": "long"}, keys="key", sequence_by="key")
    lake.append(stream, pa.table({"key": [1]}))
    return Layout.of(lake.load(stream))


@pytest.mark.parametrize("seed", range(20))
def test_deletes_of_several_files_come_together_and_a_piece_means_those_of_some_without_those_of_others(
    layout: Layout, seed: int
) -> None:
    choice = random.Random(seed)
    paths = [write_data_file(layout, Partition(()), pa.table({"key": range(ROWS)})).file_path for _ in range(2)]
    deleted: dict[str, dict[str, set[int]]] = {}
    for _ in range(choice.randrange(1, 5)):  # the same row may be deleted by several, a data file be named by none
        of_each = {path: set(choice.sample(range(ROWS), choice.randrange(0, 120))) for path in paths}
        named = [(path, np.array(sorted(rows), np.int64)) for path, rows in of_each.items() if rows]
        if named:
            deleted[write_position_deletes(layout, Partition(()), named).file_path] = of_each
    together = {path: set[int]().union(*(of_each[path] for of_each in deleted.values())) for path in paths}
    files = {path: FileRef(path, ROWS, 0, 0, (), {}, {}) for path in paths}
    slices = [Slice(file, tuple(deleted)) for file in files.values()]
    found = {path: positions.tolist() for path, positions in deleted_by_file(layout, slices).items()}
    assert found == {path: sorted(rows) for path, rows in together.items() if rows}
    for path, file in files.items():
        assert deleted_positions(layout, list(deleted), file).tolist() == sorted(together[path])
        some = tuple(one for one in deleted if choice.random() < 0.5)
        others = tuple(one for one in deleted if choice.random() < 0.5)
        left_out = set[int]().union(*(deleted[one][path] for one in others))
        for only, candidates in ((None, set(range(ROWS))), (some, {r for one in some for r in deleted[one][path]})):
            selected = selected_positions(layout, Piece(file, only=only, without=others))
            wanted = sorted(candidates - left_out)
            assert (list(range(ROWS)) if selected is None else selected.tolist()) == wanted


@pytest.mark.parametrize("sizes", [(1,), (1, 1), (2, 0), (70_000, 3, 70_000)])
def test_a_delete_file_says_the_paths_and_positions_also_to_other_readers(
    layout: Layout, sizes: tuple[int, ...]
) -> None:
    positions = [np.arange(size, dtype=np.int64)[::-1] for size in sizes]
    written = write_position_deletes(
        layout, Partition(()), [(f"file-{place}", of_file) for place, of_file in enumerate(positions)]
    )
    rows = pq.read_table(written.file_path.removeprefix("file://"))
    assert [field.type for field in rows.schema] == [pa.string(), pa.int64()]
    assert [field.metadata[b"PARQUET:field_id"] for field in rows.schema] == [b"2147483546", b"2147483545"]
    assert not any(field.nullable for field in rows.schema)
    wanted = [(f"file-{place}", position) for place, size in enumerate(sizes) for position in range(size)]
    assert list(zip(rows["file_path"].to_pylist(), rows["pos"].to_pylist(), strict=True)) == wanted
    assert written.record_count == len(wanted)
