"""Finds the events that were delivered more than once, so that all others can be folded as they are in the files.

Most events of a stream with an `event_id` come once. A first load reads the ids alone, finds those that come again, and
leaves their rows out of the reading; the last delivery of each is folded beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl
import pyarrow as pa

from foldhouse.kernel.hashed import hashes_of, have_hashes, several
from foldhouse.kernel.plan import polars_type
from foldhouse.refresh.rows.choices import Choice
from foldhouse.refresh.rows.evaluate import evaluated_here
from foldhouse.refresh.rows.logic import Evaluation, Logic
from foldhouse.refresh.rows.read import events_here
from foldhouse.refresh.window.affected import event_id_of
from foldhouse.storage.live import Piece
from foldhouse.storage.pieces import group_pieces, read_pieces
from foldhouse.storage.project import empty_rows
from foldhouse.storage.threads import in_threads


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
    if not event_id_of(logic, 0) or not logic.compiled.is_plain or len(evaluations) != 1:
        return None
    (one,) = evaluations
    return repeated_in(logic, 0, one) if one.pieces[0] and can_be_compared(logic, 0, one) else None


def can_be_compared(logic: Logic, place: int, evaluation: Evaluation) -> bool:
    """Whether an evaluation reads all events of a source with an `event_id`, and their ids can be compared in memory.

    Hashes take less memory than ids. Ids of types without hashes are compared themselves.
    """
    pieces, arrow = list(evaluation.pieces[place]), logic.layouts[place].arrow
    types = [polars_type(arrow.field(name).type) for name in event_id_of(logic, place)]
    most = logic.tuning.identified_rows if have_hashes(types) else logic.tuning.decided_rows
    is_whole = evaluation.weight > 0 and not evaluation.choices[place] and pieces == list(evaluation.deliveries[place])
    return is_whole and sum(piece.file.rows for piece in pieces) <= most


def repeated_in(logic: Logic, place: int, evaluation: Evaluation) -> Choice | None:
    """Return the ids of the events that come more than once in a source; `None` if they are too many.

    Args:
        logic: of the table.
        place: of a source with an `event_id`.
        evaluation: one that `can_be_compared`.
    """
    label = (id(evaluation), place)
    if label not in logic.repeated:
        found = _repeated(logic, place, list(evaluation.pieces[place]), event_id_of(logic, place))
        logic.repeated[label] = (evaluation, found)
    _, found = logic.repeated[label]
    return found if found.keys.height <= logic.tuning.compared_rows else None


def _repeated(logic: Logic, place: int, pieces: Sequence[Piece], ids: tuple[str, ...]) -> Choice:
    layout = logic.layouts[place]
    groups = group_pieces(layout, pieces)
    at_once = layout.files_at_once(sum(one.file.size_bytes for one in group) for group in groups)
    nothing = empty_rows(pa.schema([layout.arrow.field(name).remove_metadata() for name in ids]))

    def read(group: Sequence[Piece]) -> pl.DataFrame:
        rows = pl.from_arrow(pa.concat_tables([nothing, *read_pieces(layout, group, ids)]))
        assert isinstance(rows, pl.DataFrame)
        return rows.drop_nulls()

    empty = read([])
    if not have_hashes(empty.dtypes):
        known = pl.concat([empty, *in_threads(read, groups, at_once)])
    else:
        # Sorting numbers takes a fraction of the time and memory of comparing the ids themselves.
        found = several(in_threads(lambda group: hashes_of(read(group), ids), groups, at_once))
        if found.is_empty():
            return Choice(ids, empty)
        known = pl.concat([empty, *in_threads(lambda group: _among(read(group), ids, found), groups, at_once)])
    return Choice(ids, known.filter(known.is_duplicated()).unique())


def _among(rows: pl.DataFrame, ids: Sequence[str], hashes: pl.Series) -> pl.DataFrame:
    return rows.filter(pl.Series(hashes_of(rows, ids)).is_in(hashes.implode()))


def rows_of_repeated(logic: Logic, evaluation: Evaluation, choice: Choice) -> pl.DataFrame:
    """Return the signed rows of the last delivery of each event that a choice selects."""
    return evaluated_here(logic, [replace(evaluation, choices=((choice,),))])


def last_of_repeated(logic: Logic, place: int, evaluation: Evaluation, choice: Choice) -> pl.DataFrame:
    """Return the rows of a source that are the last delivery of each event that a choice selects."""
    choices = tuple((choice,) if one == place else () for one in range(len(evaluation.choices)))
    return events_here(logic, place, replace(evaluation, choices=choices))
