"""Finds the last or the first row of each key, without sorting the rows of one key at a time.

Most keys of a window have one row, and the first part of the order decides most of the others. So each further part of
the order is compared only for the keys that are still undecided.
"""

from __future__ import annotations

import polars as pl

from foldhouse.values.fold import Edge

_ROW, _CHOSEN = "__row", "__chosen"


def edge_of(rows: pl.DataFrame, keys: list[str], edge: Edge, name: str) -> pl.DataFrame:
    """Return the edge of each key that has a chosen row.

    Args:
        rows: signed rows.
        keys: the key columns.
        edge: which row to choose, and which part of it to return.
        name: the name of the column with that part.

    Returns:
        The keys, each once, and the event.
    """
    order = {f"__order{i}": part for i, part in enumerate(edge.order)}
    candidates = rows.select(*keys, edge.chosen.alias(_CHOSEN), **order).with_row_index(_ROW)
    candidates = candidates.filter(_CHOSEN).drop(_CHOSEN)
    if candidates.is_empty():
        return rows.clear().select(*keys, edge.event.alias(name))
    decided, undecided = _split(candidates, keys)
    for part in order:
        if undecided.is_empty():
            break
        undecided = _furthest(undecided, keys, part, edge.is_last)
        found, undecided = _split(undecided, keys)
        decided = pl.concat([decided, found])
    found = rows.select(*keys, edge.event.alias(name))
    if decided.height == rows.height:
        return found
    return found[pl.concat([decided[_ROW], undecided.unique(subset=keys, keep="any")[_ROW]])]


def _split(candidates: pl.DataFrame, keys: list[str]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the rows whose key has no other row, and the rest."""
    several = candidates.select(keys).is_duplicated()
    if not several.any():
        return candidates, candidates.clear()
    return candidates.filter(~several), candidates.filter(several)


def _furthest(rows: pl.DataFrame, keys: list[str], part: str, is_last: bool) -> pl.DataFrame:
    """Return the rows of each key that are furthest in one part of the order."""
    kind, column = rows.schema[part], pl.col(part)
    if kind.is_nested() or kind == pl.Binary:  # Polars has no maximum of these types, but it can rank them
        rows = rows.with_columns(rows[part].rank("dense").alias("__rank"))
        return _furthest(rows, keys, "__rank", is_last).drop("__rank")
    # NaN is greater than every number, as in Spark. `max` ignores it, and `min` ignores nulls, which come first.
    if is_last:
        furthest = column.nan_max() if kind.is_float() else column.max()
    else:
        furthest = pl.when(~column.has_nulls()).then(column.min()) if rows[part].has_nulls() else column.min()
    return rows.filter(column.eq_missing(furthest.over(keys)))
