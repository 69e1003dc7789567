"""Which rows decide: of many events of one key mostly one, so that the others need not be carried any further.

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
    """The columns of the signed rows that tell which of them decide."""
    marker = [] if plan.delete_argument is None else [argument_column(plan.delete_argument)]
    return [*plan.key_names, sequence_column(0), *marker]


def decisive(plan: FoldPlan, rows: pl.DataFrame) -> pl.DataFrame:
    """Which of some added rows decide, for a plan that is `decided_by` the sequence.

    Rows that tie decide together. One that is not folded (a null key, no sequence) is kept, because it is counted; and
    so is the newest delete, because it is remembered.

    Args:
        plan: the compiled fold.
        rows: the columns `looked_at` of rows of weight +1.

    Returns:
        A row for each of `rows`: `__decides`, and the `__weight` that it then has. The weights of a key add up to the
        number of its rows.
    """
    at = sequence_column(0)
    furthest = pl.col(at).max() if plan.decided_by == "last" else pl.col(at).min()
    is_folded = pl.all_horizontal([pl.col(name).is_not_null() for name in (*plan.key_names, at)])
    decides = (pl.col(at) == furthest.over(plan.key_names)) | ~is_folded
    if plan.delete_argument is not None:
        deletes = pl.col(argument_column(plan.delete_argument)).fill_null(False)
        decides = decides | (deletes & (pl.col(at) == pl.col(at).filter(deletes).max()))
    # No sequence of a key, so no furthest one: such rows are not folded, and kept.
    found = rows.lazy().select(decides.fill_null(True).alias(DECIDES)).collect(engine="streaming")
    if not plan.counts_rows:
        return found.with_columns(pl.lit(1, pl.Int64).alias(WEIGHT))
    # The first of the rows of a key that decide stands for those that do not.
    folded = rows.with_columns(found[DECIDES]).with_row_index(_ROW).filter(is_folded)
    whole = folded.select(_ROW, DECIDES, *plan.key_names, pl.len().over(plan.key_names).alias(_OF_KEY)).filter(DECIDES)
    is_first = pl.int_range(pl.len()).over(plan.key_names) == 0
    others = pl.col(_OF_KEY) - pl.len().over(plan.key_names)
    weights = whole.select(_ROW, (1 + pl.when(is_first).then(others).otherwise(0)).cast(pl.Int64).alias(WEIGHT))
    all_rows = found.with_row_index(_ROW).join(weights, on=_ROW, how="left", maintain_order="left")
    return all_rows.select(DECIDES, pl.col(WEIGHT).fill_null(1))


def has_many_a_key(keys: pl.DataFrame, rows: float) -> bool:
    """Whether some rows have clearly fewer keys than there are rows, by a sample of their keys.

    Args:
        keys: the key columns of a sample, spread over the rows.
        rows: how many there are.
    """
    if keys.is_empty():
        return False
    seen, different = keys.height, keys.n_unique()
    # Of `n` keys, all as frequent, a sample of `seen` rows shows n (1 - exp(-seen / n)) different ones.
    low, high = float(different), rows
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if middle * -math.expm1(-seen / middle) < different:
            low = middle
        else:
            high = middle
    return high <= _FEWER * rows
