"""Every Iceberg type as a value: what a fold makes of it, or that it refuses it at the declaration and says why."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import polars as pl
import pyarrow as pa
import pytest
from contract.bucket import Bucket, bits
from contract.cases import LONG

import foldhouse as fh
from foldhouse.kernel.canonical import canonical
from foldhouse.values.types import arrow_type

NAN = float("nan")
UTC = ZoneInfo("UTC")

# Three values a type, in its order.
FLAT: dict[str, list[Any]] = {
    "boolean": [False, True, True],
    "int": [-(2**31), 0, 2**31 - 1],
    "long": [-(2**63), 0, 2**63 - 1],
    "float": [float("-inf"), 0.0, NAN],
    "double": [-1e300, 0.0, NAN],
    "decimal(38,10)": [Decimal("-9999999999999999999999999999.9999999999"), Decimal("0E-10"), Decimal("1E-10")],
    "date": [date(1, 1, 1), date(1969, 12, 31), date(9999, 12, 31)],
    "time": [time(0), time(12, 0, 0, 1), time(23, 59, 59, 999999)],
    "timestamp": [datetime(1, 1, 1), datetime(1969, 12, 31, 23), datetime(2024, 1, 1, 0, 0, 0, 1)],
    "timestamptz": [datetime(year, 1, 1, tzinfo=UTC) for year in (1900, 2023, 2024)],
    "string": ["", "z", "ß"],
    "binary": [b"", b"\x00", b"\xff"],
    "fixed[2]": [b"\x00\x00", b"\x00\x01", b"\xff\xff"],
    "uuid": [b"\x00" * 16, b"\x01" * 16, b"\xff" * 16],
}
NESTED: dict[str, list[Any]] = {
    "list<int>": [[], [None], [1, 2]],
    "struct<word: string, share: double>": [
        {"word": word, "share": share} for word, share in ((None, 1.0), ("a", 0.0), ("a", NAN))
    ],
    "list<struct<word: string>>": [[], [{"word": "a"}], [{"word": "a"}, {"word": "b"}]],
    "map<string, long>": [{}, {"a": 1}, {"b": None}],
    "struct<notes: map<string, list<int>>>": [{"notes": None}, {"notes": {}}, {"notes": {"a": [1]}}],
}
TYPES = {**FLAT, **NESTED}


def bucket_of(fold: fh.ColumnFold, kind: str) -> Bucket:
    return Bucket(fh.fold(out=fold), {"value": arrow_type(kind), "seq": LONG}, sequence=["seq"])


def fill(bucket: Bucket, values: list[Any]) -> None:
    """The middle value in a batch, then the others with a null, each with its place as the sequence."""
    rows = [(1, {"value": value, "seq": place}) for place, value in enumerate(values)]
    bucket.take(rows[1])
    bucket.take(rows[2], rows[0], (1, {"value": None, "seq": -1}))


def different(values: list[Any]) -> int:
    return len({repr(value) for value in values})


FOLDS: dict[str, tuple[Callable[[], fh.ColumnFold], Callable[[list[Any]], Any]]] = {
    "count": (lambda: fh.count("value"), len),
    "latest": (lambda: fh.latest("value"), lambda values: values[-1]),
    "earliest": (lambda: fh.earliest("value"), lambda values: None),
    "latest that is given": (lambda: fh.latest("value", ignore_nulls=True), lambda values: values[-1]),
    "minimum": (lambda: fh.minimum("value"), lambda values: values[0]),
    "maximum": (lambda: fh.maximum("value"), lambda values: values[-1]),
    "minimum_by": (lambda: fh.minimum_by("value", "seq"), lambda values: None),
    "maximum_by": (lambda: fh.maximum_by("value", "seq"), lambda values: values[-1]),
    "by": (lambda: fh.maximum_by("seq", "value"), lambda values: len(values) - 1),
    "distinct": (lambda: fh.distinct("value"), different),
    "distinct_exact": (lambda: fh.distinct_exact("value"), different),
    "collect": (lambda: fh.collect("value"), lambda values: values),
    "collect by": (lambda: fh.collect("value", by="seq", limit=3), lambda values: values),
    "top": (
        lambda: fh.top(2, "value", by="seq"),
        lambda values: [{"value": value, "seq": place} for place, value in [*enumerate(values)][::-1]][:2],
    ),
    "top by": (
        lambda: fh.top(1, "seq", by="value"),
        lambda values: [{"seq": len(values) - 1 - (values[-1] == values[-2]), "value": values[-1]}],
    ),
}
# Folds that compare values in a way that a nested one has no answer to.
REFUSED = {("list", "struct", "map"): {"minimum", "maximum", "by", "distinct", "top by"}, ("map",): {"distinct_exact"}}


def is_refused(name: str, kind: str) -> bool:
    return any(name in folds and any(f"{shape}<" in kind for shape in shapes) for shapes, folds in REFUSED.items())


TAKEN = [(name, kind) for name in FOLDS for kind in TYPES if not is_refused(name, kind)]


@pytest.mark.parametrize(("name", "kind"), TAKEN)
def test_a_fold_takes_values_of_every_type(name: str, kind: str) -> None:
    make, expected = FOLDS[name]
    bucket = bucket_of(make(), kind)
    fill(bucket, TYPES[kind])
    assert bits(bucket.values()) == bits(expected(TYPES[kind]))


@pytest.mark.parametrize(("name", "kind"), [(n, kind) for n in FOLDS for kind in TYPES if is_refused(n, kind)])
def test_a_fold_refuses_values_that_it_cannot_compare_by_name(name: str, kind: str) -> None:
    with pytest.raises(fh.DefinitionError, match=r"cannot.*name one of"):
        bucket_of(FOLDS[name][0](), kind)


@pytest.mark.parametrize(("name", "kind"), TAKEN)
def test_the_greatest_value_of_every_type_can_be_taken_away_again(name: str, kind: str) -> None:
    make, expected = FOLDS[name]
    bucket = bucket_of(make(), kind)
    fill(bucket, TYPES[kind])
    bucket.take((-1, {"value": TYPES[kind][2], "seq": 2}))
    assert bits(bucket.values()) == bits(expected(TYPES[kind][:2]))


@pytest.mark.parametrize("kind", ["float", "double"])
@pytest.mark.parametrize("name", FOLDS)
def test_zero_is_one_value_and_nan_is_one_value(name: str, kind: str) -> None:
    make, _ = FOLDS[name]
    answers = set()
    for values in ([-0.0, 0.0, NAN, -NAN], [0.0, -NAN, -0.0, NAN], [NAN, -NAN, 0.0, -0.0]):
        for batches in (1, 4):
            bucket = bucket_of(make(), kind)
            for number in range(batches):
                bucket.take(*[(1, {"value": value, "seq": 1}) for value in values[number::batches]])
            answers.add(bits(bucket.values()))
    assert len(answers) == 1


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        ("double", -0.0, 0.0),
        ("float", -0.0, 0.0),
        ("list<double>", [-0.0, None], [0.0, None]),
        ("struct<a: double, b: int>", {"a": -0.0, "b": 1}, {"a": 0.0, "b": 1}),
        ("map<string, double>", {"a": -0.0}, {"a": 0.0}),
        ("list<struct<a: map<string, float>>>", [{"a": {"x": -0.0}}, None], [{"a": {"x": 0.0}}, None]),
        ("list<double>", None, None),
        ("struct<a: double>", None, None),
    ],
)
def test_the_canonical_form_of_a_value_has_no_negative_zero(kind: str, given: Any, expected: Any) -> None:
    frame = pl.from_arrow(pa.table({"value": pa.array([given], arrow_type(kind))}))
    assert isinstance(frame, pl.DataFrame)
    after = frame.select(canonical(pl.col("value"), arrow_type(kind)).alias("value"))
    assert bits(after["value"].to_list()) == bits([expected])
    assert after.schema == frame.schema
