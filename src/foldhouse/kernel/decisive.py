"""Finds the rows that decide the result of a key: mostly one of many events. Other rows need not be shuffled.

combine(state, rows) == combine(state, rows[decisive], with the weights of those that were left out)
"""

from __future__ import annotations

import math

import polars as pl

from foldhouse.kernel.plan import WEIGHT, FoldPlan, argument_column, sequence_column

DECIDES = "__decides"
_ROW, _OF_KEY = "__row", "__of_key"
_FEWER = 0.5
_STEPS = 60


def looked_at(plan: FoldPlan) -> list[str]:
    """Return the columns of the signed rows from which `decisive` finds the deciding rows."""
    marker = [] if plan.delete_argument is None else [argument_column(plan.delete_argument)]
    return [*plan.key_names, sequence_column(0), *marker]


def decisive(plan: FoldPlan, rows: pl.DataFrame) -> pl.DataFrame:
    """Mark the inserted rows that decide, for a plan that is `decided_by` the sequence.

    Rows that tie decide together. A row that is not folded (a null key, no sequence) is marked too, because it is
    counted. So is the newest delete, because the table stores its sequence.

    Args:
        plan: the compiled fold.
        rows: the columns `looked_at` of rows with weight +1.

    Returns:
        One row per input row: `__decides`, and its new `__weight`. The weights of the deciding rows of a key add up
        to the number of the key's rows.
    """
    at = sequence_column(0)
    furthest = pl.col(at).max() if plan.decided_by == "last" else pl.col(at).min()
    is_folded = pl.all_horizontal([pl.col(name).is_not_null() for name in (*plan.key_names, at)])
    decides = (pl.col(at) == furthest.over(plan.key_names)) | ~is_folded
    if plan.delete_argument is not None:
        deletes = pl.col(argument_column(plan.delete_argument)).fill_null(False)
        decides = decides | (deletes & (pl.col(at) == pl.col(at).filter(deletes).max()))
    # Null: no row of the key has a sequence. Such rows are not folded, so they are kept.
    # The streaming engine keeps the groups of one part of the rows in memory, not of all.
    found = rows.lazy().select(decides.fill_null(True).alias(DECIDES)).collect(engine="streaming")
    if not plan.counts_rows:
        return found.with_columns(pl.lit(1, pl.Int64).alias(WEIGHT))
    # The first deciding row of a key also gets the weights of the rows that do not decide.
    folded = rows.with_columns(found[DECIDES]).with_row_index(_ROW).filter(is_folded)
    whole = folded.select(_ROW, DECIDES, *plan.key_names, pl.len().over(plan.key_names).alias(_OF_KEY)).filter(DECIDES)
    is_first = pl.int_range(pl.len()).over(plan.key_names) == 0
    others = pl.col(_OF_KEY) - pl.len().over(plan.key_names)
    weights = whole.select(_ROW, (1 + pl.when(is_first).then(others).otherwise(0)).cast(pl.Int64).alias(WEIGHT))
    all_rows = found.with_row_index(_ROW).join(weights, on=_ROW, how="left", maintain_order="left")
    return all_rows.select(DECIDES, pl.col(WEIGHT).fill_null(1))


def has_many_a_key(keys: pl.DataFrame, rows: float) -> bool:
    """Whether rows have clearly fewer keys than rows, estimated from a sample.

    Args:
        keys: the key columns of a sample that is spread over the rows.
        rows: the number of all rows.
    """
    if keys.is_empty():
        return False
    seen, different = keys.height, keys.n_unique()
    # A sample of `seen` rows of `n` equally frequent keys has about n (1 - exp(-seen / n)) different keys.
    low, high = float(different), rows
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if middle * -math.expm1(-seen / middle) < different:
            low = middle
        else:
            high = middle
    return high <= _FEWER * rows
