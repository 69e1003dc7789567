"""The sketch of `distinct`: how far off it may be, and that the order of arrival does not matter."""

from __future__ import annotations

import random
import statistics
from collections import Counter
from datetime import date
from decimal import Decimal

import polars as pl
import pyarrow as pa
import pytest
from contract.bucket import Bucket
from contract.cases import LONG, MONEY, TEXT
from contract.orders import permuted
from laws.amount import IS_THOROUGH

import foldhouse as fh
from foldhouse.kernel import sketch
from foldhouse.kernel.plan import WEIGHT
from foldhouse.values.metadata_names import STATE

PERMUTATIONS = 100 if IS_THOROUGH else 40


@pytest.mark.parametrize("batches", [1, 2, 8, 30])
def test_the_estimate_of_distinct_does_not_depend_on_the_order_or_the_batches(batches: int) -> None:
    fold = fh.fold(about=fh.distinct("word"))
    words = [f"word {number % 3000}" for number in range(3600)]
    once = Bucket(fold, {"word": TEXT})
    once.take(*[(1, {"word": word}) for word in words])
    assert abs(once.values() - 3000) < 3000 * 0.03
    assert len(once.held[STATE][0]["about_sketch"]) > 4096, "the sketch is not in HLL mode"
    chance = random.Random(7)
    timelines = [permuted(chance, [*((word, False) for word in words), ("gone", True)]) for _ in range(PERMUTATIONS)]
    bucket = Bucket(fold, {"word": TEXT})
    size = -(-len(timelines[0]) // batches)
    for start in range(0, len(timelines[0]), size):
        signed = [
            pl.DataFrame(timeline[start : start + size], {WEIGHT: pl.Int64, "__a0": pl.String}, orient="row").select(
                pl.lit(str(number)).alias("key"), "__a0", WEIGHT
            )
            for number, timeline in enumerate(timelines)
        ]
        bucket.take_frame(pl.concat(signed))
    assert Counter(row["about"] for row in bucket.rows().values()) == {once.values(): PERMUTATIONS}


@pytest.mark.parametrize("kind", ["text", "long", "decimal", "date"])
def test_distinct_is_within_three_percent_of_fifty_thousand_values(kind: str) -> None:
    numbers = range(50_000)
    values, arrow = {
        "text": ([f"customer {n}" for n in numbers], TEXT),
        "long": ([n * 7919 for n in numbers], LONG),
        "decimal": ([Decimal(n).scaleb(-2) for n in numbers], MONEY),
        "date": ([date.fromordinal(700_000 + n) for n in numbers], pa.date32()),
    }[kind]
    bucket = Bucket(fh.fold(about=fh.distinct("value")), {"value": arrow})
    bucket.take(*[(1, {"value": value}) for value in values])
    assert abs(bucket.values() - 50_000) < 50_000 * 0.03


def test_the_estimate_of_distinct_has_the_error_it_says_and_no_bias() -> None:
    errors = []
    for seed in range(40):
        numbers = random.Random(seed)
        values = {numbers.getrandbits(60) for _ in range(10_000)}
        errors.append(sketch.estimates(pl.Series([sketch.extended(None, values)]))[0] / len(values) - 1)
    assert abs(statistics.mean(errors)) < 0.006
    assert 0.010 < statistics.pstdev(errors) < 0.020


def test_distinct_counts_the_empty_text_as_a_value() -> None:
    bucket = Bucket(fh.fold(about=fh.distinct("value")), {"value": TEXT})
    bucket.take((1, {"value": ""}))
    assert bucket.values() == 1
