"""Joins are read as narrowly over Connect as in a classic session, and names that look like a plan are no part of it.

All of it runs in both sessions, and the numbers are the same.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

import foldhouse as fh
from foldhouse.errors import DefinitionError
from foldhouse.logic.compiled import Compiled, compile_table
from foldhouse.logic.shape import Shape
from foldhouse.storage.schema import Layout, schema_of_types

OpenLake = Callable[..., fh.Lake]
pytestmark = pytest.mark.spark

orders = fh.stream("p.orders", schema={"id": "long", "customer": "string", "v": "long"}, keys="id", sequence_by="v")
payments = fh.stream("p.payments", schema={"paid_for": "long", "amount": "long"})
TYPES = {"k": "string", "n": "long", "t": "timestamp"}
left = fh.stream("p.left", schema=TYPES, keys="k", sequence_by="t")
right = fh.stream("p.right", schema={"k": "string", "m": "long"})


def is_remote(spark: SparkSession) -> bool:
    return not hasattr(spark, "_jsparkSession")


def test_a_small_change_into_a_join_evaluates_only_the_rows_that_it_joins(spark_lake: OpenLake) -> None:
    given: list[tuple[DataFrame, DataFrame]] = []

    def joined(orders: DataFrame, payments: DataFrame) -> DataFrame:
        given.append((orders, payments))
        return orders.join(payments, orders["id"] == payments["paid_for"])

    fold = fh.fold(amount=fh.total("amount"), payments=fh.count())
    table = fh.table("p.by_customer", source=[orders, payments], rows=joined, keys="customer", fold=fold)
    lake = spark_lake(tuning=fh.Tuning(direct_rows=0))
    lake.append(orders, [{"id": n, "customer": f"c{n % 100}", "v": 1} for n in range(2000)])
    lake.append(payments, [{"paid_for": n % 2000, "amount": n} for n in range(6000)])
    lake.refresh(table)
    lake.append(payments, [{"paid_for": 7, "amount": 5}])
    given.clear()
    done = lake.refresh(table)
    assert (done.rows_written, done.rows_deleted, done.full_recompute) == (1, 1, False)
    # Before and after the change: one order, its payments, and not the other 1,999 orders.
    assert sorted((ours.count(), theirs.count()) for ours, theirs in given) == [(1, 3), (1, 4)]
    (row,) = [row for row in lake.to_arrow(table).to_pylist() if row["customer"] == "c7"]
    assert row == {"customer": "c7", "amount": sum(range(7, 6000, 100)) + 5, "payments": 61}


def layout(stream: fh.Stream) -> Layout:
    schema = schema_of_types(dict(stream.schema)).model_dump_json()
    return Layout(schema, '{"spec-id": 0, "fields": []}', "file:///nowhere", (), ())


def compiled(spark: SparkSession, rows: Callable[..., DataFrame], *sources: fh.Stream) -> Compiled:
    fold = fh.fold(c=fh.count())
    table = fh.table("p.t", source=list(sources or (left, right)), rows=rows, keys="k", fold=fold)
    return compile_table(table, [layout(one) for one in table.sources], lambda: spark)


def text(sql: str) -> Callable[[DataFrame, DataFrame], DataFrame]:
    return lambda one, other: one.join(other, "k").where(sql)


LIES: dict[str, Callable[[DataFrame, DataFrame], DataFrame]] = {
    "a number in a name": lambda one, other: one.join(other.withColumnRenamed("m", "k#0"), "k"),
    "a number in a literal": lambda one, other: one.join(other, "k").where(F.col("k") != F.lit("5#0")),
    "a line in a literal": lambda one, other: one.join(other, "k").withColumn("x", F.lit("a\n+- Distinct")),
    "a line in SQL": text("k <> 'a\\n+- Distinct'"),
    "an escaped number in SQL": text("k <> 'a\\u00230'"),
    "a bracket in a name": lambda one, other: one.join(other, "k").withColumn("a (b", F.lit(1)),
    "a bracket in SQL": text("k <> '('"),
    "a comment in SQL": text("n > 1 /* ' */ AND m > 2 /* ' */"),
    "a name in backquotes": lambda one, other: one.join(other.withColumnRenamed("m", "a`#1"), "k"),
    "a list in a name": lambda one, other: one.join(other, "k").select("k", F.lit("a, b AS c")),
}


@pytest.mark.parametrize("what", LIES)
def test_a_plan_that_could_be_misread_is_evaluated_in_full(spark: SparkSession, what: str) -> None:
    shape = compiled(spark, LIES[what]).shape
    assert shape == (Shape() if is_remote(spark) else Shape(cells=(("k",), ("k",))))


def test_names_that_are_only_odd_are_understood(spark: SparkSession) -> None:
    def rows(one: DataFrame, other: DataFrame) -> DataFrame:
        other = other.withColumnRenamed("m", "größe in m²").withColumn("a AND b", F.lit("x = (y) [z]"))
        return one.alias("Ä").join(other.alias("SubqueryAlias"), F.expr("`Ä`.k = SubqueryAlias.k")).select("Ä.*")

    assert compiled(spark, rows).shape == Shape(cells=(("k",), ("k",)))


def test_a_source_with_odd_names_is_evaluated_in_full_over_connect(spark: SparkSession) -> None:
    odd = fh.stream("p.odd", schema={"k": "string", "u#1": "long"})
    shape = compiled(spark, lambda one, other: one.join(other, "k"), left, odd).shape
    assert shape.is_known is not is_remote(spark)


def test_a_column_of_the_same_name_is_no_column_of_the_same_source(spark: SparkSession) -> None:
    """`k` is computed on one side, so rows of different `k` can meet."""

    def rows(one: DataFrame, other: DataFrame) -> DataFrame:
        return one.join(other.withColumn("k", F.upper("k")), "k")

    assert compiled(spark, rows).shape == Shape()


def test_rows_of_windows_that_tie_are_refused_and_ordered_ones_are_not(spark: SparkSession) -> None:
    def last_two(*order: str) -> Callable[[DataFrame], DataFrame]:
        window = Window.partitionBy("k").orderBy(*order)
        return lambda one: one.withColumn("n", F.max("n").over(window.rowsBetween(-1, 0)))

    def before(*order: str) -> Callable[[DataFrame], DataFrame]:
        return lambda one: one.withColumn("n", F.lag("n").over(Window.partitionBy("k").orderBy(*order)))

    def in_sql(order: str) -> Callable[[DataFrame], DataFrame]:
        return lambda one: one.selectExpr("k", f"lag(n) OVER (PARTITION BY k ORDER BY {order}) AS n")

    for made in (last_two, before, in_sql):
        with pytest.raises(DefinitionError, match=r"arbitrary answer among rows that tie; order by n"):
            compiled(spark, made("t"), left)
    for rows in (last_two("t", "n"), before("t", "n"), in_sql("t, n")):
        assert compiled(spark, rows, left).shape == Shape(cells=(("k",),))


def test_duplicates_are_dropped_only_by_columns_that_identify_a_row(spark: SparkSession) -> None:
    known = fh.stream("p.known", schema=TYPES, event_id="k")
    fine: Callable[[DataFrame], DataFrame] = lambda one: one.where(F.col("k").isNotNull()).dropDuplicates(["k"])  # noqa: E731
    assert compiled(spark, fine, known).shape == Shape(cells=(("k",),))
    with pytest.raises(DefinitionError, match=r'of events without k: where\("k IS NOT NULL"\)'):
        compiled(spark, lambda one: one.dropDuplicates(["k"]), known)
    with pytest.raises(DefinitionError, match=r"keeps an arbitrary one of the rows that differ in n, t"):
        compiled(spark, lambda one: one.dropDuplicates(["k"]), left)


def test_lists_are_used_only_sorted(spark: SparkSession) -> None:
    def sorted_list(one: DataFrame) -> DataFrame:
        return one.groupBy("k").agg(F.sort_array(F.collect_list("n")).alias("l"))

    assert compiled(spark, sorted_list, left).shape == Shape(cells=(("k",),))
    fine: Any = lambda one: one.groupBy("k").agg(F.expr("sort_array(collect_list(n)) AS l"))  # noqa: E731
    assert compiled(spark, fine, left).shape == Shape(cells=(("k",),))
    for text in ("collect_list(n)", "size(array(collect_list(n)))", "sort_array(array(1)) || collect_list(n)"):
        with pytest.raises(DefinitionError, match="order"):
            compiled(spark, lambda one, text=text: one.groupBy("k").agg(F.expr(f"{text} AS l")), left)


def test_other_logic_with_the_same_plan_is_refused(spark_lake: OpenLake) -> None:
    def declared(rows: Callable[[DataFrame], DataFrame]) -> fh.Table:
        return fh.table("p.same", source=right, rows=rows, keys="k", fold=fh.fold(m=fh.total("m")))

    lake = spark_lake()
    lake.append(right, [{"k": k, "m": 1} for k in ("a", "b", "a,b")])
    before = declared(lambda e: e.where(F.col("k").isin("a,b")))
    after = declared(lambda e: e.where(F.col("k").isin("a", "b")))
    lake.refresh(before)
    lake.append(right, [{"k": k, "m": 1} for k in ("a", "b", "a,b")])
    lake.refresh(before)
    with pytest.raises(fh.DefinitionChanged, match=r"p\.same .*a comma, a bracket.*run `foldhouse rebuild p\.same`"):
        lake.refresh(after)
    assert lake.to_arrow(before).to_pylist() == [{"k": "a,b", "m": 2}]
    lake.rebuild(after)
    lake.append(right, [{"k": "a", "m": 1}])
    lake.refresh(after)
    assert sorted(row["m"] for row in lake.to_arrow(after).to_pylist()) == [2, 3]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("PO #17", "PO #18", id="as the number of a column"),
        pytest.param("#112233", "#445566", id="a colour"),
        pytest.param("a\nb", "a\u2028b", id="ends of lines"),
        pytest.param("a ELSE b", "a ELSE c", id="a word of SQL"),
    ],
)
def test_other_texts_that_a_plan_prints_alike_are_refused(spark_lake: OpenLake, one: str, other: str) -> None:
    def declared(text: str) -> fh.Table:
        rows = functools.partial(lambda e, text: e.where(F.col("k") == text), text=text)
        return fh.table("p.ticket", source=right, rows=rows, keys="k", fold=fh.fold(m=fh.total("m")))

    lake = spark_lake()
    lake.append(right, [{"k": k, "m": 1} for k in (one, other)])
    lake.refresh(declared(one))
    lake.append(right, [{"k": k, "m": 1} for k in (one, other)])
    with pytest.raises(fh.DefinitionChanged):
        lake.refresh(declared(other))
    lake.rebuild(declared(other))
    assert lake.to_arrow(declared(other)).to_pylist() == [{"k": other, "m": 2}]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("nvl(k, null)", "nvl(k, 'null')", id="null and its text"),
        pytest.param("string(CAST(m AS DOUBLE) * 0.1)", "string(CAST(m AS DOUBLE) * 0.1F)", id="a float"),
        pytest.param("string(xxhash64(k, 1))", "string(xxhash64(k, '1'))", id="a number and its text, hashed"),
        pytest.param("string(xxhash64(k, 1))", "string(xxhash64(k, 1L))", id="numbers of two types, hashed"),
        pytest.param("to_json(struct(k, true AS b))", "to_json(struct(k, 'true' AS b))", id="true and its text"),
    ],
)
def test_a_literal_of_another_type_that_a_plan_prints_alike_is_refused(
    spark_lake: OpenLake, one: str, other: str
) -> None:
    def declared(text: str) -> fh.Table:
        rows = functools.partial(lambda e, text: e.withColumn("v", F.expr(text)), text=text)
        return fh.table("p.typed", source=right, rows=rows, keys="k", fold=fh.fold(v=fh.maximum("v")))

    lake = spark_lake()
    lake.append(right, [{"k": "a", "m": 1}])
    lake.refresh(declared(one))
    lake.append(right, [{"k": "b", "m": 1}])
    assert lake.refresh(declared(one)).committed
    lake.append(right, [{"k": "c", "m": 1}])
    for before, after in ((one, other), (other, one)):
        with pytest.raises(fh.DefinitionChanged, match=r"p\.typed .* a type that is not printed"):
            lake.refresh(declared(after))
        lake.rebuild(declared(after))
        lake.append(right, [{"k": before, "m": 1}])


IN_SUBQUERIES = {
    "of IN": "k IN (SELECT col1 FROM VALUES ('a'), ('{}'))",
    "of EXISTS": "EXISTS (SELECT 1 FROM VALUES ('a'), ('{}') AS v(c) WHERE v.c = k)",
    "of a value": "k <= (SELECT max(col1) FROM VALUES ('a'), ('{}'))",
    "of a subquery in a subquery": "k IN (SELECT col1 FROM VALUES ('a'), ('b') WHERE (SELECT '{}') > col1)",
    "of a function": "upper(k) IN (SELECT upper(concat(col1, (SELECT max(col1) FROM VALUES ('{}')))) FROM VALUES (''))",
}


@pytest.mark.classic  # over Connect, subqueries of SQL are refused
@pytest.mark.parametrize("what", IN_SUBQUERIES)
def test_other_rows_of_a_subquery_are_refused(spark_lake: OpenLake, what: str) -> None:
    def declared(other: str) -> fh.Table:
        rows = functools.partial(lambda e, text: e.where(text), text=IN_SUBQUERIES[what].format(other))
        return fh.table("p.within", source=right, rows=rows, keys="k", fold=fh.fold(m=fh.total("m")))

    lake = spark_lake()
    lake.append(right, [{"k": k, "m": 1} for k in ("a", "b", "c")])
    lake.refresh(declared("b"))
    assert not lake.refresh(declared("b")).committed
    lake.append(right, [{"k": k, "m": 1} for k in ("a", "b", "c")])
    with pytest.raises(fh.DefinitionChanged):
        lake.refresh(declared("c"))


@pytest.mark.classic  # over Connect, `lag` of SQL is refused with it
def test_a_window_that_ignores_nulls_from_now_on_is_refused(spark_lake: OpenLake) -> None:
    def declared(nulls: str) -> fh.Table:
        lag = f"lag(nullif(m, 2)) {nulls} OVER (PARTITION BY k ORDER BY m) AS v"
        rows = functools.partial(lambda e, lag: e.selectExpr("k", "m", lag), lag=lag)
        return fh.table("p.lag", source=numbers, rows=rows, keys="k", fold=fh.fold(v=fh.total("v")))

    numbers = fh.stream("p.numbers", schema={"k": "string", "m": "long"}, event_id=["k", "m"])
    lake = spark_lake()
    lake.append(numbers, [{"k": k, "m": m} for k in ("a", "b") for m in (1, 2, 3)])
    lake.refresh(declared(""))
    lake.append(numbers, [{"k": "a", "m": 4}])
    with pytest.raises(fh.DefinitionChanged, match=r"p\.lag .* ignores nulls.* run `foldhouse rebuild p\.lag`"):
        lake.refresh(declared("IGNORE NULLS"))
    lake.rebuild(declared("IGNORE NULLS"))
    with pytest.raises(fh.DefinitionChanged):
        lake.refresh(declared(""))


def test_a_column_that_folds_another_one_of_the_same_functions_is_refused(spark_lake: OpenLake) -> None:
    def bought() -> Any:
        return F.col("bought") * 1

    def sold() -> Any:
        return F.col("sold") * 1

    def declared(third: Callable[[], Any]) -> fh.Table:
        fold = fh.fold(bought=fh.total(bought), sold=fh.total(sold), most=fh.maximum(third))
        return fh.table("p.traded", source=trades, keys="k", fold=fold)

    trades = fh.stream("p.trades", schema={"k": "string", "bought": "long", "sold": "long"})
    lake = spark_lake()
    lake.append(trades, [{"k": k, "bought": 1, "sold": 100} for k in ("a", "b")])
    lake.refresh(declared(bought))
    lake.append(trades, [{"k": "a", "bought": 2, "sold": 200}])
    assert lake.refresh(declared(bought)).committed
    lake.append(trades, [{"k": "a", "bought": 3, "sold": 300}])
    with pytest.raises(fh.DefinitionChanged, match=r"p\.traded .*one function into several columns"):
        lake.refresh(declared(sold))
    lake.rebuild(declared(sold))
    assert sorted(row["most"] for row in lake.to_arrow(declared(sold)).to_pylist()) == [100, 300]


def test_a_column_with_another_number_in_its_name_is_refused(spark_lake: OpenLake) -> None:
    prices = fh.stream("p.prices", schema={"k": "string", "price #1": "long", "price #2": "long"})

    def declared(name: str) -> fh.Table:
        return fh.table(
            "p.price",
            source=prices,
            rows=lambda e: e.select("k", F.col(f"`{name}`").alias("m")),
            keys="k",
            fold=fh.fold(m=fh.total("m")),
        )

    lake = spark_lake()
    lake.append(prices, [{"k": "a", "price #1": 1, "price #2": 100}])
    lake.refresh(declared("price #1"))
    lake.append(prices, [{"k": "a", "price #1": 1, "price #2": 100}])
    with pytest.raises(fh.DefinitionChanged):
        lake.refresh(declared("price #2"))


def test_a_number_after_a_sign_that_changes_at_each_call_is_refused(spark_lake: OpenLake) -> None:
    calls = itertools.count()

    def rows(events: DataFrame) -> DataFrame:
        return events.withColumn("m", F.lit(f"run #{next(calls)}"))

    lake = spark_lake()
    lake.append(right, [{"k": "a", "m": 1}])
    with pytest.raises(fh.DefinitionError, match="the logic differs each time"):
        lake.refresh(fh.table("p.run", source=right, rows=rows, keys="k", fold=fh.fold(m=fh.maximum("m"))))


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        pytest.param(lambda e: {}["customers"], r"p.right: KeyError: 'customers' \(", id="a key"),
        pytest.param(lambda e: e.select(str(1 / 0)), r"p.right: ZeroDivisionError: division by zero \(", id="a number"),
        pytest.param(lambda e: next(iter(())), r"p.right: StopIteration \(", id="no message"),
    ],
)
def test_rows_that_fail_are_named_with_the_error_and_the_line(
    spark_lake: OpenLake, rows: Callable[[DataFrame], Any], said: str
) -> None:
    lake = spark_lake()
    lake.append(right, [{"k": "a", "m": 1}])
    failing = fh.table("p.failing", source=right, rows=rows, keys="k", fold=fh.fold(n=fh.count()))
    with pytest.raises(DefinitionError, match=rf"{said}.*test_plans_over_connect\.py, line \d+\)"):
        lake.refresh(failing)


def of_column(by: int) -> Callable[[DataFrame], DataFrame]:
    price = F.udf(lambda m: m * by, "long")
    return lambda e: e.select("k", price("m").alias("m"))


def of_batches(by: int) -> Callable[[DataFrame], DataFrame]:
    def priced(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for one in batches:
            yield pa.record_batch({"k": one["k"], "m": pc.multiply(one["m"], by)})

    return lambda e: e.select("k", "m").mapInArrow(priced, "k string, m long")


@pytest.mark.parametrize("made", [of_column, of_batches])
def test_another_python_function_of_the_same_name_is_refused(
    spark_lake: OpenLake, made: Callable[[int], Callable[[DataFrame], DataFrame]]
) -> None:
    """As after a deployment: the plan has the name of the function, and the rows of before are those of the old one."""

    def declared(by: int) -> fh.Table:
        return fh.table("p.priced", source=right, rows=made(by), keys="k", fold=fh.fold(m=fh.total("m")))

    lake = spark_lake()
    lake.append(right, [{"k": k, "m": 1} for k in ("a", "b")])
    lake.refresh(declared(2))
    lake.append(right, [{"k": "a", "m": 1}])
    assert lake.refresh(declared(2)).committed
    lake.append(right, [{"k": "a", "m": 1}])
    with pytest.raises(fh.DefinitionChanged, match=r"p\.priced .*Python function; run `foldhouse rebuild p\.priced`"):
        lake.refresh(declared(100))
    lake.rebuild(declared(100))
    assert sorted(lake.to_arrow("p.priced")["m"].to_pylist()) == [100, 300]
