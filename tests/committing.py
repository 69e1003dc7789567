"""Commits of a table of numbers: its files made by hand, and what is live afterwards."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Operation

import foldhouse as fh
from foldhouse.storage.commit import FileChanges
from foldhouse.storage.files import write_data_file, write_position_deletes
from foldhouse.storage.live import Partition, Piece, live_slices, pieces_of
from foldhouse.storage.pieces import read_piece
from foldhouse.storage.schema import Layout

stream = fh.stream("shop.numbers", schema={"n": "int"})


def numbers(*values: int) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int32())})


def one_two_three(lake: fh.Lake) -> Callable[[], IcebergTable]:
    """Loads a table that holds 1, 2, 3 in one file."""
    lake.append(stream, numbers(1, 2, 3))
    return lambda: lake.load(stream)


def a_file(iceberg: IcebergTable, *values: int) -> DataFile:
    return write_data_file(Layout.of(iceberg), Partition(()), numbers(*values))


def deletes(iceberg: IcebergTable, path: str, *positions: int) -> DataFile:
    return write_position_deletes(Layout.of(iceberg), Partition(()), [(path, np.array(positions, np.int64))])


def paths(iceberg: IcebergTable) -> list[str]:
    """The live data files, those with the smallest numbers first."""
    slices = live_slices(iceberg, iceberg.metadata.current_snapshot_id).values()
    least = {piece.file.path: min(_held(iceberg, piece), default=0) for piece in pieces_of(slices)}
    return sorted(least, key=lambda path: least[path])


def _held(iceberg: IcebergTable, piece: Piece) -> list[int]:
    found: list[int] = read_piece(Layout.of(iceberg), piece)["n"].to_pylist()
    return found


def rows(iceberg: IcebergTable) -> list[int]:
    pieces = pieces_of(live_slices(iceberg, iceberg.metadata.current_snapshot_id).values())
    return sorted(n for piece in pieces for n in _held(iceberg, piece))


KINDS: dict[str, Callable[[IcebergTable], FileChanges]] = {
    "an append": lambda t: FileChanges([a_file(t, 4)], operation=Operation.APPEND),
    "two files": lambda t: FileChanges([a_file(t, 4), a_file(t, 5)]),
    "an overwrite": lambda t: FileChanges([a_file(t, 4)], frozenset(paths(t))),
    "a delete of rows": lambda t: FileChanges([deletes(t, paths(t)[0], 1)]),
    "rows and deletes": lambda t: FileChanges([a_file(t, 4), deletes(t, paths(t)[0], 1)]),
    "a delete of files": lambda t: FileChanges(removed=frozenset(paths(t)), operation=Operation.DELETE),
    "a compaction": lambda t: FileChanges([a_file(t, *rows(t))], frozenset(paths(t)), Operation.REPLACE),
    "nothing but properties": lambda t: FileChanges(),
}
