"""Values that Arrow would cut are refused; all others are what Arrow makes of them."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from foldhouse.values.exact import exact_array, exact_cast

NOON, MIDNIGHT, DAY = datetime(2024, 3, 4, 12), datetime(2024, 3, 4), date(2024, 3, 4)
FAR = timezone(timedelta(hours=-3, minutes=-30))
NESTED = pa.list_(pa.struct([("n", pa.int64())]))
MAP = pa.map_(pa.string(), pa.int32())

CUT: list[tuple[Any, pa.DataType]] = [
    (1.5, pa.int64()),
    (Decimal("1.5"), pa.int32()),
    (np.float64(2.5), pa.int64()),
    (NOON, pa.date32()),
    (NOON.replace(tzinfo=FAR), pa.date32()),
    ([{"n": 1}, {"n": 1.5}], NESTED),
    ({"a": 1.5}, MAP),
    ([("a", 1.5)], MAP),
    (1e300, pa.float32()),
    (-1e39, pa.float32()),
    (1709546400.5, pa.timestamp("us")),
    ([1e300], pa.list_(pa.float32())),
    (10**15, pa.time64("us")),
    (-1, pa.time64("us")),
    (3.5, pa.time64("us")),
]


@pytest.mark.parametrize(("value", "kind"), CUT, ids=str)
def test_a_value_that_would_be_cut_is_refused(value: Any, kind: pa.DataType) -> None:
    assert pa.array([value], kind)[0].as_py() != value, "Arrow cuts it"
    with pytest.raises(pa.ArrowInvalid, match="would be cut"):
        exact_array([None, value], kind)


def test_nanoseconds_of_pandas_are_refused() -> None:
    pandas = pytest.importorskip("pandas")
    with pytest.raises(pa.ArrowInvalid, match="would be cut"):
        exact_array([pandas.Timestamp("2024-03-04 00:00:00.000000001")], pa.timestamp("us"))


@pytest.mark.parametrize(
    ("value", "kind", "made"),
    [
        (2.0, pa.int64(), 2),
        (Decimal(2), pa.int64(), 2),
        (np.int64(7), pa.int32(), 7),
        (2**63 - 1, pa.int64(), 2**63 - 1),
        (MIDNIGHT, pa.date32(), DAY),
        (DAY, pa.date32(), DAY),
        (NOON, pa.timestamp("us"), NOON),
        ([{"n": 1}, None, {"n": None}, {}], NESTED, [{"n": 1}, None, {"n": None}, {"n": None}]),
        ({"a": 1, "b": None}, MAP, [("a", 1), ("b", None)]),
        (1.5, pa.float64(), 1.5),
        (float("-inf"), pa.float32(), float("-inf")),
        (-3.4028234663852886e38, pa.float32(), -3.4028234663852886e38),
        (1.5, None, 1.5),
        (NOON.time(), pa.time64("us"), NOON.time()),
        (86_400 * 10**6 - 1, pa.time64("us"), time(23, 59, 59, 999_999)),
    ],
    ids=str,
)
def test_other_values_are_what_arrow_makes_of_them(value: Any, kind: pa.DataType | None, made: Any) -> None:
    assert exact_array([value, None], kind).to_pylist() == [made, None]


def column(values: list[Any], kind: pa.DataType) -> pa.ChunkedArray:
    """Of two chunks, the second one a slice."""
    return pa.chunked_array([pa.array(values[:1], kind), pa.array([None, *values, None], kind).slice(1)])


CASTS: list[tuple[Any, Any, pa.DataType, pa.DataType]] = [
    (NOON, MIDNIGHT, pa.timestamp("us"), pa.date32()),
    (
        datetime(2024, 3, 5, tzinfo=UTC),
        datetime(2024, 3, 5, 3, 30, tzinfo=UTC),
        pa.timestamp("us", "America/St_Johns"),
        pa.date32(),
    ),
    (5, 1, pa.int64(), pa.bool_()),
    (0.5, 0.0, pa.float64(), pa.bool_()),
    (1.239, 0.1, pa.float64(), pa.decimal128(9, 2)),
    (1.005, 3.0, pa.float32(), pa.decimal128(9, 2)),
    (0.001, 0.1 + 0.2, pa.float64(), pa.decimal128(9, 2)),
    (1234567890.123, 1234567890.12, pa.float64(), pa.decimal128(12, 2)),
    (-0.004, 0.1, pa.float32(), pa.decimal128(9, 2)),
    (1e300, 0.1, pa.float64(), pa.float32()),
    (10**15, 0, pa.int64(), pa.time64("us")),
    (10**18, 86_400 * 10**6 - 1, pa.int64(), pa.time64("us")),
    (-1, 0, pa.int64(), pa.time64("us")),
    (86_400, 86_399, pa.int32(), pa.time32("s")),
    (NOON, datetime(1970, 1, 1, 12), pa.timestamp("us"), pa.time64("us")),
    (datetime(1969, 12, 31, 12), datetime(1970, 1, 1), pa.timestamp("s"), pa.time64("us")),
    (
        datetime(1970, 1, 1, 23, 30, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 30, tzinfo=UTC),
        pa.timestamp("us", "Europe/Berlin"),
        pa.time64("us"),
    ),
]
SHAPES = {
    "plain": (lambda kind: kind, lambda value: value),
    "list": (pa.list_, lambda value: [value, None]),
    "struct": (lambda kind: pa.struct([("one", kind), ("other", pa.int8())]), lambda value: {"one": value}),
    "map": (lambda kind: pa.map_(pa.string(), kind), lambda value: [("a", value), ("b", None)]),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("cut", "kept", "have", "want"), CASTS, ids=str)
def test_a_cast_that_cuts_a_value_is_refused(
    cut: Any, kept: Any, have: pa.DataType, want: pa.DataType, shape: str
) -> None:
    kind, value = SHAPES[shape]
    before = column([value(kept), None], kind(have))
    assert exact_cast(before, kind(want)).equals(before.cast(kind(want)))
    with pytest.raises(pa.ArrowInvalid, match="would be cut"):
        exact_cast(column([value(kept), None, value(cut)], kind(have)), kind(want))


@pytest.mark.parametrize("have", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
@pytest.mark.parametrize(
    ("cut", "want"), [("-1e300", pa.float32()), ("1e400", pa.float32()), ("-1e400", pa.float64())], ids=str
)
def test_a_text_that_is_too_large_for_a_float_is_refused(cut: str, have: pa.DataType, want: pa.DataType) -> None:
    infinite = float("inf")
    texts = ["-inf", None, "1.5", "Infinity"]
    assert exact_cast(column(texts, have), want).to_pylist()[2:] == [None, 1.5, infinite, None]
    assert exact_cast(column(["nan"], have), want).null_count == 1
    for given in (column([*texts, cut], have), column([["1"], None, [cut]], pa.list_(pa.string()))):
        with pytest.raises(pa.ArrowInvalid, match=f"{cut} would be cut to"):
            exact_cast(given, pa.list_(want) if pa.types.is_list(given.type) else want)


@pytest.mark.parametrize(
    ("cut", "want"),
    [("1e400", pa.float64()), (10**15, pa.time64("us")), (NOON, pa.date32()), (5, pa.bool_())],
    ids=str,
)
def test_a_dictionary_of_values_that_a_cast_cuts_is_refused(cut: Any, want: pa.DataType) -> None:
    with pytest.raises(pa.ArrowInvalid, match="would be cut"):
        exact_cast(pa.chunked_array([pa.array([None, cut]).dictionary_encode()]), want)


@pytest.mark.parametrize("shape", SHAPES)
def test_nulls_without_a_type_have_the_type_of_the_column(shape: str) -> None:
    kind = SHAPES[shape][0](pa.date32())
    assert exact_cast(pa.chunked_array([pa.nulls(2)]), kind).to_pylist() == [None, None]
    assert exact_cast(pa.chunked_array([], kind), kind).to_pylist() == []


def test_a_float_that_is_infinite_stays_so() -> None:
    given = column([float("inf"), float("-inf"), float("nan"), 0.1], pa.float64())
    assert exact_cast(given, pa.float32()).to_pylist()[:1] == [float("inf")]
