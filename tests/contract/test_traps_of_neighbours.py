"""Behaviour of datasketches, Polars and Python that foldhouse works around: one trap per test."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from decimal import Decimal

import polars as pl
from datasketches import hll_sketch

from foldhouse.kernel import sketch


def test_datasketches_leaves_out_the_empty_text() -> None:
    plain = hll_sketch(12)
    plain.update("")
    assert plain.is_empty()
    assert sketch.estimates(pl.Series([sketch.extended(None, [""])])).to_list() == [1]


def test_the_estimate_of_datasketches_follows_the_order_of_arrival() -> None:
    values = list(range(5000))
    estimates, ours = set(), set()
    for seed in range(5):
        random.Random(seed).shuffle(values)
        plain = hll_sketch(12)
        for value in values:
            plain.update(value)
        estimates.add(plain.get_estimate())
        ours |= set(sketch.estimates(pl.Series([sketch.extended(None, values)])))
    assert len(estimates) > 1
    assert len(ours) == 1


def test_polars_wraps_a_sum_of_decimals_within_groups() -> None:
    rows = pl.DataFrame({"k": [1, 1], "v": [Decimal(10**38 - 1)] * 2}, schema_overrides={"v": pl.Decimal(38, 0)})
    assert rows.group_by("k").agg(pl.col("v").sum())["v"][0] < 0


def test_polars_leaves_nan_out_of_a_maximum_and_still_says_that_it_is_greater() -> None:
    values = pl.Series([float("nan"), 1.0])
    assert values.max() == 1.0
    assert (values > 1.0).to_list() == [True, False]


def test_python_counts_moments_in_seconds_that_are_not_exact() -> None:
    far = datetime(9999, 12, 31, 23, 59, 59, 999999) - datetime(1970, 1, 1)
    assert round(far.total_seconds() * 1_000_000) != far // timedelta(microseconds=1)
