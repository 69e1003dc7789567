"""Hashes of rows, by which equal values are found or divided without a comparison of all with all."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
import polars as pl

_HASHED = (pl.Boolean, pl.String, pl.Binary, pl.Date, pl.Datetime, pl.Decimal)
"""Types whose equal values have equal hashes, as numbers do, -0.0 included; decimals of one column have one scale."""
_SEEDS = (0x9E3779B97F4A7C15, 0x5851F42D4C957F2D)


def have_hashes(types: Sequence[pl.DataType]) -> bool:
    """Whether equal values of these types have equal hashes."""
    return all(one.is_integer() or one.is_float() or one in _HASHED for one in types)


def hashes_of(rows: pl.DataFrame, columns: Sequence[str]) -> np.ndarray:
    """Return a number for the values of each row, as uint64; rows with equal values, or nulls, have equal numbers."""
    seed, factor = _SEEDS
    each = [rows[name].hash(seed).to_numpy() for name in columns]
    return reduce(lambda one, other: one * np.uint64(factor) + other, each)


def several(hashes: Sequence[np.ndarray]) -> pl.Series:
    """Return the hashes that are there more than once, each once."""
    ordered = pl.Series(np.concatenate([np.empty(0, np.uint64), *hashes])).sort()
    return ordered.filter(ordered == ordered.shift(1)).unique()
