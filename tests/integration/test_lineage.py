"""The source columns of each column, read from Spark's plan: complete, or not said at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

import foldhouse as fh
from assets import retail, shop, wallet

pytestmark = pytest.mark.spark

events = fh.stream(
    "n.events",
    schema={"k": "string", "at": "long", "n": "long", "m": "long", "l": "list<long>", "s": "struct<u: long, v: long>"},
    keys="k",
    sequence_by="at",
)
prices = fh.stream("n.prices", schema={"k": "string", "price": "long", "n": "long"}, keys="k")


def says(lake: fh.Lake, table: fh.Table) -> dict[str, str]:
    return {
        name: " ".join(f"{source.rpartition('.')[2]}.{column}" for source, column in of)
        for name, of in lake.computed_from(table).items()
    }


def create(lake: fh.Lake, *streams: fh.Stream) -> None:
    for stream in streams:
        lake.append(stream, [])


@pytest.fixture
def given(spark_lake: Any) -> fh.Lake:
    lake: fh.Lake = spark_lake()
    for stream in (events, prices):
        lake.append(stream, [dict.fromkeys(dict(stream.schema))])
    return lake


ONE: dict[str, tuple[Callable[[DataFrame], DataFrame], str | None]] = {
    "a copy": (lambda e: e, "events.n"),
    "computed": (lambda e: e.withColumn("n", F.expr("n * m + size(l)")), "events.n events.m events.l"),
    "a filter decides no value": (lambda e: e.where("m > 1 AND at > 2"), "events.n"),
    "a field": (lambda e: e.withColumn("n", F.col("s.u")), "events.s"),
    "a constant": (lambda e: e.withColumn("n", F.lit(1).cast("long")), ""),
    "exploded": (lambda e: e.withColumn("n", F.explode("l")), "events.l"),
    "a function of lists": (
        lambda e: e.withColumn("n", F.expr("aggregate(l, 0L, (a, b) -> a + m)")),
        "events.m events.l",
    ),
    "a function in Python": (lambda e: e.withColumn("n", F.udf(lambda n: n, "long")("m")), "events.m"),
    "grouped": (lambda e: e.groupBy("k", "at").agg(F.sum(F.col("n") + F.col("m")).alias("n")), "events.n events.m"),
    "a window": (lambda e: e.withColumn("n", F.max("m").over(Window.partitionBy("k"))), "events.k events.m"),
    "numbered": (
        lambda e: e.withColumn("n", F.expr("row_number() OVER (PARTITION BY k ORDER BY at, n, m, l, s)").cast("long")),
        "events.k events.at events.n events.m events.l events.s",
    ),
    "stacked": (
        lambda e: e[["k", "at", "n"]].union(e.select("k", "at", F.col("m") + F.size("l"))),
        "events.n events.m events.l",
    ),
    "with itself": (
        lambda e: e.drop("n").join(e.select("k", F.col("m").alias("n")).groupBy("k").agg(F.max("n").alias("n")), "k"),
        "events.m",
    ),
    "renamed twice": (
        lambda e: (
            e.select("k", "at", F.col("m").alias("n"))
            .select("k", "at", F.col("n").alias("x"))
            .withColumnRenamed("x", "n")
        ),
        "events.m",
    ),
    "stacked by name": (lambda e: e[["k", "at", "n"]].unionByName(e.select("n", "at", "k")), "events.n"),
    "turned": (lambda e: e.unpivot(["k", "at"], ["n", "m"], "what", "n"), None),
    "cubes": (lambda e: e.cube("k", "at").agg(F.max("n").alias("n")).where("k IS NOT NULL AND at IS NOT NULL"), None),
    "rows in Python": (
        lambda e: e[["k", "at", "n"]].mapInArrow(lambda batches: batches, "k string, at long, n long"),
        None,
    ),
}


CLASSIC = {"a function of lists", "a function in Python", "turned", "cubes", "rows in Python"}
"""Nothing is said of these over Spark Connect."""


@pytest.mark.parametrize("what", [pytest.param(what, marks=[pytest.mark.classic] * (what in CLASSIC)) for what in ONE])
def test_a_value_comes_from_the_columns_in_the_plan_or_nothing_is_said(given: fh.Lake, what: str) -> None:
    rows, expected = ONE[what]
    table = fh.table("n.table", source=events, rows=rows, keys="k", fold=fh.fold(n=fh.maximum("n"), rows=fh.count()))
    found = says(given, table)
    assert found.get("n") == expected
    assert found["rows"] == ""


def test_a_sequence_decides_no_value(given: fh.Lake) -> None:
    table = fh.table("n.table", source=events, fold=fh.fold(n=fh.latest("n + m"), x=fh.total("m")))
    assert says(given, table) == {"k": "events.k", "n": "events.n events.m", "x": "events.m"}
    whole = fh.table("n.table", source=events, rows=lambda e: e[["k", "at", "n"]], fold=fh.latest())
    assert says(given, whole) == {"k": "events.k", "at": "events.at", "n": "events.n"}


def test_columns_of_a_join_come_from_their_own_side(given: fh.Lake) -> None:
    def priced(events: DataFrame, prices: DataFrame) -> DataFrame:
        return events.join(prices.withColumnRenamed("n", "x"), "k", "left").withColumn("both", F.expr("n * price"))

    folded = fh.fold(n=fh.total("n"), x=fh.total("x"), both=fh.total("both"))
    table = fh.table("n.table", source=[events, prices], rows=priced, keys="k", fold=folded)
    assert says(given, table) == {
        "k": "events.k",
        "n": "events.n",
        "x": "prices.n",
        "both": "events.n prices.price",
    }
    full = fh.table(
        "n.table",
        source=[events, prices],
        rows=lambda e, p: e.drop("n").join(p, "k", "full"),
        keys="k",
        fold=fh.fold(n=fh.total("n")),
    )
    assert says(given, full) == {"k": "events.k prices.k", "n": "prices.n"}


@pytest.mark.classic  # nothing is said of literal rows over Connect
def test_a_literal_row_has_no_source(given: fh.Lake) -> None:
    def rated(events: DataFrame) -> DataFrame:
        rates = events.sparkSession.createDataFrame([("a", 2)], "k string, rate long")
        return events.join(rates, "k")

    table = fh.table(
        "n.table", source=events, rows=rated, keys="k", fold=fh.fold(n=fh.total("n"), rate=fh.maximum("rate"))
    )
    assert says(given, table) == {"k": "events.k", "n": "events.n"}


def test_the_shop_and_the_retailer_say_where_their_columns_come_from(spark_lake: Any) -> None:
    lake: fh.Lake = spark_lake()
    for stream in (shop.order_events, shop.payments, retail.sales, wallet.movements):
        lake.append(stream, [dict.fromkeys(dict(stream.schema))])
    lake.refresh(shop.orders)
    assert says(lake, shop.revenue_by_day) == {
        "day": "orders.ordered_at",
        "country": "orders.country",
        "revenue": "orders.amount orders.refunded",
        "refunded": "orders.refunded",
        "orders": "",
        "customers": "orders.customer_id",
    }
    assert says(lake, shop.order_payments) == {
        "order_id": "orders.order_id",
        "status": "orders.status",
        "amount": "orders.amount",
        "paid": "payments.amount",
        "payments": "payments.payment_id",
        "last_paid_at": "payments.paid_at",
    }
    assert says(lake, retail.daily_revenue)["revenue"] == "sales.quantity sales.unit_price"
    assert says(lake, retail.daily_revenue)["day"] == "sales.invoiced_at"
    assert says(lake, wallet.balances)["moved"] == "movements.amount"
