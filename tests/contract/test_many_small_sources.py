"""Rows are picked by their keys from many small files at once, with the same result as file by file."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

import foldhouse as fh
from foldhouse.refresh.rows import choices, logic, values

DAYS, FIRST = 30, date(2024, 1, 1)
orders = fh.stream(
    "shop.orders",
    schema={"order": "long", "part": "string", "day": "date", "customer": "long"},
    keys=["order", "part"],
    partition_by="day",
)
payments = fh.stream(
    "shop.payments",
    schema={"payment": "long", "order": "long", "part": "string", "day": "date", "amount": "long"},
    keys="payment",
    partition_by="day",
)


def _joined(orders: DataFrame, payments: DataFrame) -> DataFrame:
    return orders.drop("day").join(payments.drop("day"), ["order", "part"]).select("customer", "amount")


paid = fh.table(
    "shop.paid",
    source=[orders, payments],
    keys="customer",
    rows=_joined,
    fold=fh.fold(amount=fh.total("amount"), most=fh.maximum("amount"), payments=fh.count()),
)
SQL = """SELECT customer, CAST(sum(amount) AS BIGINT) AS amount, max(amount) AS most, count(*) AS payments
    FROM orders JOIN payments USING ("order", part) WHERE customer IS NOT NULL GROUP BY customer ORDER BY customer"""


def _orders(count: int, first: int = 0) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "order": pa.array([None if number % 23 == 0 else number for number in numbers], pa.int64()),
            "part": [None if number % 19 == 0 else f"part {number % 3}" for number in numbers],
            "day": [FIRST + timedelta(days=number % DAYS) for number in numbers],
            "customer": [number % 17 for number in numbers],
        }
    )


def _payments(count: int, first: int = 0, of: int = 600) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "payment": list(numbers),
            "order": [number * 7 % of for number in numbers],
            "part": [f"part {number * 7 % of % 3}" for number in numbers],
            "day": [FIRST + timedelta(days=number % DAYS) for number in numbers],
            "amount": [number * 13 % 101 for number in numbers],
        }
    )


def _check(lake: fh.Lake) -> None:
    with duckdb.connect() as connection:
        connection.register("orders", lake.to_arrow(orders))
        connection.register("payments", lake.to_arrow(payments))
        wanted = connection.sql(SQL).to_arrow_table().to_pylist()
    assert lake.to_arrow(paid).sort_by("customer").to_pylist() == wanted


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files from which rows are picked one by one."""
    found: list[str] = []
    one_by_one = choices.picked

    def told(layout: Any, ref: Any, *given: Any, **named: Any) -> Any:
        found.append(ref.path)
        return one_by_one(layout, ref, *given, **named)

    monkeypatch.setattr(logic, "picked", told)
    monkeypatch.setattr(values, "picked", told)
    return found


@pytest.mark.parametrize("picked_files", [1, 17, 10**9])
@pytest.mark.parametrize("at_once", [256, 7])
def test_rows_are_picked_from_all_days_of_both_sides(
    spark_lake: Callable[..., fh.Lake],
    opened: list[str],
    monkeypatch: pytest.MonkeyPatch,
    picked_files: int,
    at_once: int,
) -> None:
    monkeypatch.setattr(choices, "TOGETHER", at_once)
    lake = spark_lake(tuning=fh.Tuning(picked_files=picked_files))
    lake.append(orders, _orders(600))
    lake.append(payments, _payments(600))
    lake.refresh(paid)
    opened.clear()
    lake.append(payments, _payments(5, 10_000))
    assert not lake.refresh(paid).full_recompute
    assert bool(opened) == (picked_files == 10**9)
    _check(lake)
    monkeypatch.setattr(choices, "_SMALL_ROWS", 1)  # now no file is small
    opened.clear()
    lake.append(payments, _payments(5, 15_000))
    lake.refresh(paid)
    assert opened
    monkeypatch.undo()
    lake.append(orders, _orders(3, 600))
    lake.append(payments, _payments(9, 20_000, of=603))
    lake.refresh(paid)
    _check(lake)
    lake.replace(payments, _payments(30, 30_000).slice(3, 1), partitions=[FIRST + timedelta(days=3)])
    lake.refresh(paid)
    _check(lake)


def test_small_files_without_rows_are_picked_from(spark_lake: Callable[..., fh.Lake]) -> None:
    lake = spark_lake(tuning=fh.Tuning(picked_files=1))
    lake.append(orders, _orders(600))
    lake.append(payments, _payments(600))
    lake.refresh(paid)
    empty = _payments(30).slice(0, 0)
    lake.replace(payments, empty, partitions=[FIRST + timedelta(days=number) for number in range(DAYS)])
    lake.refresh(paid)
    _check(lake)
    lake.append(orders, _orders(5, 600))
    lake.refresh(paid)
    _check(lake)
