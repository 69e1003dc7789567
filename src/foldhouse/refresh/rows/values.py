"""The distinct values of some columns of a source: only these columns are read."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from foldhouse.kernel.plan import polars_type
from foldhouse.refresh.rows.choices import Choices, chosen, is_small, picked, picked_together, small_among
from foldhouse.refresh.rows.logic import Logic
from foldhouse.refresh.rows.read import admitted
from foldhouse.storage.file_ref import FileRef
from foldhouse.storage.live import Piece
from foldhouse.storage.pieces import read_piece
from foldhouse.storage.threads import in_threads


def values_of(
    logic: Logic, place: int, pieces: Sequence[Piece], columns: tuple[str, ...], choices: Choices = ()
) -> pl.DataFrame:
    """Return the distinct values of some columns in the rows of pieces that the choices select."""
    layout = logic.layouts[place]
    needed = list(dict.fromkeys([*columns, *(name for choice in choices for name in choice.columns)]))

    def values(piece: Piece) -> pl.DataFrame:
        read = read_piece(layout, piece, needed, logic.tuning.kept_column_bytes)
        rows = pl.from_arrow(read.select(needed))
        assert isinstance(rows, pl.DataFrame)
        return chosen(rows, choices).select(columns).unique()

    at_once = layout.files_at_once(one.file.size_bytes for one in pieces)
    return together([_no_values(logic, place, columns), *in_threads(values, pieces, at_once)])


def values_in_files(
    logic: Logic, place: int, states: Sequence[tuple[Sequence[Piece], ...]], columns: tuple[str, ...], choices: Choices
) -> pl.DataFrame:
    """Return the distinct values of some columns in the rows that choices select, among them perhaps deleted rows.

    Args:
        logic: the logic of the table.
        place: of the source.
        states: the states of all sources to look through.
        columns: of the source.
        choices: one or more.
    """
    layout = logic.layouts[place]
    pieces = [piece for state in states for piece in admitted(logic, place, state[place], choices)]
    files = list({piece.file.path: piece.file for piece in pieces}.values())
    small = small_among(layout, files, logic.tuning.picked_files)
    found = [one.rows for one in picked_together(layout, small, list(columns), choices)]
    others = [file for file in files if not (small and is_small(file))]

    def values(file: FileRef) -> pl.DataFrame:
        chosen_rows, _ = picked(layout, file, list(columns), choices, keep_bytes=logic.tuning.kept_column_bytes)
        return chosen_rows.rows.unique()

    at_once = layout.files_at_once(one.size_bytes for one in others)
    read = in_threads(values, others, at_once)
    return together([_no_values(logic, place, columns), *([pl.concat(found).unique()] if found else []), *read])


def together(parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Return the distinct rows of frames that have no row twice each; one or more frames."""
    whole = pl.concat(parts)
    return whole if sum(not part.is_empty() for part in parts) < 2 else whole.unique()


def _no_values(logic: Logic, place: int, columns: tuple[str, ...]) -> pl.DataFrame:
    arrow = logic.layouts[place].arrow
    return pl.DataFrame(schema={name: polars_type(arrow.field(name).type) for name in columns})
