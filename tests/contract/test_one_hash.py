"""A declaration has one hash, in a classic session and over Spark Connect: both runs compare with the same text.

The hashes are those of tables that exist. A change of one of them requires a rebuild of every such table.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

import foldhouse as fh
from foldhouse.logic.compiled import Compiled, compile_table
from foldhouse.storage.schema import Layout, schema_of_types

pytestmark = pytest.mark.spark

EVENT_TYPES = {"k": "string", "n": "long", "b": "int", "p": "decimal(12,2)", "x": "double", "t": "timestamp"}
EVENT_TYPES |= {"d": "date", "l": "list<long>", "m": "map<string, long>", "s": "struct<u: string, v: long>"}
PRICE_TYPES = {"k": "string", "price": "decimal(12,2)", "t": "timestamp"}
events = fh.stream("h.events", schema=EVENT_TYPES, keys="k", sequence_by="t")
prices = fh.stream("h.prices", schema=PRICE_TYPES, keys="k", sequence_by="t")
COLUMNS = ["k", "n", "t"]


def with_a_function(e: DataFrame) -> DataFrame:
    return e.withColumn("n", F.udf(lambda n: None if n is None else 2 * n, "long")("n"))


def with_a_window(e: DataFrame) -> DataFrame:
    return e.select("k", "t", F.max("n").over(Window.partitionBy("k").orderBy("t")).alias("n"))


def same(batches: Any) -> Any:
    yield from batches


def literals() -> list[Column]:
    given = [1, 2**40, 1.5, "it's #1 [a], b", True, None, date(2024, 1, 2), datetime(2024, 1, 2, 3), Decimal("1.50")]
    return [F.lit(one).alias(f"v{at}") for at, one in enumerate([*given, b"ab", [1, 2]])]


def joined_to_rows(e: DataFrame) -> DataFrame:
    return e.join(e.sparkSession.createDataFrame([("a", 1), ("b", 2)], "k string, rate int"), "k")


ROWS: dict[str, tuple[Callable[[DataFrame], DataFrame], str]] = {
    "a filter as text": (lambda e: e.where("n > 5 AND k <> 'x'"), "9c9bfdc29e06a1a2"),
    "a filter": (lambda e: e.where((F.col("n") > 5) & F.col("k").isin("x", "y")), "9fc33ec7ee03a109"),
    "columns": (
        lambda e: e.withColumn("day", F.to_date("t")).withColumns({"u": F.upper("k"), "n": F.col("n") + 1}),
        "83d36994bd7f46bc",
    ),
    "renamed": (lambda e: e.withColumnRenamed("n", "m2").withColumnRenamed("m2", "n").drop("l"), "26e6057491eb4c7f"),
    "text": (
        lambda e: e.selectExpr("k", "CASE WHEN n > 1 THEN n ELSE 0 END AS n", "t", "s.u || '-' AS u"),
        "3c562f5a9582c103",
    ),
    "literals": (lambda e: e.select(*COLUMNS, *literals()), "59f23f54f94ed427"),
    "lambdas": (
        lambda e: e.withColumn("l", F.transform("l", lambda n: F.size(F.filter("l", lambda o: o > n)))),
        "6c4abf23890df085",
    ),
    "nested": (
        lambda e: e.select(*COLUMNS, F.col("s")["v"], F.explode_outer("m").alias("name", "value")),
        "897d7f2d46932d8d",
    ),
    "casts": (
        lambda e: e.select("k", F.col("b").cast("long").alias("n"), F.col("k").try_cast("date").alias("day"), "t"),
        "a0c1650d7f015385",
    ),
    "grouped": (
        lambda e: e.groupBy("k").agg(F.sum("n").alias("n"), F.max("t").alias("t"), F.count("*")),
        "8c03203ea9b15915",
    ),
    "a window": (with_a_window, "a7bba876ea78ca4d"),
    "a union": (lambda e: e.unionByName(e.where("n < 0")), "776c63333df71d4f"),
    "a function": (with_a_function, "a62e8201b0646e6d"),
    "Arrow": (lambda e: e.select("k", "n", "t").mapInArrow(same, "k string, n long, t timestamp"), "7285a9f6636be24c"),
    "rows of its own": (joined_to_rows, "e6b924985765bb26"),
    "a range": (lambda e: e.join(e.sparkSession.range(5).withColumnRenamed("id", "n"), "n"), "c47df65c2a51dc4b"),
    "filled": (lambda e: e.fillna({"n": 0, "k": "?"}).dropna(subset=["t"]), "d3349a6f017338b4"),
    "distinct": (lambda e: e.select("k", "n", "t").distinct(), "c1954b3831f11a9c"),
}
JOINS: dict[str, tuple[Callable[[DataFrame, DataFrame], DataFrame], str]] = {
    "by name": (lambda e, p: e.drop("t").join(p, "k"), "bef41a030230a505"),
    "left": (lambda e, p: e.join(p.drop("t"), "k", "left"), "a3d05070146b79b8"),
    "by columns": (lambda e, p: e.join(p, e["k"] == p["k"]).select(e["k"], e["n"], p["t"]), "51b51b934adc1e49"),
    "semi": (lambda e, p: e.join(F.broadcast(p), "k", "left_semi"), "38500d405263060a"),
    "aliases": (
        lambda e, p: e.alias("a").join(p.alias("z"), F.expr("a.k = z.k")).select("a.k", "a.n", "z.t"),
        "1de14df95cd27fae",
    ),
}
ARGUMENTS: dict[str, tuple[fh.Fold, str]] = {
    "delete_when": (fh.latest(columns=["n"], delete_when=lambda: F.col("n") < 0), "4abc4f0841d71925"),
    "delete_when as text": (fh.latest(columns=["n"], delete_when="n < 0 OR k = 'gone'"), "7c577d70d1c261e5"),
    "expressions": (fh.fold(a=fh.total("n * 2"), b=fh.maximum(lambda: F.upper("k")), c=fh.count()), "d82f02c644ac1f1a"),
}


def layout(types: dict[str, str]) -> Layout:
    return Layout(schema_of_types(types).model_dump_json(), '{"spec-id": 0, "fields": []}', "file:///nowhere", (), ())


def compiled(spark: SparkSession, table: fh.Table) -> Compiled:
    given = [layout(EVENT_TYPES if source.name == "h.events" else PRICE_TYPES) for source in table.sources]
    return compile_table(table, given, lambda: spark)


def check(spark: SparkSession, what: str, table: fh.Table, expected: str) -> None:
    found = compiled(spark, table).definition_hash
    assert found == expected, what
    assert compiled(spark, table).definition_hash == found, "another compilation"


@pytest.mark.parametrize("what", ROWS)
def test_rows_have_one_hash(spark: SparkSession, what: str) -> None:
    rows, expected = ROWS[what]
    fold = fh.fold(n=fh.total("n"), most=fh.maximum("t"))
    check(spark, what, fh.table("h.t", source=events, rows=rows, fold=fold, sequence_by=[]), expected)


@pytest.mark.parametrize("what", JOINS)
def test_joins_have_one_hash(spark: SparkSession, what: str) -> None:
    rows, expected = JOINS[what]
    table = fh.table("h.j", source=[events, prices], rows=rows, keys="k", fold=fh.fold(n=fh.total("n")))
    check(spark, what, table, expected)


@pytest.mark.parametrize("what", ARGUMENTS)
def test_arguments_of_a_fold_have_one_hash(spark: SparkSession, what: str) -> None:
    fold, expected = ARGUMENTS[what]
    check(spark, what, fh.table("h.a", source=events, fold=fold), expected)
