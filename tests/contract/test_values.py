"""Values that compare in their own way: ties, nulls, NaN, -0.0, and names that the kernel uses itself."""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa
import pytest
from contract.bucket import Bucket, bits
from contract.cases import DOUBLE, INT, LONG, TEXT

import foldhouse as fh

NAN = float("nan")


@pytest.mark.parametrize("batches", [1, 2, 3])
def test_all_columns_of_latest_come_from_one_row_even_where_the_sequence_ties(batches: int) -> None:
    rows = [{"word": word, "units": units, "seq": 1} for word, units in (("a", 9), ("b", 1), ("b", 0))]
    types = {"word": TEXT, "units": INT, "seq": LONG}
    bucket = Bucket(fh.fold(word=fh.latest("word"), units=fh.latest("units")), types, sequence=["seq"])
    for number in range(batches):
        bucket.take(*[(1, row) for row in rows[number::batches]])
    assert bucket.rows()["k"] == {"word": "b", "units": 1}


def test_the_second_sequence_column_decides_where_the_first_ties() -> None:
    types = {"word": TEXT, "seq": LONG, "at": pa.timestamp("us")}
    bucket = Bucket(fh.fold(word=fh.latest("word")), types, sequence=["seq", "at"])
    bucket.take((1, {"word": "z", "seq": 1, "at": datetime(2024, 1, 1)}))
    bucket.take((1, {"word": "a", "seq": 1, "at": datetime(2024, 1, 2)}))
    bucket.take((1, {"word": "y", "seq": 0, "at": datetime(2024, 1, 3)}))
    assert bucket.values() == "a"


def test_a_row_without_a_sequence_is_before_every_other() -> None:
    types = {"word": TEXT, "seq": LONG}
    bucket = Bucket(fh.fold(last=fh.latest("word"), first=fh.earliest("word")), types, sequence=["seq"])
    bucket.take((1, {"word": "b", "seq": -5}))
    bucket.take((1, {"word": "z", "seq": None}))
    assert bucket.rows()["k"] == {"last": "b", "first": "z"}


def test_top_holds_equal_rows_as_often_as_they_are_there() -> None:
    bucket = Bucket(fh.fold(best=fh.top(3, "word", by="units")), {"word": TEXT, "units": INT})
    row = {"word": "a", "units": 5}
    bucket.take((1, row), (1, row))
    bucket.take((1, row), (1, row))
    assert bucket.values() == [row] * 3
    bucket.take((-1, row), (-1, row))
    assert bucket.values() == [row] * 2


def test_top_ranks_nulls_among_its_values_last() -> None:
    bucket = Bucket(fh.fold(best=fh.top(2, "word", by="units")), {"word": TEXT, "units": INT})
    for word in (None, "b", "a"):
        bucket.take((1, {"word": word, "units": 5}))
    assert bucket.values() == [{"word": "a", "units": 5}, {"word": "b", "units": 5}]


@pytest.mark.parametrize("fold", [fh.minimum("value"), fh.maximum("value"), fh.distinct_exact("value")], ids=repr)
def test_a_nan_gives_one_answer_whatever_the_batches(fold: fh.ColumnFold) -> None:
    answers = set()
    for order in ([NAN, 1.0, 2.0], [2.0, NAN, 1.0], [1.0, 2.0, NAN]):
        for batches in (1, 3):
            bucket = Bucket(fh.fold(out=fold), {"value": DOUBLE})
            for number in range(batches):
                bucket.take(*[(1, {"value": value}) for value in order[number::batches]])
            answers.add(bits(bucket.values()))
    assert len(answers) == 1


def test_a_nan_that_was_counted_as_a_value_can_be_taken_away_again() -> None:
    bucket = Bucket(fh.fold(out=fh.distinct_exact("value")), {"value": DOUBLE})
    bucket.take((1, {"value": NAN}), (1, {"value": NAN}), (1, {"value": 1.0}))
    assert bucket.values() == 2
    bucket.take((-1, {"value": NAN}))
    bucket.take((-1, {"value": NAN}))
    assert bucket.values() == 1


@pytest.mark.parametrize("n", [1, 2, 3], ids=lambda n: f"top({n})")
def test_top_lets_go_of_a_row_that_is_ranked_by_nan(n: int) -> None:
    bucket = Bucket(fh.fold(best=fh.top(n, "word", by="units")), {"word": TEXT, "units": DOUBLE})
    rows = [{"word": "a", "units": NAN}, {"word": "b", "units": 1.0}, {"word": "c", "units": 2.0}]
    bucket.take(*[(1, row) for row in rows])
    assert bucket.values()[0]["word"] == "a"  # NaN is greater than every number, as in Spark
    bucket.take((-1, rows[0]))
    assert bucket.values() == [rows[2], rows[1]][:n]


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), NAN])
@pytest.mark.parametrize("fold", [fh.total("value"), fh.average("value")], ids=repr)
def test_a_double_that_is_no_number_leaves_nothing_behind_when_it_is_taken_away(
    fold: fh.ColumnFold, value: float
) -> None:
    bucket = Bucket(fh.fold(out=fold), {"value": DOUBLE})
    bucket.take((1, {"value": 1.5}), (1, {"value": value}))
    bucket.take((-1, {"value": value}))
    assert bucket.values() == 1.5


@pytest.mark.parametrize("name", ["weight", "inserted", "retracted", "old", "value0", "count"])
def test_top_may_publish_a_column_of_any_name(name: str) -> None:
    bucket = Bucket(fh.fold(best=fh.top(1, name, by="units")), {name: TEXT, "units": INT})
    bucket.take((1, {name: "a", "units": 1}))
    bucket.take((1, {name: "b", "units": 2}))
    assert bucket.values() == [{name: "b", "units": 2}]


def test_the_columns_of_a_table_may_be_called_what_the_kernel_calls_its_own() -> None:
    names = ["rows", "count", "sum", "sequence", "sketch", "counts", "value0", "latest", "weight"]
    bucket = Bucket(fh.fold(**{name: fh.total("value") for name in names}), {"value": INT})
    bucket.take((1, {"value": 2}))
    bucket.take((1, {"value": 3}), (-1, {"value": 2}))
    assert bucket.rows()["k"] == dict.fromkeys(names, 3)
