"""Read the stored rows of a bucket, as few as a change needs.

A file whose bounds exclude every wanted key is not read. From the other files, the key columns are read first. Then the
remaining columns are read only from row groups with a wanted row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from foldhouse.kernel.combine import FILE, ROW_POSITION
from foldhouse.kernel.keyed import by_keys
from foldhouse.kernel.plan import FoldPlan, polars_type
from foldhouse.logic.shape import Origin
from foldhouse.refresh.bucket.cost import Stored, is_worn_out, patience_of
from foldhouse.refresh.window.pruning import compared_values, pieces_with_keys
from foldhouse.storage.deleted import deleted_by_file
from foldhouse.storage.live import Piece, Slice
from foldhouse.storage.opened_file import open_ref
from foldhouse.storage.pieces import read_piece
from foldhouse.storage.places import is_on_disk
from foldhouse.storage.project import empty_rows
from foldhouse.storage.schema import Layout
from foldhouse.storage.store import is_in_memory
from foldhouse.values.tuning import Tuning

_KEPT_BYTES = 256 * 1024 * 1024
"""Rows of files of several buckets that are kept from the lookup of keys until these files are written again."""


@dataclass(frozen=True)
class StoredRows:
    """The stored rows of one bucket.

    Args:
        key_names: the key columns of the table.
        layout: the layout of the table.
        slices: the bucket's data files with their delete files.
        tuning: decides whether keys are looked up or the whole bucket is read.
        buckets: how many buckets are folded together; they share the memory for rows that are kept.
    """

    key_names: Sequence[str]
    layout: Layout
    slices: Sequence[Slice]
    tuning: Tuning
    buckets: int = 1

    # Not cached properties: those of Python 3.11 hold one lock for all buckets while they are made.
    _kept: dict[int, pa.Table] = field(default_factory=dict, init=False, repr=False, compare=False)
    """The place of a file that will probably be written again -> all of its rows, with the columns read so far."""
    _deleted: list[dict[str, np.ndarray]] = field(default_factory=list, init=False, repr=False, compare=False)
    """Data file -> the positions that are deleted in it, once they were read."""

    @property
    def rows(self) -> int:
        """The number of live rows."""
        return sum(one.file.rows - len(self._gone(one)) for one in self.slices)

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of its data files and delete files, each once."""
        return tuple(dict.fromkeys(path for one in self.slices for path in (one.file.path, *one.deletes)))

    def are_waited_for(self) -> bool:
        """Whether the rows are in a store, and not all of them in memory."""
        if is_on_disk(self.layout.location):
            return False
        return not all(is_in_memory(self.layout.io, path) for path in self.paths)

    def gone(self, number: int) -> np.ndarray:
        """Return the deleted positions of a file, sorted."""
        return self._gone(self.slices[number])

    def _gone(self, one: Slice) -> np.ndarray:
        if not self._deleted:
            self._deleted.append(deleted_by_file(self.layout, self.slices))
        found = self._deleted[0].get(one.file.path)
        return np.empty(0, np.int64) if found is None else found

    def rows_of(self, numbers: Sequence[int], without: Sequence[np.ndarray], columns: Sequence[str]) -> list[Part]:
        """Read all rows of some files except those at the given positions.

        Args:
            numbers: the places of the files in `slices`.
            without: per file, the positions to leave out, sorted.
            columns: columns of the table.
        """
        parts = []
        for number, positions in zip(numbers, without, strict=True):
            rows = self._all_of(number, columns)
            kept = _left(np.arange(rows.num_rows), positions, self.tuning)
            parts.append(Part(number, _taken(rows, kept), kept))
        return parts

    def _all_of(self, number: int, columns: Sequence[str]) -> pa.Table:
        """Read all rows of a file, but no column again that `of_keys` kept; the columns are in any order."""
        kept = self._kept.get(number)
        missing = [name for name in columns if kept is None or name not in kept.column_names]
        if kept is None or not missing:
            return read_piece(self.layout, Piece(self.slices[number].file), columns) if kept is None else kept
        read = read_piece(self.layout, Piece(self.slices[number].file), missing)
        for name in missing:
            kept = kept.append_column(read.schema.field(name), read[name])
        return kept

    def of_keys(self, keys: pl.DataFrame, columns: Sequence[str]) -> list[Part]:
        """Read the rows of some keys, and possibly rows of other keys.

        Args:
            keys: the key columns, each key once.
            columns: columns of the table, including the keys.
        """
        if keys.height > self.tuning.read_whole_share * self.rows:
            return self.rows_of(range(len(self.slices)), [self._gone(one) for one in self.slices], columns)
        candidates = {piece.file for piece in self._candidates(keys)}
        wanted = _Wanted.of(keys, self.key_names)
        self._kept.clear()
        numbered = enumerate(self.slices)
        return [self._of_keys(number, one, wanted, columns) for number, one in numbered if one.file in candidates]

    def at(self, places: pl.DataFrame, columns: Sequence[str]) -> list[Part]:
        """Read some columns of exactly the rows at some places.

        Args:
            places: `__file` and `__position` of the rows, each once.
            columns: columns of the table.
        """
        parts = []
        for (number,), found in places.partition_by(FILE, as_dict=True).items():
            file = open_ref(self.layout, self.slices[number].file)
            parts.append(Part(number, *file.read_at(self.layout, columns, found[ROW_POSITION].sort().to_numpy())))
        return parts

    def _candidates(self, keys: pl.DataFrame) -> Sequence[Piece]:
        pieces = [Piece(one.file) for one in self.slices]
        if keys.height > self.tuning.pruning_keys:
            return pieces
        values = {name: compared_values(keys[name].unique()) for name in self.key_names}
        return pieces_with_keys(pieces, self.layout.schema, {name: Origin(name) for name in values}, values)

    def _of_keys(self, number: int, one: Slice, wanted: _Wanted, columns: Sequence[str]) -> Part:
        """Read the wanted rows of one file.

        The keys are read first, unless there are so many wanted keys that every row group probably has one.
        """
        file = open_ref(self.layout, one.file)
        groups = file.row_groups_with(self.layout, self.key_names[0], wanted.ordered)
        is_dense = wanted.keys.height >= self.tuning.dense_row_group_keys * len(groups)
        rows = file.read(self.layout, columns if is_dense else self.key_names, groups, then=columns)
        places, gone = wanted.places(rows), self._gone(one)
        positions = file.positions(groups, places)
        if len(gone):
            is_left = _is_left(positions, gone, self.tuning)
            places, positions = places[is_left], positions[is_left]
        if is_dense:
            worn = Stored(one.file.rows, len(gone) + len(places), patience_of(one.file.path))
            if rows.num_rows == one.file.rows and is_worn_out(worn, self.tuning) and self._has_room_for(rows):
                self._kept[number] = rows
            return Part(number, _taken(rows, places), positions)
        return Part(number, *file.read_at(self.layout, columns, positions))

    def _has_room_for(self, rows: pa.Table) -> bool:
        """Whether rows may be kept until they are written.

        The rewritten files of one bucket are in memory together anyway. Those of several buckets are written one bucket
        after another, but all of them are read before.
        """
        size = rows.nbytes + sum(kept.nbytes for kept in self._kept.values())
        return self.buckets == 1 or bool(size * self.buckets <= _KEPT_BYTES)


@dataclass(frozen=True)
class Part:
    """Some rows of a file, with their positions in it."""

    number: int
    rows: pa.Table
    positions: np.ndarray

    def of_all(self, first: int) -> Part:
        """Return the same rows with the file's number counted over several buckets; this bucket begins at `first`."""
        return Part(self.number + first, self.rows, self.positions)


def framed(plan: FoldPlan, layout: Layout, parts: Sequence[Part], columns: Sequence[str]) -> pl.DataFrame:
    """Concatenate parts of files of one table into one frame, and add `__file` and `__position`.

    Args:
        plan: the compiled fold of the table.
        layout: the layout of the table.
        parts: rows with at least these columns.
        columns: columns of the table.
    """
    target = pa.schema([layout.arrow.field(name).remove_metadata().with_nullable(True) for name in columns])
    tables = [part.rows.select(columns).cast(target) for part in parts]
    frame = pl.from_arrow(pa.concat_tables(tables) if tables else empty_rows(target))
    assert isinstance(frame, pl.DataFrame)
    sizes = [len(part.positions) for part in parts]
    numbers = np.repeat(np.array([part.number for part in parts], np.uint32), sizes)
    positions = np.concatenate([np.empty(0, np.int64), *(part.positions for part in parts)])
    types = {name: polars_type(plan.table_schema.field(name).type) for name in columns}
    return frame.with_columns(pl.Series(FILE, numbers), pl.Series(ROW_POSITION, positions)).cast(types)  # type: ignore[arg-type]


def _left(positions: np.ndarray, gone: np.ndarray, tuning: Tuning) -> np.ndarray:
    """Return the positions that are not deleted."""
    return positions[_is_left(positions, gone, tuning)] if len(gone) else positions


def _is_left(positions: np.ndarray, gone: np.ndarray, tuning: Tuning) -> np.ndarray:
    """Whether each position is not deleted; both arrays ascend, and `gone` is not empty.

    A few positions are looked up by binary search. For many, a mask over all positions is faster.
    """
    if len(positions) < len(gone) // tuning.looked_up_rows_factor:
        # A position beyond the last one is compared with that, and differs.
        places = np.searchsorted(gone, positions)
        return np.asarray(gone[np.minimum(places, len(gone) - 1)] != positions)
    marks = np.ones(max(gone[-1], positions[-1] if len(positions) else 0) + 1, np.bool_)
    marks[gone] = False
    return np.asarray(marks[positions])


def _taken(rows: pa.Table, places: np.ndarray) -> pa.Table:
    """Return the rows at some distinct ascending places."""
    return rows if len(places) == rows.num_rows else rows.take(pa.array(places))  # as many places as rows: all of them


@dataclass(frozen=True)
class _Wanted:
    """The wanted keys, prepared for lookups in many files.

    Args:
        keys: the key columns, each key once.
        ordered: the values of the first key column, ascending, as a list or an array; none of a type that row groups do
            not compare.
        numbers: the same values as an array if there is one key column and its type is an integer; else `None`.
    """

    keys: pl.DataFrame
    ordered: Sequence[Any] | np.ndarray
    numbers: np.ndarray | None

    @classmethod
    def of(cls, keys: pl.DataFrame, names: Sequence[str]) -> _Wanted:
        """Prepare a frame of keys."""
        first = keys[names[0]]
        first = (first if len(names) == 1 else first.unique()).sort()
        if len(names) == 1 and first.dtype.is_integer():
            numbers = first.to_numpy()
            return cls(keys.select(names), numbers, numbers)
        ordered = [] if isinstance(first.dtype, pl.Datetime) else compared_values(first)
        return cls(keys.select(names), ordered, None)

    def places(self, rows: pa.Table) -> np.ndarray:
        """Return the places of the rows of a table that have a wanted key, as int64, ascending."""
        (first, *more) = self.keys.columns
        kind = rows.schema.field(first).type
        if self.numbers is not None and len(self.numbers) and rows.num_rows:
            stored = rows[first].to_numpy()
            if bool((stored[1:] > stored[:-1]).all()):  # files that foldhouse wrote are sorted: use binary search
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
