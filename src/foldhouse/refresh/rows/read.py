"""The rows of the sources that an evaluation reads, and how many they are: only what its choices select."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import polars as pl
import pyarrow as pa
from pyiceberg.schema import Schema

from foldhouse.kernel.plan import polars_type
from foldhouse.logic.shape import Origin
from foldhouse.refresh.rows.choices import TOGETHER, Choice, Choices, chosen, is_small, not_chosen
from foldhouse.refresh.rows.deliveries import last_deliveries, order_of
from foldhouse.refresh.rows.logic import Evaluation, Logic
from foldhouse.refresh.window.pruning import compared_values, pieces_in_span, pieces_with_keys
from foldhouse.storage.deleted import rows_of_piece
from foldhouse.storage.live import Piece
from foldhouse.storage.pieces import read_piece
from foldhouse.storage.threads import in_threads
from foldhouse.values.definition import Stream

_PICKED_AT_ONCE = 16  # files; after each so many, the rows are counted
_SAMPLED = 8  # of so many files, one is looked at first, if there are at least twice as many
_SAMPLED_ROWS = 50_000
_COMPARED_ROWS = 50_000
_TYPICAL = 0.125  # from so large a share of the rows on, the rows that were looked at tell how many of all are selected
_CLEARLY = (2, 1.25)  # a sample decides if its share makes so many times too many; the second if it has so many rows


def admitted(logic: Logic, place: int, pieces: Sequence[Piece], choices: Choices) -> list[Piece]:
    """Return the pieces of a source that can hold rows of some choice, by the column bounds of their files."""
    if not choices:
        return list(pieces)
    kept: dict[Piece, None] = {}
    for choice in choices:
        kept |= dict.fromkeys(_admitted(logic, logic.layouts[place].schema, pieces, choice))
    return [piece for piece in pieces if piece in kept]


def _admitted(logic: Logic, schema: Schema, pieces: Sequence[Piece], choice: Choice) -> list[Piece]:
    """Return the pieces that can hold rows of one choice."""
    columns = [choice.keys[name] for name in choice.columns if choice.keys[name].null_count() == 0]
    if choice.keys.height <= logic.tuning.pruning_keys:
        known = {column.name: compared_values(column.unique()) for column in columns}
        return pieces_with_keys(pieces, schema, {name: Origin(name) for name in known}, known)
    kept = list(pieces)
    for column in columns:
        values = column.to_frame()
        ends = [] if column.dtype.is_nested() else compared_values(pl.concat([values.min(), values.max()]).to_series())
        if ends:
            kept = pieces_in_span(kept, schema, column.name, *ends)
    return kept


def events_here(logic: Logic, place: int, evaluation: Evaluation) -> pl.DataFrame:
    """Return the rows of one source that an evaluation reads, each event once."""
    choices = evaluation.choices[place]
    rows = rows_of(logic, place, evaluation.pieces[place], choices)
    if further := evaluation.besides_of(place):
        rows = pl.concat([rows, not_chosen(rows_of(logic, place, further, ()), choices)])
    source = logic.compiled.table.sources[place]
    if not isinstance(source, Stream) or not source.event_id:
        return rows
    same = (Choice(source.event_id, rows.select(source.event_id).unique()),)
    deliveries = rows_of(logic, place, evaluation.deliveries[place], same)
    return chosen(last_deliveries(deliveries, source.event_id, order_of(source, logic.compiled.inputs[place])), choices)


def can_be_picked(logic: Logic, evaluations: Sequence[Evaluation], most: int) -> bool:
    """Read the rows that choices select, and return whether they are at most so many.

    An evaluation in this process then finds them in memory.
    """
    for one in evaluations:
        for place, choices in enumerate(one.choices):
            if choices:
                rows, are_read = _rows_selected(logic, one, place, most)
                most -= rows
                if most < 0 or not are_read:
                    return False
    return True


def rows_to_evaluate(logic: Logic, evaluations: Sequence[Evaluation], most: int, enough: float = math.inf) -> int:
    """Estimate how many rows evaluations read, with their choices.

    Args:
        logic: the logic of the table.
        evaluations: with choices or without.
        most: the number of selected rows up to which they are counted; of more, a part is read, and its share counts.
            Files from all over are looked at first, because they may show that there are clearly more.
        enough: with more rows than this, the others are not counted.
    """
    rows = 0
    for one in evaluations:
        for place, choices in enumerate(one.choices):
            if rows > enough:
                return rows
            further = one.besides_of(place)
            if choices:
                selected, _ = _rows_selected(logic, one, place, most)
                rows, most = rows + selected, max(0, most - selected)
            else:
                further = [*one.pieces[place], *further]
            rows += sum(rows_of_piece(logic.layouts[place], piece) for piece in further)
    return rows


def _rows_selected(logic: Logic, evaluation: Evaluation, place: int, most: int) -> tuple[int, bool]:
    """Return how many rows of a source an evaluation selects, and whether they were all read: not if more than `most`.

    Then the number is an estimate.
    """
    label = (id(evaluation), place)
    if label not in logic.selected:
        choices = evaluation.choices[place]
        pieces = admitted(logic, place, evaluation.pieces[place], choices)
        logic.selected[label] = (evaluation, *_counted(logic, place, pieces, choices, most))
    _, rows, are_read = logic.selected[label]
    return rows, are_read


def _counted(logic: Logic, place: int, pieces: Sequence[Piece], choices: Choices, most: int) -> tuple[int, bool]:
    """Return how many rows of pieces choices select, and whether they were all read; see `_rows_selected`."""
    whole, sample = sum(piece.file.rows for piece in pieces), _sample(pieces)
    share = _share_selected(logic, place, sample, choices)
    if share * whole > _clearly(sum(piece.file.rows for piece in sample)) * most:
        return int(share * whole), False
    looked = found = 0
    # The largest first: small files are new, and a window selects most of their rows.
    for some in _at_once(sorted(pieces, key=lambda piece: -piece.file.rows)):
        frames = _picked(logic, place, some, choices)
        looked, found = looked + sum(p.file.rows for p in some), found + sum(f.height for f in frames)
        are_typical = looked >= _TYPICAL * whole
        if found > most or (are_typical and found * whole > _clearly(looked) * most * looked):
            logic.forget_picked()
            return found * whole // looked, looked == whole and found <= most
    return found, True


def _clearly(looked_rows: int) -> float:
    return _CLEARLY[looked_rows >= _SAMPLED_ROWS]


def _sample(pieces: Sequence[Piece]) -> Sequence[Piece]:
    """Return some pieces from all over; none of few."""
    return pieces[::_SAMPLED] if len(pieces) >= 2 * _SAMPLED else ()


def _share_selected(logic: Logic, place: int, pieces: Sequence[Piece], choices: Choices) -> float:
    """Estimate which share of the rows of pieces choices select; only the compared columns are read.

    Each row that is looked at is looked up in all wanted values, so some rows of each piece have to do.
    """
    if not pieces:
        return 0
    whole = sum(piece.file.rows for piece in pieces)
    least = max(1, math.ceil(whole / _COMPARED_ROWS))
    compared = list(dict.fromkeys(name for choice in choices for name in choice.columns))
    layout = logic.layouts[place]

    def some_rows(piece: Piece) -> tuple[pl.DataFrame, int]:
        rows = pl.from_arrow(read_piece(layout, piece, compared).select(compared))
        assert isinstance(rows, pl.DataFrame)
        return rows.sample(math.ceil(rows.height / least), seed=0), rows.height

    found = in_threads(some_rows, pieces, layout.files_at_once(one.file.size_bytes for one in pieces))
    some = pl.concat([rows for rows, _ in found])
    live = sum(height for _, height in found)
    return chosen(some, choices).height / max(1, some.height) * live / max(1, whole)


def _picked(logic: Logic, place: int, pieces: Sequence[Piece], choices: Choices) -> list[pl.DataFrame]:
    """Return the rows of each piece that choices select."""
    logic.pick_together(place, pieces, choices)
    at_once = logic.layouts[place].files_at_once(one.file.size_bytes for one in pieces)
    return in_threads(lambda piece: logic.pick(place, piece, choices), pieces, at_once)


def _at_once(pieces: Sequence[Piece]) -> Iterator[Sequence[Piece]]:
    """Divide pieces into runs, after each of which the selected rows are counted: a few files, or many small ones."""
    begin, held = 0, 0.0
    for end, piece in enumerate(pieces, 1):
        held += 1 / (TOGETHER if is_small(piece.file) else _PICKED_AT_ONCE)
        if held >= 1:
            yield pieces[begin:end]
            begin, held = end, 0.0
    if begin < len(pieces):
        yield pieces[begin:]


def picked_rows(logic: Logic, place: int, pieces: Sequence[Piece], choices: Choices, most: int) -> pl.DataFrame | None:
    """Return the rows of a source that choices select; `None` if they are more than `most`, of which few are read."""
    pieces = admitted(logic, place, pieces, choices)
    found: list[pl.DataFrame] = []
    for some in _at_once(pieces):
        found += _picked(logic, place, some, choices)
        if sum(frame.height for frame in found) > most:
            logic.forget_picked()
            return None
    return with_all_columns(logic, place, found)


def rows_of(logic: Logic, place: int, pieces: Sequence[Piece], choices: Choices) -> pl.DataFrame:
    """Return the rows of a source's pieces that choices select; they are kept for an evaluation with these choices."""
    pieces = admitted(logic, place, pieces, choices)
    if choices:
        return with_all_columns(logic, place, _picked(logic, place, pieces, choices))
    known = {piece: found for piece in pieces if (found := logic.already_read(place, piece)) is not None}
    tables = logic.read(place, [piece for piece in pieces if piece not in known])
    # One conversion for all files: each costs about as much as reading a small file.
    rows = pl.from_arrow(pa.concat_tables(tables)) if tables else pl.DataFrame()
    assert isinstance(rows, pl.DataFrame)
    return with_all_columns(logic, place, [*known.values(), *([rows] if tables else [])])


def with_all_columns(logic: Logic, place: int, frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Return frames of the needed columns as one frame of all columns; nothing reads the nulls in the others."""
    schema, needed = logic.layouts[place].arrow, logic.compiled.needed[place]
    types = {name: polars_type(schema.field(name).type) for name in logic.compiled.inputs[place]}
    empty = pl.DataFrame(schema={name: types[name] for name in needed})
    rows = frames[0] if len(frames) == 1 and frames[0].schema == empty.schema else pl.concat([empty, *frames])
    if len(needed) == len(types):
        return rows
    return rows.select(pl.col(n) if n in needed else pl.lit(None, types[n]).alias(n) for n in types)
