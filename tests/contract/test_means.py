"""Means of columns of sums: the same as one division in Python, for every size of number and every scale."""

from __future__ import annotations

import random
from decimal import ROUND_HALF_UP, Decimal, localcontext
from fractions import Fraction

import polars as pl
import pytest

from foldhouse.kernel.means import mean


def means(sums: pl.Series, counts: list[int], like: pl.DataType) -> list[object]:
    rows = pl.DataFrame([sums.alias("s"), pl.Series("c", counts, pl.Int64), pl.Series("l", [None] * len(sums), like)])
    found = rows.select(mean(pl.col("s"), pl.col("c"), pl.col("l"))).to_series()
    assert found.dtype == like
    return list(found)


def test_a_mean_of_whole_numbers_is_the_nearest_double() -> None:
    chance = random.Random(1)
    near = [2**53 + step for step in range(-2, 3)]
    sums = [*near, *(-one for one in near), *(chance.getrandbits(bits) for bits in range(1, 64)), 0, -1]
    counts = [chance.choice([1, 2, 3, 7, 10**6, 2**40]) for _ in sums]
    expected = [float(Fraction(total, count)) for total, count in zip(sums, counts, strict=True)]
    assert means(pl.Series(sums, dtype=pl.Int128), counts, pl.Float64()) == expected


@pytest.mark.parametrize("scale", [0, 2, 18, 33, 34, 36, 38])
def test_a_mean_of_decimals_is_rounded_half_up_once(scale: int) -> None:
    chance, published = random.Random(scale), min(38, scale + 4)
    units = [chance.randrange(10**digits) * chance.choice([1, -1]) for digits in range(1, 33) for _ in range(6)]
    sums = pl.Series([Decimal(one).scaleb(-scale) for one in units], dtype=pl.Decimal(38, scale))
    counts = [chance.choice([1, 2, 3, 4, 8, 16, 3_125, 20_000, 2**40]) for _ in units]
    with localcontext(prec=100):
        expected = [
            (total / count).quantize(Decimal(1).scaleb(-published), ROUND_HALF_UP)
            for total, count in zip(sums, counts, strict=True)
        ]
    assert means(sums, counts, pl.Decimal(38, published)) == expected


def test_half_of_the_last_digit_is_rounded_away_from_zero_and_nothing_has_no_mean() -> None:
    sums = pl.Series([Decimal("0.01"), Decimal("-0.01"), None, Decimal("5.00")], dtype=pl.Decimal(38, 2))
    found = means(sums, [20_000, 20_000, 0, 0], pl.Decimal(38, 6))
    assert found == [Decimal("0.000001"), Decimal("-0.000001"), None, None]
