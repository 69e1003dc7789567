"""Choose the rows of a tree of joins that can be in one output row with wanted rows of any source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from foldhouse.logic.shape import Branch
from foldhouse.refresh.rows.cancelled import changed_rows
from foldhouse.refresh.rows.choices import Choice
from foldhouse.refresh.rows.logic import Logic
from foldhouse.refresh.rows.read import picked_rows, rows_of
from foldhouse.refresh.rows.values import values_in_files
from foldhouse.storage.live import Piece

States = tuple[Sequence[Piece], ...]
"""Per source, its pieces in one state."""
Choices = tuple[tuple[Choice, ...], ...]
"""Per source, the choices of its rows; none if all are read."""


def other_side(branch: Branch, keys: pl.DataFrame) -> Choice:
    """Return the choice of a parent's rows that join rows with the given values of a branch's columns."""
    return Choice(branch.parent_columns, keys.rename(dict(zip(branch.columns, branch.parent_columns, strict=True))))


def tree_choices(
    logic: Logic,
    wanted: Mapping[int, Sequence[Choice]],
    states: Sequence[States],
    besides: Sequence[Piece] = (),
) -> Choices:
    """Choose the rows of each source that can be in one output row with wanted rows of any source.

    From the branches to the root: the rows that wanted rows join. From the root to the branches: the rows that join
    these, each time in all states. The rows of the root alone decide which output rows there are, so all rows that join
    a chosen row of the root are chosen, and others do no harm.

    Args:
        logic: the logic of the table; its shape is a tree.
        wanted: place -> choices of rows of that source.
        states: the states of the sources to look through.
        besides: added and removed pieces of the root: their rows are wanted too.
    """
    shape = logic.compiled.shape
    reached = {place: list(found) for place, found in wanted.items()}
    for branch in reversed(shape.branches):
        if branch.place in reached:
            at = shape.source(branch.place)
            keys = values_in_files(logic, at, states, branch.columns, _selecting(reached[branch.place]))
            reached.setdefault(branch.parent, []).append(other_side(branch, keys))
    return joining(logic, _selecting(reached[shape.root]), states, besides)


def joining(
    logic: Logic, chosen: tuple[Choice, ...] | None, states: Sequence[States], besides: Sequence[Piece] = ()
) -> Choices:
    """Choose the rows of a tree's branches that join rows of its root, in any of the states.

    Args:
        logic: the logic of the table.
        chosen: choices of rows of the root; `None` if only `besides` counts.
        states: the states of the sources.
        besides: added and removed pieces of the root, whose rows count beside the chosen ones.
    """
    shape = logic.compiled.shape
    found = {shape.root: chosen or ()}
    for parent in dict.fromkeys(branch.parent for branch in shape.branches):
        if parent not in found:
            continue
        source = shape.source(parent)
        parts: list[pl.DataFrame] = []
        if parent != shape.root or chosen is not None:
            rows = _selected(logic, source, [state[source] for state in states], found[parent])
            if rows is None:
                continue
            parts.append(rows.select(logic.compiled.needed[source]))
        if besides and parent == shape.root:  # after the selected rows, which are read together with these
            parts.append(changed_rows(logic, source, besides))
        rows = pl.concat(parts)
        for branch in (one for one in shape.branches if one.parent == parent):
            pairs = zip(branch.parent_columns, branch.columns, strict=True)
            values = rows.select([pl.col(ours).alias(theirs) for ours, theirs in pairs])
            found[branch.place] = (Choice(branch.columns, values.unique()),)
    return _of_sources(logic, found)


def _of_sources(logic: Logic, found: Mapping[int, tuple[Choice, ...]]) -> Choices:
    """Return, per source, the choices of its rows in any place of the tree; none if all rows of some place are read."""
    shape, count = logic.compiled.shape, len(logic.compiled.inputs)
    if not shape.sources:
        return tuple(found.get(place, ()) for place in range(count))
    each = [[found.get(place, ()) for place, source in enumerate(shape.sources) if source == at] for at in range(count)]
    return tuple(_selecting([one for some in parts for one in some]) if all(parts) else () for parts in each)


def _selected(
    logic: Logic, place: int, states: Sequence[Sequence[Piece]], choices: tuple[Choice, ...]
) -> pl.DataFrame | None:
    """Return the selected rows of a source in each of its states; `None` if there are too many to look at."""
    if not choices:
        return pl.concat([rows_of(logic, place, pieces, ()) for pieces in states])
    most = logic.tuning.compared_rows
    found = [picked_rows(logic, place, pieces, choices, most) for pieces in states]
    return None if any(rows is None for rows in found) else pl.concat([rows for rows in found if rows is not None])


def _selecting(choices: Sequence[Choice]) -> tuple[Choice, ...]:
    """Merge the choices of the same columns, and leave out those that select no row, but not the last of them.

    No choice at all would select every row.
    """
    by_columns: dict[tuple[str, ...], list[pl.DataFrame]] = {}
    for one in choices:
        by_columns.setdefault(one.columns, []).append(one.keys.select(one.columns))
    merged = [
        Choice(columns, keys[0] if len(keys) == 1 else pl.concat(keys).unique()) for columns, keys in by_columns.items()
    ]
    return tuple(one for one in merged if not one.keys.is_empty()) or (merged[0],)
