"""Totals and averages of floats are those of exact arithmetic, to the last bit and to the last byte of `_state`."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from contract.bucket import Bucket, bits
from hypothesis import example, given, settings
from hypothesis import strategies as st
from laws.amount import IS_THOROUGH

import foldhouse as fh
from foldhouse.kernel import limbs
from foldhouse.kernel.distil import distilled, means
from foldhouse.kernel.exact import Exact
from foldhouse.values.metadata_names import STATE

DOUBLE, FLOAT, LONG = pa.float64(), pa.float32(), pa.int64()
LARGEST, SMALLEST = sys.float_info.max, 5e-324
FOLD = fh.fold(sum=fh.total("value"), mean=fh.average("value"))

HARD = [0.1, -0.1, 1.0, -1.0, 3.0, 1e16, 1e17, -1e17, 2.0**53, 2.0**-53, -(2.0**-53), 2.0**-106, 1e300, -1e300]
TINY = [SMALLEST, -SMALLEST, sys.float_info.min, 0.0, -0.0, 1e-20]
hard = st.sampled_from([*HARD, *TINY])
money = st.integers(-(10**8), 10**8).map(lambda cents: cents / 100)
finite = st.one_of(hard, money, st.floats(allow_nan=False, allow_infinity=False))
anything = st.one_of(finite, st.sampled_from([LARGEST, -LARGEST, math.inf, -math.inf, math.nan]))


def total_of(values: Sequence[float]) -> float | None:
    """The definition: IEEE 754 where not all are finite, else the exact sum, rounded once, and one zero."""
    if not values:
        return None
    if not all(map(math.isfinite, values)):
        special = sum(value for value in values if not math.isfinite(value))
        return math.nan if math.isnan(special) else special  # there is one NaN
    return rounded(sum(map(Fraction, values)))


def average_of(values: Sequence[float]) -> float | None:
    if not values or not all(map(math.isfinite, values)):
        return total_of(values)
    return rounded(sum(map(Fraction, values)) / len(values))


def rounded(exact: Fraction | int) -> float:
    try:
        return float(exact) or 0.0
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def held(*batches: Sequence[tuple[int, float | None]], kind: pa.DataType = DOUBLE) -> dict[str, Any] | None:
    """The one row of a table after some batches of signed values."""
    bucket = Bucket(FOLD, {"value": kind})
    for batch in batches:
        bucket.take(*[(weight, {"value": value}) for weight, value in batch])
    assert bucket.recomputed_keys == 0
    (row, *_) = [*bucket.held.select("sum", "mean", STATE).to_dicts(), None]
    return row


def added(values: Sequence[float]) -> list[tuple[int, float | None]]:
    return [(1, value) for value in values]


def test_a_large_value_that_is_corrected_takes_nothing_with_it() -> None:
    row = held(added([12.5, 7.25]), added([1e17, 3.0]), [(-1, 1e17), (1, 1.0)])
    assert row is not None
    assert (row["sum"], row["mean"]) == (23.75, 5.9375)


@given(st.lists(st.tuples(anything, st.integers(0, 3), st.integers(0, 3)), max_size=12))
@example([(1e308, 0, 1), (1e308, 0, 2), (-1e308, 1, 3), (math.nan, 0, 1), (math.inf, 1, 0)])
@settings(max_examples=150 if IS_THOROUGH else 50, deadline=None)
@pytest.mark.heavy
def test_whatever_came_and_went_in_whichever_batch_the_answer_is_that_of_what_is_left(
    steps: list[tuple[float, int, int]],
) -> None:
    """A value comes with one batch and goes with a later one; with an earlier or the same one, it stays."""
    batches: list[list[tuple[int, float | None]]] = [[] for _ in range(4)]
    for value, comes, goes in steps:
        batches[comes].append((1, value))
        if goes > comes:
            batches[goes].append((-1, value))
    left = [value for value, comes, goes in steps if goes <= comes]
    row, at_once = held(*batches), held(added(left[::-1]))
    assert bits(row) == bits(at_once)
    if left:
        assert row is not None
        assert bits([row["sum"], row["mean"]]) == bits([total_of(left), average_of(left)])


@pytest.mark.slow
@given(st.lists(finite, min_size=1, max_size=30))
@settings(max_examples=150, deadline=None)
def test_a_total_of_finite_doubles_is_what_fsum_says(values: list[float]) -> None:
    try:
        expected = math.fsum(values) or 0.0
    except OverflowError:
        expected = total_of(values) or 0.0
    row = held(added(values))
    assert row is not None
    assert bits(row["sum"]) == bits(expected)


@pytest.mark.slow
@given(st.lists(st.floats(width=32), min_size=1, max_size=12))
@settings(max_examples=60, deadline=None)
def test_floats_are_summed_as_the_doubles_they_are(values: list[float]) -> None:
    row = held(added(values[: len(values) // 2]), added(values[len(values) // 2 :]), kind=FLOAT)
    assert row is not None
    assert bits([row["sum"], row["mean"]]) == bits([total_of(values), average_of(values)])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([-0.0], 0.0),
        ([-0.0, -0.0], 0.0),
        ([-1.5, 1.5], 0.0),
        ([math.inf, 1.0], math.inf),
        ([-math.inf, LARGEST, LARGEST], -math.inf),
        ([math.inf, -math.inf], math.nan),
        ([math.nan, math.inf], math.nan),
        ([LARGEST, LARGEST], math.inf),
        ([-LARGEST, -LARGEST], -math.inf),
        ([LARGEST, LARGEST, -LARGEST], LARGEST),
        ([LARGEST, 2.0**970], math.inf),
        ([LARGEST, 2.0**970, -SMALLEST], LARGEST),
        ([1e16, 1.0], 1e16),
        ([1e16, 1.0, SMALLEST], 1e16 + 2),
        ([SMALLEST] * 3, 3 * SMALLEST),
    ],
)
def test_a_total_is_the_exact_sum_rounded_once(values: list[float], expected: float) -> None:
    for batches in ([added(values)], [added([value]) for value in values], [added([value]) for value in values[::-1]]):
        row = held(*batches)
        assert row is not None
        assert bits(row["sum"]) == bits(expected)
        assert bits(row) == bits(held(added(values)))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([LARGEST, LARGEST], LARGEST),
        ([-SMALLEST, 0.0, 0.0], 0.0),
        ([SMALLEST, 0.0], 0.0),
        ([SMALLEST, SMALLEST, SMALLEST, 0.0], SMALLEST),
        ([1.0, 1.0 + 2.0**-52], 1.0),
        ([1.0 + 2.0**-52, 1.0 + 2.0**-51], 1.0 + 2.0**-51),
        ([1.0, 1.0 + 2.0**-52, SMALLEST, -0.0], 0.5 + 2.0**-53),
        ([0.1] * 10, 0.1),
        ([1e17, 1.0, 1.0], 33333333333333334.0),
    ],
)
def test_an_average_is_the_quotient_of_the_exact_sum_rounded_once(values: list[float], expected: float) -> None:
    row = held(*[added([value]) for value in values])
    assert row is not None
    assert bits(row["mean"]) == bits(expected) == bits(average_of(values))


def test_an_average_of_whole_numbers_is_rounded_once() -> None:
    values = [2**53 + 3, 2**53, 2**53]
    bucket = Bucket(fh.fold(mean=fh.average("value")), {"value": LONG})
    bucket.take(*[(1, {"value": value}) for value in values])
    assert bucket.values() == sum(values) / len(values) == float(Fraction(sum(values), len(values)))
    assert float(sum(values)) / 3 != bucket.values()


def test_a_sum_that_is_a_double_keeps_nothing_beside_it() -> None:
    row = held(added([0.5, 0.25]))
    assert row is not None
    assert row[STATE] == {
        "rows": 2,
        "sum_count": 2,
        "sum_rest": None,
        "sum_more": None,
        "mean_sum": 0.75,
        "mean_count": 2,
        "mean_rest": None,
        "mean_more": None,
    }


def test_nothing_is_kept_of_values_that_are_all_gone() -> None:
    row = held([(1, 1e300), (1, math.nan), (1, None), (1, LARGEST), (1, LARGEST)], [(-1, LARGEST), (-1, math.nan)])
    gone = held([(1, 1e300), (1, None), (1, LARGEST)], [(-1, LARGEST), (-1, 1e300)])
    assert bits(row) == bits(held([*added([1e300, LARGEST]), (1, None)]))
    assert gone is not None
    assert (gone["sum"], gone["mean"], gone[STATE]["sum_rest"], gone[STATE]["sum_more"]) == (None, None, None, None)


@given(st.lists(st.lists(finite.filter(lambda one: abs(one) < 1e250), min_size=5, max_size=5), min_size=1, max_size=20))
@settings(max_examples=100, deadline=None)
def test_what_is_distilled_is_what_whole_numbers_say(sums: list[list[float]]) -> None:
    parts = distilled(np.array(sums).T.copy())
    counts = np.arange(1, len(sums) + 1)
    for at, values in enumerate(sums):
        value, rest, more = Exact.of(values).fields()
        expected = [one for one in (value, rest, *(more or [])) if one]
        assert parts[:, at].tolist() == [0.0] * (5 - len(expected)) + expected[::-1]
        assert means(parts, counts)[at] == float(sum(map(Fraction, values)) / int(counts[at]))


@given(st.lists(anything, max_size=8))
@settings(max_examples=100, deadline=None)
def test_a_sum_that_is_kept_is_the_sum_that_comes_back(values: list[float]) -> None:
    exact = sum((_one(value) for value in values), Exact())
    assert Exact.kept(*exact.fields()) == exact
    packed = limbs.kept(np.zeros((1, 1)), {0: exact})
    assert limbs.exact_at(packed, 0) == exact
    assert bits(limbs.added(packed, limbs.kept(np.zeros((1, 1)), {})).to_list()) == bits(packed.to_list())


def _one(value: float) -> Exact:
    if math.isfinite(value):
        return Exact.of([value])
    return Exact(0, int(math.isnan(value)), int(value == math.inf), int(value == -math.inf))


def test_many_keys_of_all_sizes_are_summed_at_once() -> None:
    """More keys than are computed in one go, each with its own limbs, ties and specials."""
    chance = np.random.default_rng(7)
    keys, each = 20_000, 3
    values = np.ldexp(chance.uniform(-1, 1, keys * each), chance.integers(-1070, 1024, keys * each))
    values[chance.random(keys * each) < 0.3] = 2.0**53
    values[chance.random(keys * each) < 0.1] = 1.0
    values[chance.random(keys * each) < 0.01] = np.inf
    bucket = Bucket(FOLD, {"value": DOUBLE})
    names = [str(at % keys) for at in range(keys * each)]
    frame = pl.DataFrame({"key": names, "__a0": values, "__weight": np.ones(keys * each, np.int64)})
    for part in (frame[: keys * 2], frame[keys * 2 :]):
        bucket.take_frame(part.select(bucket.plan.delta_schema.names))
    rows = bucket.rows()
    for key in range(keys):
        own = values[key::keys].tolist()
        assert rows[str(key)] == {"sum": total_of(own), "mean": average_of(own)}
