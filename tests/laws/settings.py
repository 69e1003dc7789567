"""Draws the settings of a lake at random, between any two refreshes of a table: none of them may change a row."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import fields

from laws.history import History

import foldhouse as fh
from foldhouse.errors import DefinitionError

_WHOLE = (-1, 0, 1, 2, 5, 100, 10**9)
_SHARES = (-1.0, 0.0, 0.01, 0.5, 1.0, 2.0)
_BY_FILE_NAMES = {"patience_least_share": 1.0, "patience_spread_share": 0.0}
"""With other numbers, the same seed would be another history each time."""
_KEEPS_OUT_OF_SPARK = {"in_process_rows", "plain_rows_factor", "spilled_rows_factor", "direct_rows", "checked_rows"}


def _allowed(name: str, default: float) -> Sequence[float]:
    """Return the default, and the extremes and small numbers that the field takes."""
    found = [default]
    for value in _WHOLE if isinstance(default, int) else _SHARES:
        try:
            fh.Tuning(**{name: value})
        except DefinitionError:
            continue
        found.append(value)
    return found


CHOICES = {one.name: _allowed(one.name, one.default) for one in fields(fh.Tuning) if one.name not in _BY_FILE_NAMES}


def any_tuning(chance: random.Random, *, has_spark: bool) -> fh.Tuning:
    """Draw settings: about half of the fields have their defaults.

    Args:
        chance: of the history.
        has_spark: whether the work may go to Spark.
    """
    drawn = {name: chance.choice(values) for name, values in CHOICES.items() if chance.random() < 0.5}
    kept = {name for name in drawn if has_spark or name not in _KEEPS_OUT_OF_SPARK}
    return fh.Tuning(**{name: drawn[name] for name in sorted(kept)}, **_BY_FILE_NAMES)


def change_settings(history: History) -> None:
    """Give the lake other settings."""
    history.lake.tuning = any_tuning(history.chance, has_spark=history.has_spark)
