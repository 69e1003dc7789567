"""Plan the evaluations of a table's logic for a window, over as few rows as the shape of the logic allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl
import pyarrow as pa

from foldhouse.kernel.plan import polars_type
from foldhouse.refresh.rows.cancelled import changed_values, rows_changed
from foldhouse.refresh.rows.choices import Choice
from foldhouse.refresh.rows.logic import Evaluation, Logic
from foldhouse.refresh.rows.read import admitted
from foldhouse.refresh.rows.values import together, values_of
from foldhouse.refresh.window.pruning import compared_values, pieces_with_days, pieces_with_keys
from foldhouse.refresh.window.tree import Choices, States, joining, other_side, tree_choices
from foldhouse.storage.deleted import rows_of_piece
from foldhouse.storage.live import Live, LivePieces, Piece
from foldhouse.values.definition import Stream
from foldhouse.values.window import Coverage


def of_window(
    logic: Logic,
    deltas: Sequence[list[Piece]],
    before: Sequence[Live],
    after: Sequence[Live],
    coverage: Coverage,
) -> list[Evaluation]:
    """Plan the evaluations that give the changes between two states of the sources, for the covered partitions.

    Args:
        logic: the logic of the table.
        deltas: per source, the pieces that were added and removed.
        before: per source, its files at the table's position.
        after: per source, its files now.
        coverage: the partitions of the table.
    """
    states = {1: tuple(map(LivePieces, after)), -1: tuple(map(LivePieces, before))}
    if not any(deltas):
        return []
    choices, shape = _choices(logic, deltas, states), logic.compiled.shape
    found = []
    for weight, state in states.items():
        pieces = tuple(
            _linear_pieces(logic, place, [p for p in delta if p.weight == weight], coverage)
            if _is_linear(logic, place, deltas)
            else state[place]
            for place, delta in enumerate(deltas)
        )
        besides = _besides(logic, deltas, choices, weight)
        makes_rows = bool(pieces[shape.source(shape.root)]) or any(besides) if shape.branches else any(pieces)
        if makes_rows or not shape.is_known:
            found.append(Evaluation(weight, pieces, coverage, choices, state, besides))
    return found


def _besides(logic: Logic, deltas: Sequence[list[Piece]], choices: Choices, weight: int) -> tuple[Sequence[Piece], ...]:
    """Return, per source, the rows that were added or removed and that no choice selects: those of a tree's root."""
    shape = logic.compiled.shape
    root = shape.source(shape.root)
    if not shape.branches or not choices[root] or event_id_of(logic, root):
        return ()
    own = [piece for piece in deltas[root] if piece.weight == weight]
    return tuple(own if place == root else () for place in range(len(deltas)))


def of_state(logic: Logic, after: Sequence[Live], coverage: Coverage) -> Evaluation:
    """Plan the evaluation of all rows of the sources, for the partitions of a coverage."""
    state = tuple(map(LivePieces, after))
    pieces = tuple(
        _linear_pieces(logic, place, found, coverage) if logic.compiled.shape.is_linear else found
        for place, found in enumerate(state)
    )
    return Evaluation(1, pieces, coverage, _unchosen(logic), state)


def of_keys(logic: Logic, after: Sequence[Live], keys: pl.DataFrame) -> Evaluation:
    """Plan the evaluation of all rows of some keys, with as few other rows as the origins of the keys allow.

    Args:
        logic: the logic of the table.
        after: per source, its files now.
        keys: the wanted keys, in the key columns of the table.
    """
    compiled, state = logic.compiled, tuple(map(LivePieces, after))
    plain = {name: origin for name, origin in compiled.origins.items() if not origin.is_day}
    choices: list[tuple[Choice, ...]] = list(_unchosen(logic))
    pieces: list[Sequence[Piece]] = list(state)
    if compiled.shape.is_linear and len(state) == 1:
        values = {name: compared_values(keys[name].unique()) for name in keys.columns}
        pieces[0] = pieces_with_keys(state[0], logic.layouts[0].schema, compiled.origins, values)
        if plain:
            choices[0] = (_renamed(keys, {name: origin.column for name, origin in plain.items()}),)
    elif compiled.shape.cells:
        if at := _cells_of_keys(logic):
            cells = compiled.shape.cells
            choices = [(_renamed(keys, {name: columns[i] for name, i in at.items()}),) for columns in cells]
    elif compiled.shape.branches and plain:
        # The source with most of the key columns; of equals, the one nearest to the root.
        order = [compiled.shape.root, *(branch.place for branch in compiled.shape.branches)]
        place = max(order, key=lambda one: sum(origin.place == one for origin in plain.values()))
        named = {name: origin.column for name, origin in plain.items() if origin.place == place}
        choices = list(tree_choices(logic, {place: [_renamed(keys, named)]}, [state]))
    return Evaluation(1, tuple(pieces), Coverage.everything(), tuple(choices), state)


def has_all_rows(logic: Logic, evaluations: Sequence[Evaluation]) -> bool:
    """Whether the evaluations of a window contain all present rows of every table key that the window changes.

    They do if they read the present sources in full. They also do if all sources are joined on the same columns and the
    table's keys contain these columns: then all rows of a key come from the same join key.
    """
    shape, present = logic.compiled.shape, [one for one in evaluations if one.weight > 0]
    if shape.is_linear or not present:
        return False
    if not any(any(one.choices) for one in present):
        return all(pieces is state for one in present for pieces, state in zip(one.pieces, one.deliveries, strict=True))
    return bool(shape.cells) and len(set(_cells_of_keys(logic).values())) == len(shape.cells[0])


def keys_in_full(logic: Logic, evaluations: Sequence[Evaluation]) -> pl.DataFrame | None:
    """Return the table keys that a window can change, if they can be computed from the present rows it selects alone.

    So it is if all sources are joined on the keys of the table: the join keys that the window selects are these keys,
    and no row of them is outside. The rows as they were are not needed then. They are needed to count rows that are
    left out for a null, and for folds in which the order of events counts.

    Returns:
        Each key once; `None` if the earlier rows are needed.
    """
    compiled, plan = logic.compiled, logic.plan
    present = [one for one in evaluations if one.weight > 0]
    if len(present) != 1 or plan.sequence or compiled.fold.delete_when:
        return None
    if not compiled.shape.cells or not has_all_rows(logic, evaluations):
        return None
    choices, at = present[0].choices[0], _cells_of_keys(logic)
    if len(choices) != 1 or set(at) != set(plan.key_names) or not present[0].coverage.is_everything:
        return None
    columns = choices[0].columns
    keys = choices[0].keys.select([pl.col(columns[at[name]]).alias(name) for name in plan.key_names])
    types = [polars_type(kind) for _, kind in plan.keys]
    return keys if keys.dtypes == types and not any(one.null_count() for one in keys) else None


def _cells_of_keys(logic: Logic) -> dict[str, int]:
    """Return table key -> the place, among the columns that all sources are joined on, of the column it comes from."""
    cells = logic.compiled.shape.cells
    plain = {name: origin for name, origin in logic.compiled.origins.items() if not origin.is_day}
    places = {name: cells[logic.compiled.shape.source(origin.place)] for name, origin in plain.items()}
    return {n: places[n].index(origin.column) for n, origin in plain.items() if origin.column in places[n]}


def _renamed(keys: pl.DataFrame, names: Mapping[str, str]) -> Choice:
    """Rename key columns to source columns; if two keys come from one column, only rows where they agree are kept."""
    columns = tuple(dict.fromkeys(names.values()))
    for column in columns:
        same = [name for name, origin in names.items() if origin == column]
        keys = keys.filter(pl.all_horizontal(pl.lit(True), *(pl.col(n) == pl.col(same[0]) for n in same[1:])))
    first = {column: next(name for name, origin in names.items() if origin == column) for column in columns}
    return Choice(columns, keys.select([pl.col(name).alias(column) for column, name in first.items()]).unique())


def _unchosen(logic: Logic) -> Choices:
    return ((),) * len(logic.compiled.inputs)


def event_id_of(logic: Logic, place: int) -> tuple[str, ...]:
    """Return the `event_id` of a source; empty if each delivery is an event of its own."""
    source = logic.compiled.table.sources[place]
    return source.event_id if isinstance(source, Stream) else ()


def _is_linear(logic: Logic, place: int, deltas: Sequence[list[Piece]]) -> bool:
    """Whether only the added and removed rows of a source can change the table.

    Those of a tree's root can, if nothing changed but them.
    """
    shape = logic.compiled.shape
    others = [deltas[shape.source(branch.place)] for branch in shape.branches]
    is_alone = bool(shape.branches) and place == shape.source(shape.root) and not any(others)
    return (shape.is_linear or is_alone) and not event_id_of(logic, place)


def _linear_pieces(logic: Logic, place: int, pieces: Sequence[Piece], coverage: Coverage) -> Sequence[Piece]:
    """Return the pieces that can hold rows of covered partitions."""
    compiled = logic.compiled
    origin = compiled.origins.get(compiled.table.partition_by or "")
    if origin is None or len(compiled.inputs) > 1:
        return pieces
    return pieces_with_days(pieces, logic.layouts[place].schema, origin, coverage)


def _choices(logic: Logic, deltas: Sequence[list[Piece]], states: Mapping[int, States]) -> Choices:
    """Return, per source, choices of the rows that may differ between two states of the sources."""
    shape, places = logic.compiled.shape, range(len(deltas))
    if not any(states[-1]) or sum(rows_changed(logic, p, deltas[p]) for p in places) > logic.tuning.compared_rows:
        return _unchosen(logic)
    if shape.is_linear:
        ids = [event_id_of(logic, place) for place in places]
        return tuple((_changed(logic, p, deltas[p], states, ids[p]),) if ids[p] else () for p in places)
    if shape.cells:
        found = [_changed(logic, place, deltas[place], states, shape.cells[place]).keys for place in places]
        names = shape.cells[0]
        keys = together([frame.rename(dict(zip(frame.columns, names, strict=True))) for frame in found])
        return tuple((Choice(c, keys.rename(dict(zip(names, c, strict=True)))),) for c in shape.cells)
    if shape.branches:
        return _changed_branches(logic, deltas, states)
    return _unchosen(logic)


def _changed_branches(logic: Logic, deltas: Sequence[list[Piece]], states: Mapping[int, States]) -> Choices:
    """Choose the rows of a tree that can meet a changed row of any source."""
    shape = logic.compiled.shape
    root = shape.source(shape.root)
    own, every = deltas[root], list(states.values())
    if _is_linear(logic, root, deltas):
        return joining(logic, None, every, own)
    wanted: dict[int, list[Choice]] = {}
    for branch in shape.branches:
        source = shape.source(branch.place)
        if deltas[source]:
            keys = _changed(logic, source, deltas[source], states, branch.columns).keys
            if _are_most(logic, source, keys, states):
                return _unchosen(logic)
            wanted.setdefault(branch.parent, []).append(other_side(branch, keys))
    ids = event_id_of(logic, root)
    if ids and own:
        wanted.setdefault(shape.root, []).append(_changed(logic, root, own, states, ids))
    if ids:
        return tree_choices(logic, wanted, every)
    logic.expect(root, own)
    return tree_choices(logic, wanted, every, own)


def _are_most(logic: Logic, place: int, keys: pl.DataFrame, states: Mapping[int, States]) -> bool:
    """Whether so many keys of a branch changed that most rows of the root probably join one of them.

    Then the table is computed again anyway, and finding these rows would cost a part of that. A source that is larger
    than the root may have many keys that no row of the root has.
    """
    shape = logic.compiled.shape
    root = shape.source(shape.root)

    def rows(source: int) -> int:
        layout = logic.layouts[source]
        return max(sum(rows_of_piece(layout, piece) for piece in state[source]) for state in states.values())

    own = rows(place)
    return keys.height > logic.tuning.full_recompute_share * own and own <= rows(root)


def _changed(
    logic: Logic, place: int, delta: list[Piece], states: Mapping[int, States], columns: tuple[str, ...]
) -> Choice:
    """Return the values of some columns in the changed rows of a source, and in all deliveries of the same events."""
    ids = event_id_of(logic, place)
    if not ids:
        return Choice(columns, changed_values(logic, place, delta, columns))
    events = Choice(ids, values_of(logic, place, delta, ids))
    if set(columns) <= set(ids):
        return Choice(columns, events.keys.select(columns).unique())
    deliveries = [admitted(logic, place, state[place], (events,)) for state in states.values()]
    found = [values_of(logic, place, pieces, columns, (events,)) for pieces in deliveries]
    return Choice(columns, together(found))


def as_frame(keys: pa.Table) -> pl.DataFrame:
    """Convert keys of the table to a Polars frame."""
    frame = pl.from_arrow(keys)
    assert isinstance(frame, pl.DataFrame)
    return frame
