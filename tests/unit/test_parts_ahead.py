"""A task of Spark reads several files of a store at once, and hands over their rows in order."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

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
