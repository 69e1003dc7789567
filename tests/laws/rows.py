"""Random `rows`: filters, new columns, windows and aggregates, in Spark's SQL and in the oracle's."""

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
    "string": [
        ("upper({c})", "string"),
        ("length({c})", "int"),
        ("{c} || '!'", "string"),
        ("replace({c}, 'x', 'yy')", "string"),
    ],
    "int": [("{c} * 2", "int"), ("{c} > 0", "boolean"), ("{c} % 3", "int"), ("{c} / 4", "double")],
    "double": [("{c} / 2", "double"), ("{c} >= 0", "boolean")],
    "date": [("year({c})", "int")],
    "long": [("{c} + 1", "long"), ("-{c}", "long")],
    "timestamp": [("CAST({c} AS date)", "date")],
}
"""Type -> what is made of a column of it, alike in both dialects, with its type."""

_ORDERED = ("int", "long", "string", "date", "boolean")
"""Types of which both engines have the same order."""


def random_rows(
    chance: random.Random, types: Mapping[str, str], prefix: str
) -> tuple[Callable[[Any], Any], str, dict[str, str]]:
    """A random aggregate; or a random filter, a random new column or window, or several of them.

    Args:
        chance: decides everything.
        types: the columns of the source.
        prefix: of the new columns' names.

    Returns:
        What is declared, the same in DuckDB's SQL over the relation `source`, and the columns there are then.
    """
    if can_have_windows(types) and chance.random() < 0.15:
        return _aggregated(chance, types, prefix)
    filtered = [(name, one) for name, kind in types.items() for one in FILTERS.get(kind, ())]
    made = [(name, *one) for name, kind in types.items() for one in NEW.get(kind, ())]
    condition, new = "true", {}
    if filtered and chance.random() < 0.6:
        name, text = chance.choice(filtered)
        condition = text.replace("{c}", f"`{name}`")
    if made and (condition == "true" or chance.random() < 0.5):
        name, text, kind = chance.choice(made)
        new[f"{prefix}_new"] = text.replace("{c}", f"`{name}`"), kind
    if can_have_windows(types) and chance.random() < 0.3:
        new[f"{prefix}_win"] = random_window(chance, types)

    def rows(source: Any) -> Any:
        from pyspark.sql import functions as F

        kept = source.where(condition)
        return kept.withColumns({name: F.expr(text) for name, (text, _) in new.items()}) if new else kept

    listed = ", ".join(["*", *(f'{text} AS "{name}"' for name, (text, _) in new.items())])
    sql = f"SELECT {listed} FROM source WHERE {condition}".replace("`", '"')
    return rows, sql, {**types, **{name: kind for name, (_, kind) in new.items()}}


def can_have_windows(types: Mapping[str, str]) -> bool:
    """Whether there is a column that both engines order alike."""
    return any(kind in _ORDERED for kind in types.values())


def random_window(chance: random.Random, types: Mapping[str, str]) -> tuple[str, str]:
    """A window function that says the same in both dialects, whatever order equal rows are in, and its type."""
    ordered = [name for name, kind in types.items() if kind in _ORDERED]
    parts = ", ".join(f"`{name}`" for name in chance.sample(ordered, min(len(ordered), chance.choice([1, 1, 2]))))
    value = chance.choice(ordered)
    by = ", ".join(f"`{name}` NULLS FIRST" for name in dict.fromkeys([chance.choice(ordered), value]))
    # Which of two rows that tie is the one before the other, nobody can say: of all columns, none do.
    entire = ", ".join(f"`{name}` NULLS FIRST" for name in dict.fromkeys([chance.choice(ordered), *types]))
    before = f"lag(`{value}`) OVER (PARTITION BY {parts} ORDER BY {entire})"
    return chance.choice(
        [
            (f"count(`{value}`) OVER (PARTITION BY {parts})", "long"),
            (f"max(`{value}`) OVER (PARTITION BY {parts})", types[value]),
            (f"rank() OVER (PARTITION BY {parts} ORDER BY {by})", "int"),
            (f"dense_rank() OVER (PARTITION BY {parts} ORDER BY {by})", "int"),
            (before, types[value]),
            (f"CASE WHEN `{value}` > {before} THEN 1 ELSE 0 END", "int"),
        ]
    )


def _aggregated(
    chance: random.Random, types: Mapping[str, str], prefix: str
) -> tuple[Callable[[Any], Any], str, dict[str, str]]:
    """Counts and extremes of groups, or of everything: one row then, even where there are none."""
    ordered = [name for name, kind in types.items() if kind in _ORDERED]
    keys = chance.sample(ordered, min(len(ordered), chance.choice([0, 1, 1, 2])))
    value = chance.choice(ordered)
    made = {
        f"{prefix}_rows": ("count(*)", "long"),
        f"{prefix}_most": (f"max(`{value}`)", types[value]),
        f"{prefix}_all": ("'all'", "string"),
    }

    def rows(source: Any) -> Any:
        from pyspark.sql import functions as F

        return source.groupBy(*keys).agg(*(F.expr(text).alias(name) for name, (text, _) in made.items()))

    listed = ", ".join([*(f"`{key}`" for key in keys), *(f"{text} AS `{name}`" for name, (text, _) in made.items())])
    grouped = f" GROUP BY {', '.join(f'`{key}`' for key in keys)}" if keys else ""
    sql = f"SELECT {listed} FROM source{grouped}".replace("`", '"')
    return rows, sql, {**{key: types[key] for key in keys}, **{name: kind for name, (_, kind) in made.items()}}


def behind(sql: str, rows_sql: str) -> str:
    """SQL over `source`, with what `rows` makes of it in its place."""
    return sql.replace("FROM source", f"FROM ({rows_sql})")
