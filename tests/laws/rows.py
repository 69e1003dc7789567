"""Random `rows`: filters and new columns, row by row, in Spark's SQL and in the oracle's."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

FILTERS: dict[str, list[str]] = {
    "string": ["{c} <> 'x'", "{c} IS NOT NULL"],
    "int": ["{c} >= 1", "{c} IS NULL OR {c} <> 2"],
    "long": ["{c} > 1", "{c} IS NOT NULL"],
    "boolean": ["NOT {c}", "{c} IS NULL OR {c}"],
    "date": ["{c} <> DATE '2024-01-02'", "{c} IS NOT NULL"],
}
"""Type -> conditions on a column of it, alike in both dialects."""

NEW: dict[str, list[tuple[str, str]]] = {
    "string": [("upper({c})", "string"), ("length({c})", "int"), ("{c} || '!'", "string")],
    "int": [("{c} * 2", "int"), ("{c} > 0", "boolean")],
    "long": [("{c} + 1", "long"), ("-{c}", "long")],
    "timestamp": [("CAST({c} AS date)", "date")],
}
"""Type -> what is made of a column of it, alike in both dialects, with its type."""


def random_rows(
    chance: random.Random, types: Mapping[str, str], prefix: str
) -> tuple[Callable[[Any], Any], str, dict[str, str]]:
    """A random filter, a random new column, or both.

    Args:
        chance: decides everything.
        types: the columns of the source.
        prefix: of the new column's name.

    Returns:
        What is declared, the same in DuckDB's SQL over the relation `source`, and the columns there are then.
    """
    filtered = [(name, one) for name, kind in types.items() for one in FILTERS.get(kind, ())]
    made = [(name, *one) for name, kind in types.items() for one in NEW.get(kind, ())]
    condition, new = "true", {}
    if filtered and chance.random() < 0.6:
        name, text = chance.choice(filtered)
        condition = text.replace("{c}", f"`{name}`")
    if made and (condition == "true" or chance.random() < 0.5):
        name, text, kind = chance.choice(made)
        new = {f"{prefix}_new": (text.replace("{c}", f"`{name}`"), kind)}

    def rows(source: Any) -> Any:
        from pyspark.sql import functions as F

        kept = source.where(condition)
        return kept.withColumns({name: F.expr(text) for name, (text, _) in new.items()})

    listed = ", ".join(["*", *(f'{text} AS "{name}"' for name, (text, _) in new.items())])
    sql = f"SELECT {listed} FROM source WHERE {condition}".replace("`", '"')
    return rows, sql, {**types, **{name: kind for name, (_, kind) in new.items()}}


def behind(sql: str, rows_sql: str) -> str:
    """SQL over `source`, with what `rows` makes of it in its place."""
    return sql.replace("FROM source", f"FROM ({rows_sql})")
