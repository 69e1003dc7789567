"""Estimates the rows that a refresh reads again: those of keys that lose a row which their folds cannot subtract."""

from __future__ import annotations

from collections.abc import Sequence

from foldhouse.kernel.plan import Unit
from foldhouse.refresh.rows.evaluate import needs_spark
from foldhouse.refresh.rows.logic import Evaluation, Logic
from foldhouse.storage.deleted import rows_of_piece


def rows_lost(logic: Logic, evaluations: Sequence[Evaluation]) -> int:
    """Return how many more rows a window removes than it adds; 0 if the folds subtract, or if choices select rows.

    A day that is replaced loses few rows: most keys get another row for each one that they lose. If Spark evaluates the
    logic, all removed rows count, because a second pass is a second job however few keys it computes again.
    """
    can_subtract = all(unit.algebra.unresolved is None for unit in logic.plan.units)
    if can_subtract or not logic.compiled.shape.is_linear or any(any(one.choices) for one in evaluations):
        return 0
    added = (
        one.weight * rows_of_piece(logic.layouts[place], piece)
        for one in evaluations
        for place, pieces in enumerate(one.pieces)
        for piece in pieces
        if one.weight < 0 or not needs_spark(logic)
    )
    return max(0, -sum(added))


def rows_read_again(logic: Logic, lost: int, source_rows: int, table_rows: int) -> int:
    """Estimate how many rows are read once more: those of the keys that are computed again, and the removed rows.

    The removed rows are evaluated in both passes. All rows of the source count if Spark evaluates them, or if the keys
    come from none of its columns, as `sha2(name)` does: then nothing else finds the rows of a key.

    Args:
        logic: the logic of the table.
        lost: from `rows_lost`.
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
