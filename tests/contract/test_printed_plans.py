"""The text of a plan is read as its JSON is: the same shape, origins, needed columns and checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from laws import several_sources as several
from laws import test_windows_and_nothing as windows
from pyspark.sql import DataFrame, SparkSession, Window, WindowSpec
from pyspark.sql import functions as F

import foldhouse as fh
from foldhouse.errors import DefinitionError
from foldhouse.logic.analysed import analysed
from foldhouse.logic.asked_order import check_order
from foldhouse.logic.decided import Identity
from foldhouse.logic.lineage import computed_from
from foldhouse.logic.needed import needed_columns
from foldhouse.logic.plan import Node, source_name
from foldhouse.logic.plan_text import analysed_plan
from foldhouse.logic.printed import plan_from_text
from foldhouse.logic.repeatable import check_repeatable
from foldhouse.logic.shape import origins_of, shape_of

pytestmark = [pytest.mark.spark, pytest.mark.classic]
EVENTS = "k string, n long, t timestamp, d date, l array<long>, s struct<u: string, v: long>"
PRICES = "k string, price decimal(12,2), t timestamp"


def ordered(*further: str) -> WindowSpec:
    return Window.partitionBy("k").orderBy("t", *further)


WHOLE = ("n", "d", "l", "s")

ONE: dict[str, Callable[[DataFrame], DataFrame]] = {
    "copied": lambda e: e.select("k", F.col("n").alias("m"), F.to_date("t").alias("day"), F.col("t").cast("date")),
    "computed": lambda e: e.withColumn("n", F.col("n") + 1).where("n > 1 AND k = 'x, [y] (z)'")[["k", "n"]],
    "structs": lambda e: e.select("k", "s.*", F.struct("n", "d").alias("p"), F.col("l")[0]),
    "a function": lambda e: e.select("k", F.udf(lambda n: n, "long")("n"), F.udf(lambda: 1, "int")().alias("c")),
    "exploded": lambda e: e.select("k", F.posexplode_outer("l").alias("at", "x")),
    "groups": lambda e: e.groupBy("k", F.col("n") + 1).agg(F.sum("n"), F.max("t").alias("t")),
    "one group": lambda e: e.agg(F.sum("n"), F.first("k")),
    "once": lambda e: e.select("d", "k", "n").distinct(),
    "any of a key": lambda e: e.dropDuplicates(["k"]),
    "a rank": lambda e: e.withColumn("r", F.rank().over(ordered())).withColumn("m", F.max("n").over(ordered())),
    "rows before": lambda e: e.withColumn("m", F.max("n").over(ordered().rowsBetween(-1, 0))),
    "the one before": lambda e: e.withColumn("b", F.lag("n").over(ordered())),
    "the one before, in order": lambda e: e.withColumn("b", F.lag("n").over(ordered(*WHOLE))),
    "numbered": lambda e: e.withColumn("b", F.row_number().over(ordered(*WHOLE))).where("b = 1"),
    "all in one window": lambda e: e.withColumn("m", F.max("n").over(Window.partitionBy())),
    "ordered alone": lambda e: e.withColumn("m", F.max("n").over(Window.orderBy("t"))),
    "with itself": lambda e: e.join(e.select(F.col("k").alias("o"), F.col("n").alias("m")), F.col("k") == F.col("o")),
    "with itself by aliases": lambda e: e.alias("a").join(e.alias("b"), F.expr("a.k = b.k AND a.n < b.n"))[["a.k"]],
    "stacked": lambda e: e.select("k", "n").union(e.select("k", F.lit(1).cast("long"))).union(e.select("k", "n")),
    "sorted": lambda e: e.sort("k").repartition(3, "k").select("k", F.sort_array("l")),
}
TWO: dict[str, Callable[[DataFrame, DataFrame], DataFrame]] = {
    **{how: lambda e, p, how=how: e.drop("t").join(p, "k", how) for how in ("inner", "left", "right", "full", "semi")},
    "anti": lambda e, p: e.join(F.broadcast(p), "k", "left_anti"),
    "cross": lambda e, p: e.crossJoin(p.select("price")),
    "on two": lambda e, p: e.join(p, (e["k"] == p["k"]) & (e["t"] == p["t"])).select(e["k"], p["price"]),
    "on a range": lambda e, p: e.join(p, (e["k"] == p["k"]) & (e["t"] < p["t"])).select(e["k"], p["price"]),
    "on either": lambda e, p: e.join(p, (e["k"] == p["k"]) | (e["t"] == p["t"])).select(e["k"], p["price"]),
    "on both or neither": lambda e, p: e.join(p, (e["k"] == p["k"]) == (e["t"] == p["t"])).select(e["k"]),
    "on neither": lambda e, p: e.join(p, ~((e["k"] == p["k"]) & (e["t"] == p["t"]))).select(e["k"]),
    "on casts": lambda e, p: e.join(p, e["n"] == p["k"]).select(e["k"]),
    "on nulls too": lambda e, p: e.join(p, e["k"].eqNullSafe(p["k"])).select(e["k"]),
    "on text": lambda e, p: e.join(p, F.concat(e["k"], F.lit(" AND ")) == p["k"]).select(e["k"]),
    "grouped first": lambda e, p: e.join(p.groupBy("k").agg(F.sum("price").alias("paid")), "k", "left"),
    "grouped later": lambda e, p: e.join(p.drop("t"), "k").groupBy("k", "d").agg(F.max("price")),
    "grouped by another": lambda e, p: e.join(p.groupBy("t").agg(F.max("k").alias("k")).drop("t"), "k"),
    "stacked": lambda e, p: e.select("k", F.col("n").cast("string").alias("v")).union(p.selectExpr("k", "price")),
}


def _plans(rows: DataFrame) -> tuple[Node, Node]:
    types: dict[int, dict[str, str]] = {}
    plan = analysed(rows)
    for node in plan.walk():
        if node.place is not None:
            types[node.place] = {one.name: one.type for one in node.children[0].of("output")}
    printed = plan_from_text(analysed_plan(rows), types)
    assert printed is not None
    return plan, printed


def _found(plan: Node, rows: DataFrame, inputs: Sequence[Sequence[str]]) -> object:
    shape = shape_of(plan, len(inputs))
    columns = needed_columns(plan, inputs) if shape.is_known else ()
    return shape, origins_of(plan, rows.columns), columns


def _check(made: Callable[..., DataFrame], sources: Sequence[DataFrame]) -> Node:
    rows = made(*[one.alias(source_name(place)) for place, one in enumerate(sources)])
    rows = rows.select(*[rows[f"`{name}`"] for name in dict.fromkeys(rows.columns)])
    plan, printed = _plans(rows)
    inputs = [one.columns for one in sources]
    assert _found(printed, rows, inputs) == _found(plan, rows, inputs)
    lineage = zip(computed_from(printed), computed_from(plan), strict=True)
    # The text does not say what a function in Python reads.
    assert all(said == known or said is None for said, known in lineage)
    assert [node.kind for node in printed.walk()] == [node.kind for node in plan.walk()]
    return printed


@pytest.fixture(scope="module")
def events(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([], EVENTS)


@pytest.mark.parametrize("what", ONE)
def test_logic_over_one_source_is_read_the_same(events: DataFrame, what: str) -> None:
    _check(ONE[what], [events])


@pytest.mark.parametrize("what", TWO)
def test_logic_over_two_sources_is_read_the_same(spark: SparkSession, events: DataFrame, what: str) -> None:
    _check(TWO[what], [events, spark.createDataFrame([], PRICES)])


LAWS = {
    name: case.table
    for name, case in [*several.CASES.items(), *((one.table.name, one) for one in windows.CASES)]
    if case.table.rows is not None and name not in ("odd.with_a_row", "odd.everything")  # these have rows of the client
}


@pytest.mark.parametrize("name", LAWS)
def test_the_tables_of_the_laws_are_read_the_same(spark: SparkSession, name: str) -> None:
    table = LAWS[name]
    assert table.rows is not None
    _check(table.rows, [spark.createDataFrame([], _schema(source)) for source in table.sources])


def _schema(source: fh.Stream | fh.Table) -> str:
    below = source if isinstance(source, fh.Stream) else source.sources[0]
    assert isinstance(below, fh.Stream)
    known = dict(below.schema)
    names = known if isinstance(source, fh.Stream) else [*source.keys, *source.fold.columns]
    return ", ".join(f"{name} {known[name]}" for name in names)


def _is_refused(check: Callable[[Node, Sequence[Identity]], None], plan: Node, identity: Identity) -> bool:
    try:
        check(plan, [identity])
    except DefinitionError:
        return True
    return False


@pytest.mark.parametrize("what", [*(name for name in ONE if name != "one group"), "odd.steps", "odd.ranked"])
@pytest.mark.parametrize("identity", [Identity(), Identity(("k", "t")), Identity(("k", "t"), may_be_null=True)])
def test_the_same_orders_are_refused(spark: SparkSession, events: DataFrame, what: str, identity: Identity) -> None:
    made = ONE.get(what) or LAWS[what].rows
    assert made is not None
    given = events if what in ONE else spark.createDataFrame([], _schema(windows.events))
    plan, printed = _plans(made(given.alias(source_name(0))))
    assert _is_refused(check_order, printed, identity) == _is_refused(check_repeatable, plan, identity)
