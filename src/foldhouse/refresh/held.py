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

from foldhouse.kernel.combine import FILE, POSITION
from foldhouse.kernel.keyed import by_keys
from foldhouse.kernel.plan import FoldPlan, polars_type
from foldhouse.refresh.pruning import pieces_with_keys
from foldhouse.spark.lineage import Origin
from foldhouse.storage.files import deleted_by_file, open_file, read_piece
from foldhouse.storage.live import Piece, Slice
from foldhouse.storage.schema import Layout

_MOST_PRUNING_KEYS = 2_000
"""Comparing more keys with the bounds of a file costs more than it saves."""
_MUCH = 0.3
"""Where so large a share of a bucket's rows changes, all its columns are read at once."""


@dataclass(frozen=True)
class Held:
    """The rows of one bucket.

    Args:
        plan: of the table's fold.
        layout: of the table.
        slices: the bucket's files with their delete files.
    """

    plan: FoldPlan
    layout: Layout
    slices: Sequence[Slice]

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

    @property
    def _schema(self) -> dict[str, pl.DataType]:
        columns = {f.name: polars_type(f.type) for f in self.plan.table_schema}
        return columns | {FILE: pl.UInt32(), POSITION: pl.Int64()}

    def rows_of(
        self, numbers: Sequence[int], without: Sequence[np.ndarray], columns: Sequence[str] | None = None
    ) -> pl.DataFrame:
        """The rows of some files but for those at some positions of each.

        Args:
            numbers: of the files.
            without: of each file, sorted positions.
            columns: of the table; the others are null. All by default.
        """
        chosen = columns or self.plan.table_schema.names
        frames = [pl.DataFrame(schema=self._schema)]
        for number, positions in zip(numbers, without, strict=True):
            rows, places = read_piece(self.layout, Piece(self.slices[number].file), chosen)
            kept = np.setdiff1d(places, positions, assume_unique=True)
            frames.append(self._frame(rows, number, places)[kept])
        return pl.concat(frames)

    def of_keys(self, keys: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
        """The rows of some keys, and perhaps others.

        Args:
            keys: the key columns, each key once.
            columns: of the table, the keys among them; the others are null.
        """
        if keys.height > _MUCH * self.rows:
            return self.rows_of(range(len(self.slices)), [self._gone(one) for one in self.slices], columns)
        candidates = {piece.file for piece in self._candidates(keys)}
        ordered = keys[self.plan.key_names[0]].unique().sort().to_list()
        frames = [pl.DataFrame(schema=self._schema)]
        for number, one in enumerate(self.slices):
            if one.file in candidates:
                frames.append(self._of_keys(number, one, keys, ordered, columns))
        return pl.concat(frames)

    def at(self, places: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
        """Some columns of the rows at some places.

        Args:
            places: numbers of files and positions in them, each once.
            columns: of the table.
        """
        frames = [pl.DataFrame(schema={n: k for n, k in self._schema.items() if n in (*columns, FILE, POSITION)})]
        for (number,), found in places.partition_by(FILE, as_dict=True).items():
            positions = found[POSITION].sort().to_numpy()
            file = open_file(self.layout, self.slices[number].file.path)
            frames.append(self._frame(file.read_at(self.layout, columns, positions)[0], number, positions, columns))
        return pl.concat(frames)

    def _candidates(self, keys: pl.DataFrame) -> Sequence[Piece]:
        pieces = [Piece(one.file) for one in self.slices]
        if keys.height > _MOST_PRUNING_KEYS:
            return pieces
        values = {name: keys[name].unique().to_list() for name in self.plan.key_names}
        return pieces_with_keys(pieces, self.layout.schema, {name: Origin(name) for name in values}, values)

    def _of_keys(
        self, number: int, one: Slice, keys: pl.DataFrame, ordered: Sequence[Any], columns: Sequence[str]
    ) -> pl.DataFrame:
        file = open_file(self.layout, one.file.path)
        groups = file.row_groups_with(self.layout, self.plan.key_names[0], ordered)
        found = pl.from_arrow(file.read(self.layout, self.plan.key_names, groups))
        assert isinstance(found, pl.DataFrame)
        typed = found.cast({name: self._schema[name] for name in self.plan.key_names})
        wanted = by_keys(typed.with_row_index(POSITION), keys, self.plan.key_names, "semi")[POSITION].to_numpy()
        positions = np.setdiff1d(file.positions(groups)[wanted], self._gone(one), assume_unique=True)
        if not len(positions):
            return pl.DataFrame(schema=self._schema)
        rows, places = file.read_at(self.layout, columns, positions)
        return self._frame(rows, number, places)

    def _frame(
        self, rows: pa.Table, number: int, positions: np.ndarray, columns: Sequence[str] | None = None
    ) -> pl.DataFrame:
        frame = pl.from_arrow(rows)
        assert isinstance(frame, pl.DataFrame)
        chosen = list(columns or self.plan.table_schema.names)
        missing = [pl.lit(None).alias(name) for name in chosen if name not in frame.columns]
        places = [pl.Series(FILE, np.full(len(positions), number, np.uint32)), pl.Series(POSITION, positions)]
        whole = frame.with_columns(missing).select(chosen).with_columns(places)
        return whole.cast({name: self._schema[name] for name in whole.columns})
