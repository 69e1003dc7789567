"""Choices: which rows of a source can matter, and reading only these rows of a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np
import polars as pl
import pyarrow as pa

from foldhouse.kernel.keyed import by_keys
from foldhouse.kernel.number_set import NumberSet
from foldhouse.storage.deleted import deleted_positions, together
from foldhouse.storage.file_ref import FileRef
from foldhouse.storage.live import Piece
from foldhouse.storage.opened_file import open_ref
from foldhouse.storage.parquet import check_rows
from foldhouse.storage.pieces import SMALL_BYTES, read_pieces
from foldhouse.storage.places import is_on_disk
from foldhouse.storage.project import empty_rows
from foldhouse.storage.schema import Layout

_ROW = "__row"
TOGETHER = 256
"""Small files that are read at once: they have up to 12 MB and a million rows."""
_SMALL_ROWS = 4_096
"""A file with more rows is not small, however few bytes they have: numbers in order take next to none."""


@dataclass(frozen=True, eq=False)
class Choice:
    """Selects the rows of a source that have one of the given values in some columns; null equals null.

    Args:
        columns: columns of the source.
        keys: the wanted values, each once, as a frame with these columns.
    """

    columns: tuple[str, ...]
    keys: pl.DataFrame = field(repr=False)

    @cached_property
    def numbers(self) -> NumberSet | None:
        """The wanted values as a set, if there is one column and it has whole numbers; made once for all files."""
        one = self.keys[self.columns[0]] if len(self.columns) == 1 else None
        return NumberSet(one) if one is not None and one.dtype.is_integer() else None


Choices = tuple[Choice, ...]
"""A row is selected if any of the choices selects it."""


@dataclass(frozen=True)
class Picked:
    """The selected rows of a file, whether deleted or not.

    Args:
        positions: their positions in the file, ascending.
        rows: the rows, in the same order.
    """

    positions: np.ndarray
    rows: pl.DataFrame

    def of_piece(self, layout: Layout, piece: Piece) -> pl.DataFrame:
        """Return the selected rows that belong to a piece of the file."""
        kept = np.ones(len(self.positions), np.bool_)
        if piece.only is not None:
            kept &= _are_among(self.positions, deleted_positions(layout, piece.only, piece.file))
        if piece.without:
            kept &= ~_are_among(self.positions, deleted_positions(layout, piece.without, piece.file))
        return self.rows if kept.all() else self.rows.filter(pl.Series(kept))


def picked(
    layout: Layout,
    ref: FileRef,
    columns: Sequence[str],
    choices: Choices,
    further: np.ndarray | None = None,
    keep_bytes: int = 0,
) -> tuple[Picked, Picked]:
    """Read the rows of a file that choices select, and further rows in the same pass.

    The compared columns are read first. The other columns are read only from row groups with such a row.

    Args:
        layout: of the source.
        ref: the file.
        columns: the columns to return.
        choices: one or more.
        further: positions of further rows, ascending, each once.
        keep_bytes: how much memory decoded columns may take (`DecodedColumns`); none are kept with 0.

    Returns:
        The selected rows, and the further rows.
    """
    compared = list(dict.fromkeys(name for choice in choices for name in choice.columns))
    file = open_ref(layout, ref)
    check_rows(file.path, file.footer.num_rows, ref.rows)
    keys = pl.from_arrow(file.read(layout, compared, keep_bytes=keep_bytes).select(compared))
    assert isinstance(keys, pl.DataFrame)
    positions = _selected(keys, choices)
    further = positions[:0] if further is None else further
    both = together([positions, further]) if len(further) else positions
    found = {name: keys[name][both] for name in compared}
    if others := [name for name in columns if name not in compared]:
        read = pl.from_arrow(file.read_at(layout, others, both, keep_bytes)[0])
        assert isinstance(read, pl.DataFrame)
        found |= read.to_dict()
    rows = pl.DataFrame([found[name] for name in columns])
    if not len(further):
        return Picked(positions, rows), Picked(further, rows.clear())
    chosen_rows, further_rows = (Picked(some, rows[np.searchsorted(both, some)]) for some in (positions, further))
    return chosen_rows, further_rows


def is_small(file: FileRef) -> bool:
    """Whether a file is so small that it is read as a whole with others, if there are many."""
    return file.size_bytes <= SMALL_BYTES and file.rows <= _SMALL_ROWS


def small_among(layout: Layout, files: Iterable[FileRef], least: int) -> list[FileRef]:
    """Return the files to give to `picked_together`: the small ones, if there are so many; else none.

    In a store there are none: the compared columns of its files are kept in memory, and need no request.
    """
    small = [one for one in files if is_small(one)] if is_on_disk(layout.location) else []
    return small if len(small) >= least else []


def picked_together(
    layout: Layout, files: Sequence[FileRef], columns: Sequence[str], choices: Choices
) -> Iterator[Picked]:
    """Read many small files as a whole; yield the rows of each that choices select, in the order of the files.

    Args:
        layout: of the source.
        files: from `small_among`.
        columns: the columns to return.
        choices: one or more.
    """
    needed = list(dict.fromkeys([*columns, *(name for choice in choices for name in choice.columns)]))
    nothing = empty_rows(pa.schema([layout.arrow.field(name).remove_metadata() for name in needed]))
    for first in range(0, len(files), TOGETHER):
        some = files[first : first + TOGETHER]
        read = read_pieces(layout, [Piece(one) for one in some], needed)
        rows = pl.from_arrow(pa.concat_tables([nothing, *read]))
        assert isinstance(rows, pl.DataFrame)
        starts = np.cumsum([0, *(one.rows for one in some)])
        assert rows.height == starts[-1], "small files have other rows than their manifests say"
        places = _selected(rows, choices)
        found, ends = rows.select(columns)[places], np.searchsorted(places, starts)
        for start, (begin, end) in zip(starts, pairwise(ends.tolist()), strict=False):
            yield Picked(places[begin:end] - start, found[begin:end])


def chosen(rows: pl.DataFrame, choices: Choices) -> pl.DataFrame:
    """Return the rows that any of the choices selects; all rows without a choice."""
    return rows[_selected(rows, choices)] if choices else rows


def _selected(rows: pl.DataFrame, choices: Choices) -> np.ndarray:
    """Return the places of the selected rows, ascending, each once."""
    found = [_selected_by(rows, choice) for choice in choices]
    return found[0] if len(found) == 1 else np.unique(np.concatenate(found))


def _selected_by(rows: pl.DataFrame, choice: Choice) -> np.ndarray:
    """Return the places of the rows that one choice selects, ascending, each once."""
    numbers, mine = choice.numbers, rows[choice.columns[0]]
    if numbers is not None and mine.dtype == numbers.dtype and not mine.null_count():
        return numbers.places_in(mine)
    keys = choice.keys.select(choice.columns)
    found = by_keys(rows.with_row_index(_ROW), keys, choice.columns, "semi", nulls_equal=True)[_ROW]
    return np.unique(found.to_numpy()).astype(np.int64)


def not_chosen(rows: pl.DataFrame, choices: Choices) -> pl.DataFrame:
    """Return the rows that none of the choices selects; all rows without a choice."""
    kept = np.ones(rows.height, np.bool_)
    if choices:
        kept[_selected(rows, choices)] = False
    return rows.filter(pl.Series(kept))


def _are_among(positions: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Whether each position is among some others; both ascend."""
    if not len(others):
        return np.zeros(len(positions), np.bool_)
    # Both ascend, so a binary search replaces a hash table of the other positions.
    places = np.searchsorted(others, positions)
    return np.asarray(others[np.minimum(places, len(others) - 1)] == positions)
