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

from foldhouse.kernel.combine import FILE, POSITION
from foldhouse.kernel.keyed import by_keys
from foldhouse.kernel.plan import FoldPlan, polars_type
from foldhouse.refresh.pruning import pieces_with_keys
from foldhouse.spark.lineage import Origin
from foldhouse.storage.deleted import deleted_by_file
from foldhouse.storage.files import open_file, read_piece
from foldhouse.storage.live import Piece, Slice
from foldhouse.storage.schema import Layout

_MOST_PRUNING_KEYS = 2_000
"""Comparing more keys with the bounds of a file costs more than it saves."""
_MUCH = 0.3
"""Where so large a share of a bucket's rows changes, it is read whole."""
_KEYS_A_ROW_GROUP = 2
"""With so many wanted keys for each row group, hardly one has none, and keys are not read ahead of the rest."""


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
        parts = []
        for number, positions in zip(numbers, without, strict=True):
            rows = read_piece(self.layout, Piece(self.slices[number].file), chosen)
            parts.append(_without(_Part(number, rows, np.arange(rows.num_rows)), positions))
        return self._frame(parts, chosen)

    def of_keys(self, keys: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
        """The rows of some keys, and perhaps others.

        Args:
            keys: the key columns, each key once.
            columns: of the table, the keys among them; the others are null.
        """
        if keys.height > _MUCH * self.rows:
            return self.rows_of(range(len(self.slices)), [self._gone(one) for one in self.slices], columns)
        candidates = {piece.file for piece in self._candidates(keys)}
        wanted = _Wanted.of(keys, self.plan.key_names)
        parts = [
            self._of_keys(number, one, wanted, columns)
            for number, one in enumerate(self.slices)
            if one.file in candidates
        ]
        return self._frame(parts, columns)

    def at(self, places: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
        """Some columns of the rows at some places, and no others.

        Args:
            places: numbers of files and positions in them, each once.
            columns: of the table.
        """
        parts = []
        for (number,), found in places.partition_by(FILE, as_dict=True).items():
            file = open_file(self.layout, self.slices[number].file.path)
            parts.append(_Part(number, *file.read_at(self.layout, columns, found[POSITION].sort().to_numpy())))
        return self._frame(parts, columns).select(*columns, FILE, POSITION)

    def _candidates(self, keys: pl.DataFrame) -> Sequence[Piece]:
        pieces = [Piece(one.file) for one in self.slices]
        if keys.height > _MOST_PRUNING_KEYS:
            return pieces
        values = {name: keys[name].unique().to_list() for name in self.plan.key_names}
        return pieces_with_keys(pieces, self.layout.schema, {name: Origin(name) for name in values}, values)

    def _of_keys(self, number: int, one: Slice, wanted: _Wanted, columns: Sequence[str]) -> _Part:
        """The rows of one file: by the keys first, unless every row group is likely to hold one of them."""
        file = open_file(self.layout, one.file.path)
        groups = file.row_groups_with(self.layout, self.plan.key_names[0], wanted.ordered)
        is_dense = wanted.keys.height >= _KEYS_A_ROW_GROUP * len(groups)
        rows = file.read(self.layout, columns if is_dense else self.plan.key_names, groups)
        found, positions = wanted.places(rows), file.positions(groups)
        part = _without(_Part(number, rows.take(pa.array(found)), positions[found]), self._gone(one))
        if is_dense:
            return part
        return _Part(number, *file.read_at(self.layout, columns, part.positions))

    def _frame(self, parts: Sequence[_Part], columns: Sequence[str]) -> pl.DataFrame:
        """The parts as one frame of all columns of the table, those that were not read as nulls."""
        target = pa.schema([self.layout.arrow.field(name).remove_metadata().with_nullable(True) for name in columns])
        tables = [part.rows.select(columns).cast(target) for part in parts]
        frame = pl.from_arrow(pa.concat_tables(tables) if tables else target.empty_table())
        assert isinstance(frame, pl.DataFrame)
        sizes = [len(part.positions) for part in parts]
        frame = frame.with_columns(
            pl.Series(FILE, np.repeat(np.array([part.number for part in parts], np.uint32), sizes)),
            pl.Series(POSITION, np.concatenate([np.empty(0, np.int64), *(part.positions for part in parts)])),
        )
        missing = [pl.lit(None).alias(name) for name in self._schema if name not in frame.columns]
        return frame.with_columns(missing).select(self._schema.keys()).cast(self._schema)  # type: ignore[arg-type]


@dataclass(frozen=True)
class _Part:
    """Some rows of a file, with their positions in it."""

    number: int
    rows: pa.Table
    positions: np.ndarray


def _without(part: _Part, gone: np.ndarray) -> _Part:
    """The rows that are not at some sorted positions."""
    if not len(gone) or not len(part.positions):
        return part
    places = np.searchsorted(gone, part.positions)
    kept = gone[np.minimum(places, len(gone) - 1)] != part.positions
    return part if kept.all() else _Part(part.number, part.rows.filter(pa.array(kept)), part.positions[kept])


@dataclass(frozen=True)
class _Wanted:
    """The keys that are looked for.

    Args:
        keys: the key columns, each key once.
        ordered: the values of the first one, ascending.
    """

    keys: pl.DataFrame
    ordered: Sequence[Any]

    @classmethod
    def of(cls, keys: pl.DataFrame, names: Sequence[str]) -> _Wanted:
        """Of a frame of keys."""
        return cls(keys.select(names), keys[names[0]].unique().sort().to_list())

    def places(self, rows: pa.Table) -> np.ndarray:
        """Which rows of a table are of one of the keys, as int64, ascending."""
        (first, *more) = self.keys.columns
        kind = rows.schema.field(first).type
        if not more and not pa.types.is_floating(kind):
            among = pc.is_in(rows[first], value_set=self.keys[first].to_arrow().cast(kind))
            return np.flatnonzero(among.to_numpy())
        found = pl.from_arrow(rows.select(self.keys.columns))
        assert isinstance(found, pl.DataFrame)
        typed = found.cast(dict(self.keys.schema)).with_row_index(POSITION)  # type: ignore[arg-type]
        return by_keys(typed, self.keys, self.keys.columns, "semi")[POSITION].sort().to_numpy().astype(np.int64)
