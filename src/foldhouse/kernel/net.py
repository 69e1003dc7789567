"""The difference of two states of a table, row by row."""

from __future__ import annotations

import numpy as np
import polars as pl

from foldhouse.kernel.keyed import by_keys

SIGN = "__sign"
_BEFORE, _NOW = "__before", "__now"


def net(before: pl.DataFrame, now: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Return the rows of two states with their sign, each as often as it occurs, without the rows that cancel.

    Args:
        before: the rows of the earlier state.
        now: the rows of the later state, with the same columns.
        keys: the columns that identify a row; empty if there are none.

    Returns:
        The columns, and `SIGN`: -1 for a row that only `before` has, 1 for one that only `now` has.
    """
    if keys and all(side.select(keys).n_unique() == side.height for side in (before, now)):
        before, now = _without_common(before, now, keys)
    signed = [side.with_columns(pl.lit(sign, pl.Int64).alias(SIGN)) for side, sign in ((before, -1), (now, 1))]
    rows = pl.concat(signed).group_by(before.columns).agg(pl.col(SIGN).sum()).filter(pl.col(SIGN) != 0)
    # Usually each row occurs once, and repeating rows would copy every column.
    if rows[SIGN].abs().max() in (None, 1):
        return rows
    return rows.select(pl.all().repeat_by(pl.col(SIGN).abs())).explode(rows.columns)


def _without_common(before: pl.DataFrame, now: pl.DataFrame, keys: list[str]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Remove the rows that are equal in two states; the keys in each state must be unique.

    In a rewritten file, nearly all rows are equal. Joining them by their keys is cheaper than grouping them.
    """
    then_at, there_at = (side.select(keys).with_row_index(name) for side, name in ((before, _BEFORE), (now, _NOW)))
    met = by_keys(then_at, there_at, keys, "inner", nulls_equal=True)
    then, there = before[met[_BEFORE]], now[met[_NOW]]
    # eq_missing, because two nulls count as equal, and `==` gives null for them.
    same = met.filter(
        pl.select(pl.all_horizontal(then[name].eq_missing(there[name]) for name in before.columns)).to_series()
    )
    return _but(before, same[_BEFORE]), _but(now, same[_NOW])


def _but(rows: pl.DataFrame, places: pl.Series) -> pl.DataFrame:
    """Return the rows without those at some places."""
    stays = np.ones(rows.height, np.bool_)
    stays[places.to_numpy()] = False
    return rows.filter(pl.Series(stays))
