"""One answer per fold, whatever the order of arrival and however it is cut into batches.

Many permutations of one set of events, some of them taken away again, each a key of its own, are folded in 1, 2, 8 and
32 batches by the pure function that every refresh goes through. Published values and `_state` have to be the same to
the last bit.
"""

from __future__ import annotations

import random
import sys
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from contract.bucket import Bucket, Row, bits
from contract.cases import longest, spread
from contract.orders import permuted, sizes
from laws.amount import IS_THOROUGH

import foldhouse as fh
from foldhouse.kernel import folds
from foldhouse.values.metadata_names import STATE

PERMUTATIONS = 200 if IS_THOROUGH else 60
EVENTS = 60
NAN, LARGEST = float("nan"), sys.float_info.max
TYPES = {
    "word": pa.string(),
    "units": pa.int32(),
    "amount": pa.decimal128(12, 2),
    "weight": pa.float64(),
    "share": pa.float64(),
    "day": pa.date32(),
    "place": pa.struct([("x", pa.float64()), ("tags", pa.list_(pa.string()))]),
    "notes": pa.map_(pa.string(), pa.int64()),
    "seq": pa.int64(),
    "at": pa.timestamp("us"),
}
VALUES: dict[str, list[Any]] = {
    "word": [None, "", "x", "y", "zz", "ß"],
    "units": [None, -4, 0, 1, 2, 3],
    "amount": [None, Decimal("1.50"), Decimal("-2.25"), Decimal("10.01")],
    "weight": [None, 0.0, -0.0, 1.5, NAN, -NAN, float("inf"), float("-inf")],
    "share": [None, 0.1, -0.7, 1e-3, 12345.678, 1e17, -1e300, 1e300, 5e-324, 2.0**-53, LARGEST, -LARGEST],
    "day": [None, date(1969, 12, 31), date(2024, 1, 1)],
    "place": [
        None,
        {"x": 0.0, "tags": ["a"]},
        {"x": -0.0, "tags": ["a"]},
        {"x": NAN, "tags": []},
        {"x": None, "tags": None},
        {"x": 0.0, "tags": ["a", None]},
    ],
    "notes": [None, [], [("a", 1)], [("b", 1), ("a", None)]],
    "seq": [1, 2, 3],
    "at": [datetime(2024, 1, 1, 12), datetime(1960, 1, 1)],
}
EXACT = [
    fh.count(),
    fh.count("word"),
    fh.total("units"),
    fh.total("amount"),
    fh.average("units"),
    fh.average("amount"),
    fh.total("share"),
    fh.average("share"),
    fh.total("weight"),
    fh.average("weight"),
    fh.minimum("amount"),
    fh.minimum("weight"),
    fh.maximum("word"),
    fh.maximum("weight"),
    fh.minimum_by("word", "units"),
    fh.maximum_by("weight", "day"),
    fh.minimum_by("place", "weight"),
    fh.maximum_by("notes", "units"),
    fh.latest("word"),
    fh.latest("place"),
    fh.latest("amount", ignore_nulls=True),
    fh.earliest("day"),
    fh.distinct("word"),
    fh.distinct("weight"),
    fh.distinct_exact("word"),
    fh.distinct_exact("weight"),
    fh.distinct_exact("place"),
    fh.collect("amount"),
    fh.collect("word", by="weight"),
    fh.collect("place", limit=7),
    fh.collect("notes", by="units", limit=5),
    fh.collect("word", by="units", distinct=True, limit=3),
    fh.collect("weight", distinct=True),
    fh.top(3, "word", "day", by="units"),
    fh.top(5, "place", by="weight"),
    longest("word"),
    spread("units"),
]


def events_of(chance: random.Random) -> list[tuple[Row, bool]]:
    """Rows, many of them equal or tied, and whether each is taken away again."""
    rows = [{name: chance.choice(values) for name, values in VALUES.items()} for _ in range(EVENTS)]
    return [(row, chance.random() < 0.4) for row in rows]


def bucket_of(fold: fh.ColumnFold) -> Bucket:
    return Bucket(fh.fold(out=fold), TYPES, sequence=["seq", "at"])


def folded(fold: fh.ColumnFold, timelines: list[list[tuple[int, Row]]], batches: int) -> list[dict[str, Any]]:
    """The rows of a table that has each timeline as a key of its own, all of them cut into so many batches."""
    bucket = bucket_of(fold)
    for size in sizes(len(timelines[0]), batches):
        bucket.take(
            *[
                (weight, {**row, "key": f"{number:03}"})
                for number, timeline in enumerate(timelines)
                for weight, row in timeline[size]
            ]
        )
    return [without_bytes(row) for row in bucket.held.sort("key").to_dicts()]


def without_bytes(row: dict[str, Any]) -> dict[str, Any]:
    """What has to be equal: not the bytes of a sketch, which lists small sets in the order in which they came."""
    state = {name: value for name, value in row[STATE].items() if not name.endswith("_sketch")}
    return {"out": row["out"], STATE: state}


def check(fold: fh.ColumnFold, batches: int) -> None:
    chance = random.Random(repr(fold))
    events = events_of(chance)
    (once,) = folded(fold, [[(1, row) for row, goes in events if not goes]], 1)
    answers = folded(fold, [permuted(chance, events) for _ in range(PERMUTATIONS)], batches)
    assert len(answers) == PERMUTATIONS
    strange = [answer for answer in answers if bits(answer) != bits(once)]
    assert not strange, f"{len(strange)} of {PERMUTATIONS} differ: {strange[0]}, and at once {once}"


@pytest.mark.parametrize("batches", [1, 2, 8, pytest.param(32, marks=pytest.mark.heavy)])
@pytest.mark.parametrize("fold", EXACT, ids=repr)
def test_permutations_in_any_number_of_batches_give_one_answer_to_the_last_bit(
    fold: fh.ColumnFold, batches: int
) -> None:
    check(fold, batches)


def test_the_permutations_are_not_one_and_the_same_order() -> None:
    chance = random.Random(0)
    events = events_of(chance)
    assert len({repr(permuted(chance, events)) for _ in range(PERMUTATIONS)}) == PERMUTATIONS
    assert any(goes for _, goes in events)


def test_every_stock_fold_is_permuted() -> None:
    named = {repr(fold).partition("(")[0] for fold in EXACT}
    stock = set(folds.__all__)
    assert named == stock
