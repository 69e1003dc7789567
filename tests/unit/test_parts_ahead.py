"""Several files of a store are read at once where rows are used in order: by tasks of Spark, and in large windows."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import polars as pl
import pyarrow as pa
import pytest

from foldhouse.refresh.run import routing
from foldhouse.refresh.run.routing import Reading, Split
from foldhouse.spark import source
from foldhouse.storage.file_ref import FileRef
from foldhouse.storage.live import Piece
from foldhouse.storage.schema import Layout


def pieces_of(location: str, files: int, size_bytes: int) -> list[Piece]:
    return [Piece(FileRef(f"{location}/{n}.parquet", 1, size_bytes, 0, (), {}, {})) for n in range(files)]


def read(location: str, pieces: list[Piece]) -> list[int]:
    batches = [
        pa.record_batch({"id": pa.array(numbers, pa.int64())}) for numbers in ([], [1, 0, 2], range(3, len(pieces)))
    ]
    found = source._read_parts(Layout("{}", "{}", location, (), ()), ["n"], pieces, batches)
    return [n for batch in found for n in batch.column("n").to_pylist()]


def rows_of(piece: Piece) -> pa.Table:
    return pa.table({"n": [int(piece.file.path.rpartition("/")[2].partition(".")[0])]})


def test_small_files_of_a_store_are_read_at_once_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(3)

    def waits(layout: Layout, piece: Piece, columns: list[str]) -> pa.Table:
        together.wait(timeout=60)
        return rows_of(piece)

    monkeypatch.setattr(source, "read_piece", waits)
    assert read("s3://w/t", pieces_of("s3://w/t", 6, 1_000)) == [1, 0, 2, 3, 4, 5]


@pytest.mark.parametrize(("location", "size"), [("file:///w/t", 1_000), ("s3://w/t", 64 << 20)])
def test_files_on_disk_and_large_ones_are_read_one_by_one(
    monkeypatch: pytest.MonkeyPatch, location: str, size: int
) -> None:
    here = threading.get_ident()

    def alone(layout: Layout, piece: Piece, columns: list[str]) -> pa.Table:
        assert threading.get_ident() == here
        return rows_of(piece)

    monkeypatch.setattr(source, "read_piece", alone)
    assert read(location, pieces_of(location, 5, size)) == [1, 0, 2, 3, 4]


def rows_of_splits(location: str, files: int, size_bytes: int) -> list[int]:
    splits = tuple(
        Split(piece, part, 2, None, 1) for piece in pieces_of(location, files, size_bytes) for part in (0, 1)
    )
    reading = Reading(Layout("{}", "{}", location, (), ()), ("n",), (), (splits,), 1)
    return [n for rows in routing.rows_of_splits(reading, splits) for n in rows["n"]]


def frames_of(split: Split) -> Iterator[pl.DataFrame]:
    """Two frames of a row each."""
    number = rows_of(split.piece)["n"][0].as_py()
    for frame in (0, 1):
        yield pl.DataFrame({"n": [4 * number + 2 * split.part + frame]})


def test_a_window_waits_for_small_files_of_a_store_together(monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(6)

    def waits(reading: Reading, split: Split) -> Iterator[pl.DataFrame]:
        together.wait(timeout=60)
        yield from frames_of(split)

    monkeypatch.setattr(routing, "rows_of_split", waits)
    assert rows_of_splits("s3://w/t", 3, 1_000) == list(range(12))


@pytest.mark.parametrize(("location", "size"), [("file:///w/t", 1_000), ("s3://w/t", 128 << 20)])
def test_a_window_holds_no_more_of_large_files_than_it_asks_for(
    monkeypatch: pytest.MonkeyPatch, location: str, size: int
) -> None:
    asked: list[int] = []

    def alone(reading: Reading, split: Split) -> Iterator[pl.DataFrame]:
        for rows in frames_of(split):
            asked.append(rows["n"][0])
            yield rows

    monkeypatch.setattr(routing, "rows_of_split", alone)
    splits = tuple(Split(piece, 0, 1, None, 1) for piece in pieces_of(location, 2, size))
    reading = Reading(Layout("{}", "{}", location, (), ()), ("n",), (), (splits,), 1)
    coming = routing.rows_of_splits(reading, splits)
    assert (next(coming)["n"][0], asked) == (0, [0])
    assert [rows["n"][0] for rows in coming] == [1, 4, 5]


@pytest.mark.parametrize(
    ("location", "files", "size", "tasks"),
    [
        ("file:///w/t", 300, 1_000, 64),
        ("file:///w/t", 5, 1_000, 5),
        ("s3://w/t", 300, 1_000, 8),
        ("s3://w/t", 5, 1_000, 5),
        ("s3://w/t", 100, 16 << 20, 50),
        ("s3://w/t", 100, 1 << 30, 64),
    ],
)
def test_small_files_of_a_store_are_divided_among_few_tasks(location: str, files: int, size: int, tasks: int) -> None:
    layout = Layout("{}", "{}", location, (), ())
    assert source._tasks(layout, pieces_of(location, files, size), 8) == tasks
