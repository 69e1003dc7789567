"""The tables of the suite `worst`: each with the same table as aggregates of Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

import foldhouse as fh

_TYPES = {
    "day": "date",
    "key": "long",
    "region": "string",
    "moment": "timestamptz",
    "sequence": "long",
    "item": "long",
    "units": "long",
    "amount": "double",
    "price": "decimal(12,2)",
    "label": "string",
}
readings = fh.stream("bench.readings", schema=_TYPES, keys="key", partition_by="day")
versions = fh.stream("bench.versions", schema=_TYPES, keys="key", sequence_by="sequence", partition_by="day")
item_events = fh.stream(
    "bench.item_events",
    schema={"item": "long", "version": "long", "category": "long"},
    keys="item",
    sequence_by="version",
)
items = fh.table("bench.items", source=item_events, fold=fh.latest())
holders = fh.table("bench.holders", source=versions, buckets=2, fold=fh.fold(held=fh.latest("units")))
rates = fh.table("bench.rates", source=versions, keys="amount", fold=fh.fold(rate=fh.latest("units")))


@dataclass(frozen=True)
class Definition:
    """One table, and how Spark computes it.

    Args:
        table: the declaration.
        aggregates: published column -> the aggregate in Spark's SQL.
        exact: the columns that must be equal; the others are estimates or rounded in another order.
    """

    table: fh.Table
    aggregates: dict[str, str]
    exact: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of the table without its namespace."""
        return self.table.name.partition(".")[2]

    @property
    def is_ordered(self) -> bool:
        """Whether the events of the table have a sequence."""
        return versions in self.table.sources

    @property
    def is_joined(self) -> bool:
        """Whether the table of items is a source."""
        return items in self.table.sources

    @property
    def tables_of_versions(self) -> list[fh.Table]:
        """The sources that are folds of `versions`."""
        return [one for one in (holders, rates) if one in self.table.sources]

    def recomputed(self, sources: list[DataFrame]) -> DataFrame:
        """Return the table as a Spark job over all its rows."""
        rows = sources[0] if self.table.rows is None else self.table.rows(*sources)
        aggregates = [F.expr(text).alias(name) for name, text in self.aggregates.items()]
        return rows.groupBy(*self.table.keys).agg(*aggregates)


def _definition(
    name: str,
    columns: dict[str, tuple[fh.ColumnFold, str]],
    *,
    inexact: tuple[str, ...] = (),
    keys: tuple[str, ...] = ("key",),
    partition_by: str | None = None,
    rows: Callable[..., DataFrame] | None = None,
    source: fh.Stream | list[fh.Stream | fh.Table] = readings,
) -> Definition:
    fold = fh.fold(**{column: one for column, (one, _) in columns.items()})
    buckets = 2 if partition_by is None else 1
    table = fh.table(
        f"bench.{name}", source=source, keys=keys, rows=rows, partition_by=partition_by, buckets=buckets, fold=fold
    )
    exact = tuple(column for column in columns if column not in inexact)
    return Definition(table, {column: text for column, (_, text) in columns.items()}, exact)


_COLLECTED = (fh.collect("units"), "sort_array(collect_list(units))")
_TOTALS = {"units": (fh.total("units"), "sum(units)"), "events": (fh.count(), "count(1)")}


def _many_days(readings: DataFrame) -> DataFrame:
    return readings.selectExpr("date_add(DATE'2000-01-01', CAST(key % 3000 AS INT)) AS born", "key", "units")


def _inner(readings: DataFrame, items: DataFrame) -> DataFrame:
    return readings.join(items, "item").select("key", "category", "units")


def _left(readings: DataFrame, items: DataFrame) -> DataFrame:
    return readings.join(items, "item", "left").select("key", "category", "units")


def _semi(readings: DataFrame, items: DataFrame) -> DataFrame:
    return readings.join(items.where("category < 25"), "item", "left_semi")


def _anti(readings: DataFrame, items: DataFrame) -> DataFrame:
    return readings.join(items.where("category < 25"), "item", "left_anti")


def _star(readings: DataFrame, items: DataFrame, holders: DataFrame) -> DataFrame:
    joined = readings.join(items, "item", "left").join(holders, "key", "left")
    return joined.select("key", "category", "units", "held", "label")


def _star_words(readings: DataFrame, items: DataFrame, holders: DataFrame) -> DataFrame:
    return _star(readings, items, holders).withColumn("word", _word())


def _words_star(readings: DataFrame, items: DataFrame, holders: DataFrame) -> DataFrame:
    return _star(readings.withColumn("label", _word()), items, holders)


def _hashed(readings: DataFrame) -> DataFrame:
    return readings.select(F.sha2(F.col("key").cast("string"), 256).alias("who"), "units")


def _by_amount(readings: DataFrame, rates: DataFrame) -> DataFrame:
    return readings.join(rates, "amount", "left").select("key", "rate", "units")


def _everyday(readings: DataFrame) -> DataFrame:
    """Calculations with floats, and functions of texts and times."""
    word = F.concat(F.upper("label"), F.lit("-"), F.year("moment").cast("string"))
    gross = (F.col("amount") * 1.19).alias("gross")
    hour = F.date_trunc("hour", "moment").alias("hour")
    return readings.where("amount >= 0.5D").select("key", gross, word.alias("word"), hour)


def _grouped(readings: DataFrame) -> DataFrame:
    return readings.groupBy("key", "day").agg(F.sum("units").alias("units"))


def _newest(versions: DataFrame) -> DataFrame:
    """The two newest versions of each key, beside the sum of all."""
    key = Window.partitionBy("key")
    place = F.rank().over(key.orderBy(F.col("sequence").desc()))
    placed = versions.withColumn("place", place).withColumn("whole", F.sum("units").over(key))
    return placed.where("place <= 2").select("key", "units", "whole")


def _word() -> Column:
    """A text that only Spark computes."""
    return F.regexp_replace("label", "[0-4]", "x")


def _grouped_words(readings: DataFrame) -> DataFrame:
    return readings.groupBy("key", "day").agg(F.sum("units").alias("units"), F.max(_word()).alias("word"))


def _words_beside_the_greatest(readings: DataFrame) -> DataFrame:
    return _beside_the_greatest(readings.withColumn("units", F.col("units") + F.length(_word())))


def _beside_the_greatest(readings: DataFrame) -> DataFrame:
    """No change of a row can be followed: any of them may change every key."""
    greatest = readings.agg(F.max("units").alias("greatest"))
    return readings.crossJoin(greatest).selectExpr("key", "greatest - units AS units")


_BOTH: list[fh.Stream | fh.Table] = [readings, items]
_STAR: dict[str, tuple[fh.ColumnFold, str]] = {
    **_TOTALS,
    "most": (fh.maximum("category"), "max(category)"),
    "held": (fh.maximum("held"), "max(held)"),
}
_ALL = [
    _definition("totals", _TOTALS),
    _definition(
        "decimals",
        {"price": (fh.total("price"), "sum(price)"), "mean": (fh.average("price"), "avg(price)")},
    ),
    _definition(
        "floats",
        {"amount": (fh.total("amount"), "sum(amount)"), "mean": (fh.average("amount"), "avg(amount)")},
        inexact=("amount", "mean"),
    ),
    _definition("averages", {"mean": (fh.average("units"), "avg(units)")}, inexact=("mean",)),
    _definition(
        "extremes",
        {"most": (fh.maximum("units"), "max(units)"), "least": (fh.minimum("units"), "min(units)")},
    ),
    _definition(
        "extremes_by",
        {"label": (fh.maximum_by("label", "units"), "max(struct(units, label)).label")},
    ),
    _definition(
        "latest",
        {
            "label": (fh.latest("label"), "max_by(label, sequence)"),
            "amount": (fh.latest("amount"), "max_by(amount, sequence)"),
            "moment": (fh.latest("moment"), "max_by(moment, sequence)"),
        },
        source=versions,
    ),
    _definition(
        "whole_rows",
        {
            name: (fh.latest(name), f"max_by({name}, sequence)")
            for name in ("day", "region", "moment", "item", "units", "amount", "price", "label")
        },
        source=versions,
    ),
    _definition("distinct", {"items": (fh.distinct("units"), "approx_count_distinct(units)")}, inexact=("items",)),
    _definition(
        "distinct_text", {"labels": (fh.distinct("label"), "approx_count_distinct(label)")}, inexact=("labels",)
    ),
    _definition("distinct_exact", {"items": (fh.distinct_exact("units"), "count(DISTINCT units)")}),
    _definition("collect", {"units": _COLLECTED}),
    _definition(
        "top",
        {
            "best": (
                fh.top(2, "label", by="units"),
                "slice(array_sort(collect_list(named_struct('label', label, 'units', units)), (a, b) -> "
                "CASE WHEN a.units > b.units THEN -1 WHEN a.units < b.units THEN 1 WHEN a.label < b.label THEN -1 "
                "WHEN a.label > b.label THEN 1 ELSE 0 END), 1, 2)",
            )
        },
        inexact=("best",),
    ),
    _definition("three_keys", _TOTALS, keys=("key", "region", "day")),
    _definition("text_key", _TOTALS, keys=("label", "region")),
    _definition(
        "many_days",
        {**_TOTALS, "most": (fh.maximum("units"), "max(units)")},
        keys=("born", "key"),
        partition_by="born",
        rows=_many_days,
    ),
    _definition("hashed", _TOTALS, keys=("who",), rows=_hashed),
    _definition(
        "computed",
        {"most": (fh.maximum("word"), "max(word)"), "units": (fh.total("units"), "sum(units)")},
        rows=lambda readings: readings.select("key", "units", _word().alias("word")),
    ),
    _definition("hashed_most", {"most": (fh.maximum("units"), "max(units)")}, keys=("who",), rows=_hashed),
    _definition("grouped", {"most": (fh.maximum("units"), "max(units)")}, rows=_grouped),
    _definition("unknown", _TOTALS, rows=_beside_the_greatest),
    _definition(
        "grouped_words",
        {"most": (fh.maximum("units"), "max(units)"), "word": (fh.maximum("word"), "max(word)")},
        rows=_grouped_words,
    ),
    _definition("unknown_words", _TOTALS, rows=_words_beside_the_greatest),
    _definition("hashed_list", {"units": _COLLECTED}, keys=("who",), rows=_hashed),
    _definition("inner", {**_TOTALS, "most": (fh.maximum("category"), "max(category)")}, rows=_inner, source=_BOTH),
    _definition("left", {**_TOTALS, "most": (fh.maximum("category"), "max(category)")}, rows=_left, source=_BOTH),
    _definition("semi", _TOTALS, rows=_semi, source=_BOTH),
    _definition("anti", _TOTALS, rows=_anti, source=_BOTH),
    _definition(
        "by_amount", {**_TOTALS, "rate": (fh.maximum("rate"), "max(rate)")}, rows=_by_amount, source=[readings, rates]
    ),
    _definition(
        "everyday",
        {name: (fh.maximum(name), f"max({name})") for name in ("gross", "word", "hour")},
        rows=_everyday,
    ),
    _definition(
        "newest",
        {"units": (fh.total("units"), "sum(units)"), "whole": (fh.maximum("whole"), "max(whole)")},
        rows=_newest,
        source=versions,
    ),
    _definition("star", _STAR, rows=_star, source=[*_BOTH, holders]),
    _definition(
        "star_words",
        {**_STAR, "word": (fh.maximum("word"), "max(word)")},
        rows=_star_words,
        source=[*_BOTH, holders],
    ),
    _definition(
        "words_star",
        {**_STAR, "label": (fh.maximum("label"), "max(label)")},
        rows=_words_star,
        source=[*_BOTH, holders],
    ),
]
DEFINITIONS = {one.name: one for one in _ALL}
