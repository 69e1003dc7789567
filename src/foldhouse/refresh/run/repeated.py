"""Finds the events that were delivered more than once, so that all others can be folded as they are in the files.

Most events of a stream with an `event_id` come once. A first load reads the ids alone, finds those that come again, and
leaves their rows out of the reading; the last delivery of each is folded beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl
import pyarrow as pa

from foldhouse.refresh.rows.choices import Choice
from foldhouse.refresh.rows.evaluate import evaluated_here
from foldhouse.refresh.rows.logic import Evaluation, Logic
from foldhouse.refresh.window.affected import event_id_of
from foldhouse.storage.live import Piece
from foldhouse.storage.pieces import read_pieces
from foldhouse.storage.project import empty_rows


def repeated_ids(logic: Logic, evaluations: Sequence[Evaluation]) -> Choice | None:
    """Return the ids of the events that an evaluation of all events contains more than once.

    An id with a null in it identifies no event, and is never among them.

    Args:
        logic: plain logic over one source with an `event_id`.
        evaluations: of the window.

    Returns:
        A choice of the rows of these events, perhaps of none. `None` if the window is more than one evaluation of all
        rows of the source, or too large for its ids to be compared in memory.
    """
    ids = event_id_of(logic, 0)
    if not ids or not logic.compiled.is_plain or len(evaluations) != 1:
        return None
    (one,) = evaluations
    pieces = list(one.pieces[0])
    is_whole = one.weight > 0 and not one.choices[0] and pieces == list(one.deliveries[0])
    if not pieces or not is_whole or sum(piece.file.rows for piece in pieces) > logic.tuning.decided_rows:
        return None
    if id(one) not in logic.repeated:
        logic.repeated[id(one)] = (one, _repeated(logic, pieces, ids))
    _, found = logic.repeated[id(one)]
    return found if found.keys.height <= logic.tuning.compared_rows else None


def _repeated(logic: Logic, pieces: Sequence[Piece], ids: tuple[str, ...]) -> Choice:
    layout = logic.layouts[0]
    empty = empty_rows(pa.schema([layout.arrow.field(name).remove_metadata() for name in ids]))
    rows = pl.from_arrow(pa.concat_tables([empty, *read_pieces(layout, pieces, ids)]))
    assert isinstance(rows, pl.DataFrame)
    known = rows.drop_nulls()
    several = known.filter(known.is_duplicated() if len(ids) > 1 else known.to_series().is_duplicated())
    return Choice(ids, several.unique())


def rows_of_repeated(logic: Logic, evaluation: Evaluation, choice: Choice) -> pl.DataFrame:
    """Return the signed rows of the last delivery of each event that a choice selects."""
    return evaluated_here(logic, [replace(evaluation, choices=((choice,),))])
