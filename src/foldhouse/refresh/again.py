"""Estimates the rows that a refresh reads again: those of keys that lose a row which their folds cannot subtract."""

from __future__ import annotations

from collections.abc import Sequence

from foldhouse.kernel.plan import Unit
from foldhouse.refresh.rows.evaluate import needs_spark
from foldhouse.refresh.rows.logic import Evaluation, Logic
from foldhouse.refresh.window.affected import has_all_rows
from foldhouse.storage.deleted import rows_of_piece
from foldhouse.storage.live import Piece


def rows_lost(logic: Logic, evaluations: Sequence[Evaluation]) -> int:
    """Return how many more rows a window removes than it adds; 0 if the folds subtract, or if choices select rows.

    A day that is replaced loses few rows: most keys get another row for each one that they lose. If Spark evaluates the
    logic, all removed rows count, because a second pass is a second job however few keys it computes again.
    """
    if _can_subtract(logic) or not logic.compiled.shape.is_linear or any(any(one.choices) for one in evaluations):
        return 0
    added = (
        one.weight * rows_of_piece(logic.layouts[place], piece)
        for one in evaluations
        for place, pieces in enumerate(one.pieces)
        for piece in pieces
        if one.weight < 0 or not needs_spark(logic)
    )
    return max(0, -sum(added))


def rows_taken_back(logic: Logic, evaluations: Sequence[Evaluation]) -> int:
    """Return how many rows the sources lost if choices select what is evaluated, and a second pass may follow.

    None follows if the folds subtract, or if the window has all present rows of the keys that it changes. If this
    process evaluates joins, choices find few rows in both passes. If Spark evaluates, all removed rows count, as in
    `rows_lost`.
    """
    if not any(any(one.choices) for one in evaluations) or {one.weight for one in evaluations} != {1, -1}:
        return 0
    if _can_subtract(logic) or has_all_rows(logic, evaluations):
        return 0
    if not needs_spark(logic) and (len(logic.compiled.inputs) > 1 or not logic.compiled.shape.cells):
        return 0
    before, after = (_state(evaluations, weight) for weight in (-1, 1))
    gone = sum(rows_of_piece(logic.layouts[place], piece) for place, piece in before - after)
    if needs_spark(logic):
        return gone
    return max(0, gone - sum(rows_of_piece(logic.layouts[place], piece) for place, piece in after - before))


def _state(evaluations: Sequence[Evaluation], weight: int) -> set[tuple[int, Piece]]:
    """Return the pieces of the sources as they are, or as they were, each with the place of its source."""
    found = [one.deliveries for one in evaluations if one.weight == weight]
    return {(place, piece) for state in found for place, pieces in enumerate(state) for piece in pieces}


def _can_subtract(logic: Logic) -> bool:
    return all(unit.algebra.unresolved is None for unit in logic.plan.units)


def rows_read_again(logic: Logic, lost: int, source_rows: int, table_rows: int) -> int:
    """Estimate how many rows are read once more: those of the keys that are computed again, and the removed rows.

    The removed rows are evaluated in both passes. All rows of the source count if Spark evaluates them, or if the keys
    come from none of its columns, as `sha2(name)` does: then nothing else finds the rows of a key.

    Args:
        logic: the logic of the table.
        lost: from `rows_lost` or `rows_taken_back`.
        source_rows: present rows of the sources.
        table_rows: keys of the table.
    """
    if needs_spark(logic) or not logic.compiled.origins:
        return lost + source_rows
    kept = 1.0
    for unit in logic.plan.units:
        kept *= 1 - _loses(unit, lost, source_rows, table_rows)
    return lost + int(source_rows * (1 - kept))


def _loses(unit: Unit, lost: int, source_rows: int, table_rows: int) -> float:
    """Return the share of the keys that lose a row which this accumulator cannot subtract."""
    if unit.algebra.unresolved is None:
        return 0.0
    if unit.algebra.any_row_decides or unit.algebra.is_ordered:  # mostly the newest rows are taken back
        return min(1.0, lost / max(1, table_rows))
    return lost / (source_rows + lost)  # one row of a key decides, and any of its rows may be that one
