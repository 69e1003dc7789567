"""Which rows an order can tell apart: above unions and outer joins, and where the id of an event is null.

A declaration that is accepted here has one answer. One that has several is refused, because a refresh, a rebuild and
another setting would each give one of them.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

import foldhouse as fh
from foldhouse.errors import DefinitionError
from foldhouse.logic.compiled import Compiled, compile_table
from foldhouse.storage.schema import Layout, schema_of_types

pytestmark = [pytest.mark.spark]

TYPES = {"id": "string", "k": "long", "j": "long", "ts": "long"}
ONE = fh.stream("d.one", schema=TYPES, event_id="id")
OTHER = fh.stream("d.other", schema=TYPES, event_id=["id", "j"])
KEPT = fh.table("d.kept", source=ONE, keys="k", fold=fh.fold(j=fh.maximum("j"), ts=fh.maximum("ts")))
Logic = Callable[[DataFrame, DataFrame, DataFrame], DataFrame]


def _first(rows: DataFrame, *order: Column | str) -> DataFrame:
    return rows.withColumn("n", F.row_number().over(Window.partitionBy("k").orderBy(*order))).where("n = 1")


def _labelled(one: DataFrame, other: DataFrame) -> DataFrame:
    return one.select("k", "ts", F.lit("a").alias("from")).union(other.select("k", "ts", F.lit("b").alias("from")))


def _flagged(one: DataFrame, other: DataFrame, how: str) -> DataFrame:
    flags = other.select("j", F.lit(1).alias("flag"), F.coalesce("ts", F.lit(0)).alias("at"))
    return one.select("k", "j").join(flags, "j", how)


REFUSED: dict[str, tuple[Logic, str]] = {
    "the newest of two streams with a label": (
        lambda one, other, kept: _first(_labelled(one, other), F.desc("ts")),
        "from",
    ),
    "any label of a key": (lambda one, other, kept: _labelled(one, other).dropDuplicates(["k", "ts"]), "from"),
    "the label of the greatest": (
        lambda one, other, kept: _labelled(one, other).groupBy("k").agg(F.max_by("from", "ts").alias("from")),
        "max_by",
    ),
    "a copy in the first part only": (
        lambda one, other, kept: (
            one.select("k", F.col("k").alias("w")).union(other.select("k", "j")).dropDuplicates(["k"])
        ),
        "w",
    ),
    "a computed column in both parts, each in its way": (
        lambda one, other, kept: (
            one.select("k", (F.col("k") + 1).alias("w"))
            .union(other.select("k", (F.col("k") + 2).alias("w")))
            .dropDuplicates(["k"])
        ),
        "w",
    ),
    "a literal below a left join": (
        lambda one, other, kept: _flagged(one, other, "left").select("k", "flag").dropDuplicates(["k"]),
        "flag",
    ),
    "a literal below a full join": (
        lambda one, other, kept: _flagged(other, one, "full").select("k", "flag").dropDuplicates(["k"]),
        "flag",
    ),
    "a value that stands for null below a left join": (
        lambda one, other, kept: (
            one.join(other.select("j", "ts", F.coalesce("ts", F.lit(0)).alias("at")), "j", "left")
            .select("k", other["ts"].alias("then"), "at")
            .dropDuplicates(["k", "then"])
        ),
        "at",
    ),
    "an event without an id": (lambda one, other, kept: one.dropDuplicates(["id"]), r'where\("id IS NOT NULL"\)'),
    "an order of events without an id": (
        lambda one, other, kept: _first(one, "ts", "id"),
        r'where\("id IS NOT NULL"\) leaves these out',
    ),
    "an event without a part of its id": (
        lambda one, other, kept: other.where("id IS NOT NULL").dropDuplicates(["id", "j"]),
        "of events without j",
    ),
    "a filter above the window": (
        lambda one, other, kept: _first(one, "ts", "id").where("id IS NOT NULL"),
        "IS NOT NULL",
    ),
    "one of two conditions": (
        lambda one, other, kept: one.where("id IS NOT NULL OR k = 1").dropDuplicates(["id"]),
        "IS NOT NULL",
    ),
    "groups with a null key on both sides of a full join": (
        lambda one, other, kept: (
            one.groupBy("k").agg(F.count("*").alias("n"))
            .join(other.groupBy("j").agg(F.count("*").alias("m")), F.col("k") == F.col("j"), "full")
            .dropDuplicates(["k", "j"])
        ),
        "n",
    ),
    "a column that grouping sets make null": (
        lambda one, other, kept: one.cube("k").agg(F.max_by("k", "ts").alias("last")),
        "max_by",
    ),
}  # fmt: skip
ACCEPTED: dict[str, Logic] = {
    "the newest of two streams, by all columns": lambda one, other, kept: (
        _first(_labelled(one, other), F.desc("ts"), "from")
    ),
    "a label above the union": lambda one, other, kept: (
        one.select("k", "ts").union(other.select("k", "ts")).withColumn("of", F.lit("both")).dropDuplicates(["k", "ts"])
    ),
    "a literal below an inner join": lambda one, other, kept: (
        _flagged(one, other, "inner").select("k", "flag").dropDuplicates(["k"])
    ),
    "a literal above a left join": lambda one, other, kept: (
        one.join(other.select("j"), "j", "left").select("k", F.lit(1).alias("flag")).dropDuplicates(["k"])
    ),
    "a copy below a left join": lambda one, other, kept: (
        one.select("k", "j")
        .join(other.select("j", "ts", F.col("ts").alias("at")), "j", "left")
        .select("k", "ts", "at")
        .dropDuplicates(["k", "ts"])
    ),
    "events with an id": lambda one, other, kept: one.where("id IS NOT NULL").dropDuplicates(["id"]),
    "an order of events with an id": lambda one, other, kept: (
        _first(one.where("id IS NOT NULL AND k > 1"), "ts", "id")
    ),
    "an id that is equal to something": lambda one, other, kept: one.where("id > 'a'").dropDuplicates(["id"]),
    "an id under another name": lambda one, other, kept: (
        one.withColumnRenamed("id", "event").where("event IS NOT NULL").dropDuplicates(["event"])
    ),
    "two ids": lambda one, other, kept: (
        one.where("id IS NOT NULL")
        .join(
            other.where("id IS NOT NULL AND j IS NOT NULL").toDF("second", "k2", "part", "then"),
            F.col("j") == F.col("part"),
            "left",
        )
        .select("id", "second", "part", "then")
        .dropDuplicates(["id", "second", "part"])
    ),
    "the keys of a table": lambda one, other, kept: kept.dropDuplicates(["k"]),
    "the keys of a table on one side of a full join, and all of the other": lambda one, other, kept: (
        kept.join(other.groupBy(other["ts"].alias("o")).agg(F.count("*").alias("m")), F.col("k") == F.col("o"), "full")
        .dropDuplicates(["k", "o"])
    ),
}  # fmt: skip


def _compiled(spark: SparkSession, rows: Logic) -> Compiled:
    sources = [ONE, OTHER, KEPT]

    def logic(one: DataFrame, other: DataFrame, kept: DataFrame) -> DataFrame:
        return rows(one, other, kept).withColumn("key", F.lit(1))

    types = [TYPES, TYPES, {"k": "long", "j": "long", "ts": "long"}]
    layouts = [
        Layout(schema_of_types(one).model_dump_json(), '{"spec-id": 0, "fields": []}', "file:///nowhere", (), ())
        for one in types
    ]
    table = fh.table("d.table", source=sources, rows=logic, keys="key", fold=fh.fold(n=fh.count()))
    return compile_table(table, layouts, lambda: spark)


@pytest.mark.parametrize("what", REFUSED)
def test_an_order_that_leaves_ties_is_refused(spark: SparkSession, what: str) -> None:
    rows, message = REFUSED[what]
    if not hasattr(spark, "_jsparkSession"):  # some of it is refused by its name alone
        message = "."
    with pytest.raises(DefinitionError, match=message):
        _compiled(spark, rows)


@pytest.mark.classic
@pytest.mark.parametrize("what", ACCEPTED)
def test_an_order_that_leaves_none_is_accepted(spark: SparkSession, what: str) -> None:
    _compiled(spark, ACCEPTED[what])
