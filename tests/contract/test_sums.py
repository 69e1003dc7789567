"""Deltas that Spark adds up before it hands rows over are the kernel's own, to the last digit."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import foldhouse as fh
from foldhouse.kernel.combine import FILE, ROW_POSITION, combine_summed, summed
from foldhouse.kernel.deltas import SUMMED
from foldhouse.kernel.plan import WEIGHT, FoldPlan, arguments_of, plan_of, polars_type
from foldhouse.refresh.rows.sums import are_collated, can_be_summed, read_sums, summed_on_spark
from foldhouse.spark.source import frame_of_arrow

VALUES: dict[str, tuple[pa.DataType, Sequence[Any]]] = {
    "b": (pa.bool_(), (None, True, False)),
    "y": (pa.int8(), (None, 0, 127, -128)),
    "h": (pa.int16(), (None, 0, 2**15 - 1, -(2**15))),
    "i": (pa.int32(), (None, 0, 7, 2**31 - 1, -(2**31))),
    "l": (pa.int64(), (None, 0, -1, 7, 2**31, 2**32, -(2**32) - 1, 2**60, -(2**60))),
    "m": (pa.decimal128(12, 2), (None, Decimal("0.00"), Decimal("-0.01"), Decimal("9999999999.99"))),
    "n": (pa.decimal128(28, 10), (None, Decimal("0"), Decimal("999999999999999999.9999999999"))),
    "w": (pa.decimal128(38, 10), (None, Decimal("0"), Decimal("9999999999999999999999999999.9999999999"))),
    "s": (pa.string(), (None, "", "a", "A", "a ", "é", "\U0001f600", "￿", "\x00")),
    "d": (pa.date32(), (None, date(1, 1, 1), date(1970, 1, 1), date(9999, 12, 31))),
    "t": (pa.timestamp("us", "UTC"), (None, datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC))),
    "u": (pa.timestamp("us"), (None, datetime(1582, 10, 10), datetime(2024, 3, 1))),
    "x": (pa.float64(), (None, 0.0, -0.0, float("nan"), float("inf"), float("-inf"), 1.5, 5e-324)),
    "f": (pa.float32(), (None, 0.0, -0.0, float("nan"), 1.5)),
    "a": (pa.list_(pa.int32()), (None, [], [1, None])),
    "e": (pa.binary(), (None, b"", b"\xff", b"a")),
}
EXACT = [
    *(fh.total(name) for name in "yhilmn"),
    *(fh.average(name) for name in "yhilmn"),
    *(fh.count(name) for name in ("b", "x", "a", "s")),
    *(make(name) for name in "byhilmnwsdtuxf" for make in (fh.minimum, fh.maximum)),
    *(make(one, by) for one, by in ("si", "is", "dm", "bt", "wu", "ld") for make in (fh.minimum_by, fh.maximum_by)),
    fh.count(),
]
NOT_EXACT = [
    *(make("x") for make in (fh.total, fh.average, fh.distinct, fh.collect)),
    *(make("i") for make in (fh.distinct, fh.distinct_exact, fh.collect)),
    fh.total("w"),
    fh.minimum("e"),
    fh.maximum_by("a", "i"),
    fh.maximum_by("x", "i"),
    fh.maximum_by("i", "x"),
    fh.top(2, "s", by="i"),
]


def compiled(columns: Mapping[str, fh.ColumnFold], keys: Sequence[str], sequence: Sequence[str] = ()) -> FoldPlan:
    fold = fh.fold(**columns)
    types = [VALUES[str(one)][0] for one in arguments_of(fold)]
    return plan_of(fold, {f"key.{name}": VALUES[name][0] for name in keys}, {n: VALUES[n][0] for n in sequence}, types)


def rows_of(
    plan: FoldPlan, columns: Mapping[str, fh.ColumnFold], keys: Sequence[str], rows: int, seed: int
) -> pa.Table:
    """Added rows with the columns of a plan, of few keys."""
    chance = random.Random(seed)
    names = [*keys, *map(str, arguments_of(fh.fold(**columns)))]
    values = [[chance.choice(VALUES[name][1]) for _ in range(rows)] for name in names]
    types = [kind for _, kind in plan.keys] + list(plan.argument_types)
    made = {
        field: pa.array(column, kind) for field, column, kind in zip(plan.row_schema.names, values, types, strict=True)
    }
    return pa.table(made)


def stored_after(plan: FoldPlan, sums: pl.DataFrame) -> pl.DataFrame:
    """The rows of a table that was empty, with their state."""
    nothing = {field.name: polars_type(field.type) for field in plan.table_schema}
    state = pl.DataFrame(schema={**nothing, FILE: pl.UInt32, ROW_POSITION: pl.Int64})
    return combine_summed(plan, state, sums).rows.sort(plan.key_names)


@pytest.mark.spark
@pytest.mark.parametrize("keys", [["s"], ["i", "b"], ["d", "t", "u"], ["m", "l"], ["y", "h", "w"]], ids=",".join)
@pytest.mark.parametrize("rows", [400, 1])
def test_spark_adds_up_what_the_kernel_adds_up(spark: SparkSession, keys: list[str], rows: int) -> None:
    columns = {f"out {place}": one for place, one in enumerate(EXACT)}
    plan = compiled(columns, keys)
    assert can_be_summed(plan)
    given = rows_of(plan, columns, keys, rows, seed=rows)
    own = pl.from_arrow(given)
    assert isinstance(own, pl.DataFrame)
    has_key = pl.all_horizontal(pl.col(name).is_not_null() for name in plan.key_names)
    expected = summed(plan, own.filter(has_key).with_columns(pl.lit(1, pl.Int64).alias(WEIGHT)))
    frame = frame_of_arrow(spark, given)
    for name, kind in ((n, k) for n, k in zip(given.column_names, given.schema.types, strict=True)):
        if kind == pa.timestamp("us"):
            frame = frame.withColumn(f"`{name}`" if "." not in name else name, frame[f"`{name}`"].cast("timestamp_ntz"))
    found = read_sums(plan, pl.from_arrow(summed_on_spark(plan, frame).toArrow()))  # type: ignore[arg-type]
    assert dict(found.schema) == {name: expected.schema[name] for name in found.columns}
    assert set(found.columns) == set(expected.columns)
    assert found[SUMMED].sum() == rows, "rows without a key are counted"
    order, found = plan.key_names, found.filter(has_key)
    found, expected = found.sort(order), expected.select(found.columns).sort(order)
    for name in found.columns:
        assert found[name].equals(expected[name], null_equal=True), (name, found[name], expected[name])
    assert stored_after(plan, found).equals(stored_after(plan, expected))
    signs = [pl.col(name).sign() * 0 + 1 / pl.col(name) for name, kind in expected.schema.items() if kind.is_float()]
    assert found.select(signs).equals(expected.select(signs)), "one zero has one sign"


@pytest.mark.parametrize("fold", NOT_EXACT, ids=repr)
def test_a_fold_that_engines_may_see_differently_is_left_to_the_kernel(fold: fh.ColumnFold) -> None:
    assert not can_be_summed(compiled({"out": fold, "n": fh.count()}, ["s"]))


def test_keys_that_engines_may_see_differently_and_ordered_folds_are_left_to_the_kernel() -> None:
    for key in ("x", "f", "e"):
        assert not can_be_summed(compiled({"n": fh.count()}, [key]))
    assert not can_be_summed(compiled({"last": fh.latest("s")}, ["i"], ["l"]))
    assert not can_be_summed(compiled({"n": fh.count()}, ["i"], ["l"]))


@pytest.mark.spark
def test_texts_that_are_collated_are_left_to_the_kernel(spark: SparkSession) -> None:
    rows = spark.createDataFrame([("a",)], "word string")
    assert not are_collated(rows)
    assert are_collated(rows.selectExpr("word collate UTF8_LCASE AS word"))
