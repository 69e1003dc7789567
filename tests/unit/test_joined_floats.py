"""Joins and hashes of floats: NaN equals NaN, and one zero the other, also where Polars would merge sorted columns."""

from __future__ import annotations

import itertools
import math

import polars as pl
import pytest

from foldhouse.kernel.hashed import hashes_of
from foldhouse.kernel.keyed import How, by_keys, joinable

VALUES = (0.0, -0.0, math.nan, -math.nan, 1.5, math.inf)


def _are_equal(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))


@pytest.mark.parametrize("kind", [pl.Float64(), pl.Float32()])
def test_equal_floats_have_equal_hashes_and_bits_and_others_have_not(kind: pl.DataType) -> None:
    rows = pl.DataFrame({"x": VALUES}, schema={"x": kind})
    hashes, bits = hashes_of(rows, ["x"]).tolist(), rows.select(joinable(pl.col("x"), kind)).to_series().to_list()
    for one, other in itertools.combinations(range(len(VALUES)), 2):
        are_equal = _are_equal(VALUES[one], VALUES[other])
        assert (hashes[one] == hashes[other], bits[one] == bits[other]) == (are_equal, are_equal)


def test_only_floats_are_joined_by_their_bits() -> None:
    rows = pl.DataFrame({"n": [1, None], "s": ["a", None]})
    for name, kind in rows.schema.items():
        assert rows.select(joinable(pl.col(name), kind)).to_series().equals(rows[name])
    nothing = pl.DataFrame({"x": [None]}, schema={"x": pl.Float64})
    assert nothing.select(joinable(pl.col("x"), pl.Float64())).item() is None


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
@pytest.mark.parametrize("size", [1, 2])
def test_sorted_floats_are_joined_as_others(how: How, size: int) -> None:
    for left, right in itertools.product(
        itertools.combinations_with_replacement(VALUES, 3), itertools.combinations(VALUES, size)
    ):
        matches = [sum(_are_equal(one, other) for other in right) for one in left]
        wanted = {"inner": sum(matches), "left": sum(max(1, n) for n in matches)}
        wanted |= {"semi": sum(n > 0 for n in matches), "anti": sum(n == 0 for n in matches)}
        rows, others = pl.DataFrame({"x": left}).sort("x"), pl.DataFrame({"x": right, "y": right}).sort("x")
        assert by_keys(rows, others, ["x"], how).height == wanted[how], (left, right)
        both = (side.with_columns(joinable(pl.col("x"), pl.Float64()).alias("bits")) for side in (rows, others))
        assert next(both).join(next(both), on="bits", how=how).height == wanted[how], (left, right)
