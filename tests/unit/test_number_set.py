"""A set of whole numbers finds the same places as numpy, for every type and at the ends of its range."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from foldhouse.kernel.number_set import NumberSet

TYPES = [np.dtype(f"{sign}{width}") for sign in "iu" for width in (1, 2, 4, 8)]


def _same(wanted: np.ndarray, column: np.ndarray) -> None:
    found = NumberSet(pl.Series(wanted)).places_in(pl.Series(column))
    assert found.tolist() == np.flatnonzero(np.isin(column, wanted)).tolist()


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_random_numbers_are_found(kind: np.dtype) -> None:
    chance = np.random.default_rng(7)
    ends = np.iinfo(kind)
    for size in (0, 1, 5, 300):
        for least, most in ((ends.min, ends.max), (max(ends.min, -50), 60), (ends.max - 40, ends.max)):
            wanted = chance.integers(least, most, size, dtype=kind, endpoint=True)
            column = chance.integers(ends.min, ends.max, 500, dtype=kind, endpoint=True)
            column[:100] = chance.integers(least, most, 100, dtype=kind, endpoint=True)
            column[100 : 100 + size] = wanted[: len(column) - 100]
            _same(wanted, column)


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_the_ends_of_the_range_are_not_confused(kind: np.dtype) -> None:
    least, most = np.iinfo(kind).min, np.iinfo(kind).max
    column = np.array([least, least + 1, most - 1, most, 0, 1], kind)
    for wanted in ([least], [most], [least, most], [least + 1, most - 1], [0], []):
        _same(np.array(wanted, kind), column)


def test_numbers_far_apart_are_found() -> None:
    _same(np.array([0, 10**15]), np.array([0, 1, 10**15, 10**15 + 1, -1]))


def test_a_null_among_the_wanted_numbers_selects_nothing() -> None:
    found = NumberSet(pl.Series([None, 3], dtype=pl.Int64)).places_in(pl.Series([1, 3, 0]))
    assert found.tolist() == [1]


def test_a_long_column_is_found_in_parts() -> None:
    column = np.random.default_rng(3).integers(0, 1_000_000, 200_001)
    _same(np.arange(0, 1_000_000, 7), column)
