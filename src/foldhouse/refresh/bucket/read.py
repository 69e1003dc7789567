"""What a bucket holds: read as far as a change needs it, the rows of some keys first by their keys alone.

Of a file whose keys cannot be among the wanted ones nothing is read, of the others the key columns; the remaining
columns only of the row groups that hold a wanted row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from foldhouse.kernel.combine import FILE, ROW_POSITION
from foldhouse.kernel.keyed import by_keys
from foldhouse.kernel.plan import FoldPlan, polars_type
from foldhouse.logic.shape import Origin
from foldhouse.refresh.window.pruning import pieces_with_keys
from foldhouse.storage.deleted import deleted_by_file
from foldhouse.storage.files import open_file, read_piece
from foldhouse.storage.live import Piece, Slice
from foldhouse.storage.schema import Layout
from foldhouse.values.tuning import Tuning


@dataclass(frozen=True)
class StoredRows:
    """The rows of one bucket.

    Args:
        key_names: the key columns of the table.
        layout: of the table.
        slices: the bucket's files with their delete files.
        tuning: when keys are looked for, and when all is read.
    """

    key_names: Sequence[str]
    layout: Layout
    slices: Sequence[Slice]
    tuning: Tuning

    @cached_property
    def _deleted(self) -> dict[str, np.ndarray]:
        return deleted_by_file(self.layout, sorted({path for one in self.slices for path in one.deletes}))

    @property
    def rows(self) -> int:
        """How many there are."""
        return sum(one.file.rows - len(self._gone(one)) for one in self.slices)

    def gone(self, number: int) -> np.ndarray:
        """The sorted positions of a file that are deleted."""
        return self._gone(self.slices[number])

    def _gone(self, one: Slice) -> np.ndarray:
        found = self._deleted.get(one.file.path)
        return np.empty(0, np.int64) if found is None or not one.deletes else found

    def rows_of(self, numbers: Sequence[int], without: Sequence[np.ndarray], columns: Sequence[str]) -> list[Part]:
        """The rows of some files but for those at some positions of each.

        Args:
            numbers: of the files.
            without: of each file, sorted positions.
            columns: of the table.
        """
        parts = []
        for number, positions in zip(numbers, without, strict=True):
            rows = read_piece(self.layout, Piece(self.slices[number].file), columns)
            kept = _left(np.arange(rows.num_rows), positions, self.tuning)
            parts.append(Part(number, _taken(rows, kept), kept))
        return parts

    def of_keys(self, keys: pl.DataFrame, columns: Sequence[str]) -> list[Part]:
        """The rows of some keys, and perhaps others.

        Args:
            keys: the key columns, each key once.
            columns: of the table, the keys among them.
        """
        if keys.height > self.tuning.read_whole_share * self.rows:
            return self.rows_of(range(len(self.slices)), [self._gone(one) for one in self.slices], columns)
        candidates = {piece.file for piece in self._candidates(keys)}
        wanted = _Wanted.of(keys, self.key_names)
        numbered = enumerate(self.slices)
        return [self._of_keys(number, one, wanted, columns) for number, one in numbered if one.file in candidates]

    def at(self, places: pl.DataFrame, columns: Sequence[str]) -> list[Part]:
        """Some columns of the rows at some places, and no others.

        Args:
            places: numbers of files and positions in them, each once.
            columns: of the table.
        """
        parts = []
        for (number,), found in places.partition_by(FILE, as_dict=True).items():
            file = open_file(self.layout, self.slices[number].file.path)
            parts.append(Part(number, *file.read_at(self.layout, columns, found[ROW_POSITION].sort().to_numpy())))
        return parts

    def _candidates(self, keys: pl.DataFrame) -> Sequence[Piece]:
        pieces = [Piece(one.file) for one in self.slices]
        if keys.height > self.tuning.pruning_keys:
            return pieces
        values = {name: keys[name].unique().to_list() for name in self.key_names}
        return pieces_with_keys(pieces, self.layout.schema, {name: Origin(name) for name in values}, values)

    def _of_keys(self, number: int, one: Slice, wanted: _Wanted, columns: Sequence[str]) -> Part:
        """The rows of one file: by the keys first, unless every row group is likely to hold one of them."""
        file = open_file(self.layout, one.file.path)
        groups = file.row_groups_with(self.layout, self.key_names[0], wanted.ordered)
        is_dense = wanted.keys.height >= self.tuning.dense_row_group_keys * len(groups)
        rows = file.read(self.layout, columns if is_dense else self.key_names, groups)
        places, gone = wanted.places(rows), self._gone(one)
        positions = file.positions(groups, places)
        if len(gone):
            is_left = _is_left(positions, gone, self.tuning)
            places, positions = places[is_left], positions[is_left]
        if is_dense:
            return Part(number, _taken(rows, places), positions)
        return Part(number, *file.read_at(self.layout, columns, positions))


@dataclass(frozen=True)
class Part:
    """Some rows of a file, with their positions in it."""

    number: int
    rows: pa.Table
    positions: np.ndarray

    def of_all(self, first: int) -> Part:
        """The same, its file counted among those of several buckets, of which this one's begin at a number."""
        return Part(self.number + first, self.rows, self.positions)


def framed(plan: FoldPlan, layout: Layout, parts: Sequence[Part], columns: Sequence[str]) -> pl.DataFrame:
    """Parts of files of one table as one frame, with `__file` and `__position`.

    Args:
        plan: of the table's fold.
        layout: of the table.
        parts: with at least these columns.
        columns: of the table.
    """
    target = pa.schema([layout.arrow.field(name).remove_metadata().with_nullable(True) for name in columns])
    tables = [part.rows.select(columns).cast(target) for part in parts]
    frame = pl.from_arrow(pa.concat_tables(tables) if tables else target.empty_table())
    assert isinstance(frame, pl.DataFrame)
    sizes = [len(part.positions) for part in parts]
    numbers = np.repeat(np.array([part.number for part in parts], np.uint32), sizes)
    positions = np.concatenate([np.empty(0, np.int64), *(part.positions for part in parts)])
    types = {name: polars_type(plan.table_schema.field(name).type) for name in columns}
    return frame.with_columns(pl.Series(FILE, numbers), pl.Series(ROW_POSITION, positions)).cast(types)  # type: ignore[arg-type]


def _left(positions: np.ndarray, gone: np.ndarray, tuning: Tuning) -> np.ndarray:
    """The positions that are not among some that are gone."""
    return positions[_is_left(positions, gone, tuning)] if len(gone) else positions


def _is_left(positions: np.ndarray, gone: np.ndarray, tuning: Tuning) -> np.ndarray:
    """Whether each position is not among some that are gone; both ascending, the latter not empty."""
    if len(positions) < len(gone) // tuning.looked_up_rows_factor:
        places = np.searchsorted(gone, positions)
        return np.asarray(gone[np.minimum(places, len(gone) - 1)] != positions)
    marks = np.ones(max(gone[-1], positions[-1] if len(positions) else 0) + 1, np.bool_)
    marks[gone] = False
    return np.asarray(marks[positions])


def _taken(rows: pa.Table, places: np.ndarray) -> pa.Table:
    """The rows at some ascending places, each once."""
    return rows if len(places) == rows.num_rows else rows.take(pa.array(places))


@dataclass(frozen=True)
class _Wanted:
    """The keys that are looked for.

    Args:
        keys: the key columns, each key once.
        ordered: the values of the first one, ascending.
        numbers: the same in memory, where whole numbers are the only key; else `None`.
    """

    keys: pl.DataFrame
    ordered: Sequence[Any]
    numbers: np.ndarray | None

    @classmethod
    def of(cls, keys: pl.DataFrame, names: Sequence[str]) -> _Wanted:
        """Of a frame of keys."""
        first = keys[names[0]].unique().sort()
        is_number = len(names) == 1 and first.dtype.is_integer()
        return cls(keys.select(names), first.to_list(), first.to_numpy() if is_number else None)

    def places(self, rows: pa.Table) -> np.ndarray:
        """Which rows of a table are of one of the keys, as int64, ascending."""
        (first, *more) = self.keys.columns
        kind = rows.schema.field(first).type
        if self.numbers is not None and len(self.numbers) and rows.num_rows:
            stored = rows[first].to_numpy()
            if bool((stored[1:] > stored[:-1]).all()):  # as foldhouse writes its files
                at = np.searchsorted(stored, self.numbers)
                is_there = stored[np.minimum(at, len(stored) - 1)] == self.numbers
                return np.asarray(at[is_there], np.int64)
        if not more and not pa.types.is_floating(kind):
            among = pc.is_in(rows[first], value_set=self.keys[first].to_arrow().cast(kind))
            return np.flatnonzero(among.to_numpy())
        found = pl.from_arrow(rows.select(self.keys.columns))
        assert isinstance(found, pl.DataFrame)
        typed = found.cast(dict(self.keys.schema)).with_row_index(ROW_POSITION)  # type: ignore[arg-type]
        return by_keys(typed, self.keys, self.keys.columns, "semi")[ROW_POSITION].sort().to_numpy().astype(np.int64)
