"""A number that does not fit is an error and never wraps; a number that fits is exact."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from contract.bucket import Bucket
from contract.cases import LONG, MONEY

import foldhouse as fh

HUGE = Decimal("6" * 38)
HUGE_WITH_CENTS = Decimal("6" * 34 + ".6666")
NO_ROOM = "does not fit its column|38 digits hold no more"


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("batches", [1, 2], ids=["in one batch", "over two batches"])
@pytest.mark.parametrize(
    ("kind", "value"),
    [(LONG, 2**63 - 1), (pa.decimal128(38, 0), HUGE), (pa.decimal128(38, 4), HUGE_WITH_CENTS)],
    ids=["long", "decimal(38,0)", "decimal(38,4)"],
)
def test_a_sum_that_does_not_fit_is_an_error_and_never_a_wrap(
    sign: int, batches: int, kind: pa.DataType, value: Any
) -> None:
    row = (1, {"value": sign * value})
    bucket = Bucket(fh.fold(out=fh.total("value")), {"value": kind})
    if batches == 2:
        bucket.take(row)
        assert bucket.values() == sign * value
    with pytest.raises(fh.InvalidData, match=NO_ROOM):
        bucket.take(row, row)


@pytest.mark.parametrize(
    ("kind", "value", "times"),
    [(LONG, 2**63 - 1, 2), (pa.decimal128(38, 0), Decimal("9" * 34), 25_000)],
    ids=["long", "decimal"],
)
def test_the_sum_behind_an_average_that_does_not_fit_is_an_error(kind: pa.DataType, value: Any, times: int) -> None:
    bucket = Bucket(fh.fold(out=fh.average("value")), {"value": kind})
    with pytest.raises(fh.InvalidData, match=NO_ROOM):
        bucket.take(*[(1, {"value": value})] * times)


@pytest.mark.parametrize("times", [3, 4, 5, 7, 11, 100])
def test_a_decimal_sum_far_beyond_38_digits_does_not_come_round_again(times: int) -> None:
    bucket = Bucket(fh.fold(out=fh.total("value")), {"value": pa.decimal128(38, 0)})
    with pytest.raises(fh.InvalidData, match=NO_ROOM):
        bucket.take(*[(1, {"value": HUGE})] * times)


def test_a_sum_up_to_the_last_long_is_exact() -> None:
    bucket = Bucket(fh.fold(out=fh.total("value")), {"value": LONG})
    bucket.take((1, {"value": 2**63 - 2}), (1, {"value": 1}))
    assert bucket.values() == 2**63 - 1
    bucket.take((-1, {"value": 2**63 - 2}), (-1, {"value": 1}), (1, {"value": -(2**63)}))
    assert bucket.values() == -(2**63)


def test_a_sum_may_leave_the_range_of_a_long_within_one_batch_as_long_as_it_comes_back() -> None:
    bucket = Bucket(fh.fold(out=fh.total("value")), {"value": LONG})
    bucket.take(*[(1, {"value": value}) for value in (2**62, 2**62, 2**62, -(2**62), -(2**62))])
    assert bucket.values() == 2**62


def test_a_decimal_sum_takes_ten_more_digits_than_its_argument() -> None:
    bucket = Bucket(fh.fold(out=fh.total("value")), {"value": pa.decimal128(5, 2)})
    bucket.take(*[(1, {"value": Decimal("999.99")})] * 50)
    assert bucket.values() == Decimal("49999.50")


@pytest.mark.parametrize(
    ("scale", "values", "expected"),
    [(4, ["1.0000", "2.0001"], "1.50005"), (36, ["0.5", "0.25"], "0.375"), (38, ["0.25", "0.5"], "0.375")],
)
def test_an_average_of_the_widest_decimals_is_exact(scale: int, values: list[str], expected: str) -> None:
    bucket = Bucket(fh.fold(out=fh.average("value")), {"value": pa.decimal128(38, scale)})
    bucket.take(*[(1, {"value": Decimal(value)}) for value in values])
    assert bucket.values() == Decimal(expected)


def test_an_average_that_has_no_room_for_its_four_more_digits_is_an_error() -> None:
    bucket = Bucket(fh.fold(out=fh.average("value")), {"value": pa.decimal128(38, 4)})
    with pytest.raises(fh.InvalidData, match=NO_ROOM):
        bucket.take((1, {"value": HUGE_WITH_CENTS}))


def test_an_average_is_rounded_half_up_and_its_sign_does_not_matter() -> None:
    for sign, expected in ((1, "0.000003"), (-1, "-0.000003")):  # 0.0000025 in the seventh digit
        bucket = Bucket(fh.fold(out=fh.average("value")), {"value": MONEY})
        bucket.take((1, {"value": sign * Decimal("0.01")}), *[(1, {"value": Decimal(0)})] * 3999)
        assert bucket.values() == Decimal(expected)
