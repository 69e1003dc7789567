"""A row group of a large file of a store is asked for once: its keys, and then its other columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow.fs import LocalFileSystem
from pyiceberg.io.pyarrow import PyArrowFileIO

import foldhouse as fh
from foldhouse.storage import store
from foldhouse.storage.kept import PART_BYTES, SMALL_BYTES, forget_files
from foldhouse.storage.opened_file import OpenedFile, open_file
from foldhouse.storage.schema import Layout

events = fh.stream("shop.events", schema={"key": "long", "n": "int", "more": "binary"})
KEYS = 200_000


class _Stored(PyArrowFileIO):
    """Files of this machine, opened as those of a store are."""

    def new_input(self, location: str) -> Any:
        return store.StoreFile(location, location.removeprefix("file://"), LocalFileSystem(), "here")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, int]]]:
    """The first byte and the number of bytes of each request of a read."""
    found: list[tuple[int, int]] = []
    filled = store.filled

    def counted(handle: Any, at: int, count: int, path: str) -> memoryview:
        found.append((at, count))
        return filled(handle, at, count, path)

    monkeypatch.setattr(store, "filled", counted)
    forget_files()
    yield found
    forget_files()


def of_a_store(folder: Path, bytes_of_more: int) -> tuple[OpenedFile, Layout]:
    """Write a large file, and return it as if it were in a store."""
    random = np.random.default_rng(7)
    more = random.bytes(bytes_of_more * KEYS)
    rows = {
        "key": pa.array(random.permutation(10 * KEYS)[:KEYS], pa.int64()),
        "n": pa.array(random.integers(0, 9, KEYS), pa.int32()),
        "more": pa.array([more[at : at + bytes_of_more] for at in range(0, len(more), bytes_of_more)], pa.binary()),
    }
    lake = fh.Lake.local(folder)
    lake.append(events, pa.table(rows))
    iceberg = lake.load(events)
    lake.close()
    (task,) = iceberg.scan().plan_files()
    assert task.file.file_size_in_bytes > SMALL_BYTES
    layout = Layout.of(iceberg)
    vars(layout)["io"] = _Stored()
    return open_file(layout, task.file.file_path), layout


def test_the_keys_of_a_row_group_are_read_with_what_is_read_next(tmp_path: Path, asked: list[tuple[int, int]]) -> None:
    file, layout = of_a_store(tmp_path / "lake", 8)
    columns = ("key", "n")
    asked.clear()
    keys = file.read(layout, ["key"], [0], then=columns)
    rows, _ = file.read_at(layout, columns, np.array([0, 5], np.int64))
    assert len(asked) == 1, asked
    expected = file.read(replace(layout), columns, [0])  # with the file system of this machine
    assert keys["key"].equals(expected["key"])
    assert rows.equals(expected.take([0, 5]))


def test_much_more_than_the_keys_is_read_only_if_it_is_wanted(tmp_path: Path, asked: list[tuple[int, int]]) -> None:
    file, layout = of_a_store(tmp_path / "lake", 8)
    asked.clear()
    alone = file.read(layout, ["key"], [0])
    (of_keys,) = asked
    forget_files()
    assert file.read(layout, ["key"], [0], then=["key", "n", "more"]).equals(alone)
    assert asked == [of_keys, of_keys]
    assert of_keys[1] <= PART_BYTES
