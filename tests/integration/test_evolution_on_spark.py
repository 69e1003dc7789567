"""Columns that change under tables whose logic is Spark's: what goes on, what is refused, and what Spark reads."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import foldhouse as fh
from foldhouse.logic.plan import source_name
from foldhouse.logic.plan_text import analysed_plan, handed_on

pytestmark = pytest.mark.spark

OpenLake = Callable[..., fh.Lake]
Row = dict[str, Any]
WAYS = pytest.mark.parametrize("in_process_rows", [0, 200_000], ids=["tasks", "in process"])


def stream(**columns: str) -> fh.Stream:
    schema = {"k": "string", "op": "string", "t": "int", **columns}
    return fh.stream("shop.events", schema=schema, keys="k", sequence_by="t")


def append(lake: fh.Lake, declared: fh.Stream, *rows: Row) -> None:
    names = [name for name, _ in declared.schema]
    lake.append(declared, pa.Table.from_pylist([{name: row.get(name) for name in names} for row in rows]))


def rows_of(lake: fh.Lake, name: str) -> list[Row]:
    return sorted(lake.to_arrow(name).to_pylist(), key=repr)


def whole(source: fh.Stream) -> fh.Table:
    return fh.table("shop.whole", source=source, fold=fh.latest(delete_when=lambda: F.col("op") == "delete"))


def by_lateness(source: fh.Stream) -> fh.Table:
    def rows(events: DataFrame) -> DataFrame:
        return events.where("op <> 'delete'").withColumn("late", F.col("t") > 5)

    fold = fh.fold(largest=fh.maximum("a"), events=fh.count())
    return fh.table("shop.by_lateness", source=source, rows=rows, keys="late", fold=fold)


def doubled(source: fh.Stream) -> fh.Table:
    return fh.table("shop.doubled", source=source, fold=fh.fold(twice=fh.total("a * 2")))


@pytest.mark.slow
@WAYS
def test_tables_go_on_over_columns_that_are_added_and_widened(spark_lake: OpenLake, in_process_rows: int) -> None:
    lake = spark_lake(in_process_rows=in_process_rows)
    first = stream(a="int", q="decimal(5,2)")
    append(lake, first, {"k": "x", "op": "put", "t": 1, "a": 1, "q": Decimal("1.25")}, {"k": "y", "op": "put", "t": 6})
    tables = (whole, by_lateness, doubled)
    for table in tables:
        assert lake.refresh(table(first)).committed
    more = stream(a="int", q="decimal(5,2)", c="string")
    append(lake, more, {"k": "x", "op": "put", "t": 7, "a": 4, "c": "web"}, {"k": "y", "op": "delete", "t": 8})
    for table in tables:
        assert lake.refresh(table(more)).committed
    assert rows_of(lake, "shop.whole") == [{"k": "x", "op": "put", "t": 7, "a": 4, "q": None, "c": "web"}]
    assert rows_of(lake, "shop.doubled") == [{"k": "x", "twice": 10}, {"k": "y", "twice": None}]
    wide = stream(a="long", q="decimal(9,2)", c="string")
    append(lake, wide, {"k": "z", "op": "put", "t": 9, "a": 2**40, "q": Decimal("1234567.25")})
    for table in (whole, by_lateness):
        assert lake.refresh(table(wide)).committed
    assert rows_of(lake, "shop.whole") == [
        {"k": "x", "op": "put", "t": 7, "a": 4, "q": None, "c": "web"},
        {"k": "z", "op": "put", "t": 9, "a": 2**40, "q": Decimal("1234567.25"), "c": None},
    ]
    assert rows_of(lake, "shop.by_lateness") == [
        {"late": False, "largest": 1, "events": 1},
        {"late": True, "largest": 2**40, "events": 3},
    ]


@WAYS
def test_what_is_computed_from_a_widened_column_is_refused_until_it_is_rebuilt(
    spark_lake: OpenLake, in_process_rows: int
) -> None:
    lake = spark_lake(in_process_rows=in_process_rows)
    append(lake, stream(a="int"), {"k": "x", "op": "put", "t": 1, "a": 1})
    lake.refresh(doubled(stream(a="int")))
    wide = stream(a="long")
    append(lake, wide, {"k": "x", "op": "put", "t": 2, "a": 2**40})
    before = lake.load("shop.doubled").metadata
    with pytest.raises(fh.DefinitionChanged, match=r"shop\.events: a.*foldhouse rebuild shop\.doubled"):
        lake.refresh(doubled(wide))
    assert lake.load("shop.doubled").metadata == before
    lake.rebuild(doubled(wide))
    append(lake, wide, {"k": "x", "op": "put", "t": 3, "a": -1})
    lake.refresh(doubled(wide))
    assert rows_of(lake, "shop.doubled") == [{"k": "x", "twice": 2 * 2**40}]


@pytest.mark.classic
def test_a_column_that_left_is_refused_by_name_with_what_became_of_it(spark_lake: OpenLake) -> None:
    lake = spark_lake()
    append(lake, stream(a="int", b="int"), {"k": "x", "op": "put", "t": 1, "a": 1, "b": 1})
    for table in (by_lateness, doubled):
        lake.refresh(table(stream(a="int", b="int")))
    later = stream(a="int")
    lake.evolve(later, drop=["b"])
    append(lake, later, {"k": "x", "op": "put", "t": 2, "a": 2})
    for table in (by_lateness, doubled):
        assert lake.refresh(table(later)).committed  # neither names it
    price = stream(price="int")
    lake.evolve(price, rename={"a": "price"})
    before = lake.load("shop.by_lateness").metadata
    for table in (by_lateness, doubled):
        with pytest.raises(fh.DefinitionError, match=r"(?s)shop\.\w+: .*`a`.*In shop\.events, a was renamed to price"):
            lake.refresh(table(price))
    assert lake.load("shop.by_lateness").metadata == before


def test_spark_reads_old_and_new_files_at_the_present_columns_and_history_at_its_own(spark_lake: OpenLake) -> None:
    lake = spark_lake()
    first = stream(a="int", f="float", q="decimal(5,2)", gone="string")
    append(lake, first, *({"k": f"k{n}", "t": n, "a": n, "f": 0.5, "q": Decimal(n), "gone": "x"} for n in range(300)))
    old = lake.head(first)
    assert old is not None
    later = stream(price="long", f="double", q="decimal(20,2)", new="date")
    lake.evolve(later, rename={"a": "price"}, drop=["gone"])
    append(lake, later, {"k": "last", "t": 300, "price": 2**40, "f": 0.1, "q": Decimal(10**15)})
    for as_of in (None, old.id):
        by_spark = lake.read(later, as_of=as_of)
        by_arrow = lake.to_arrow(later, as_of=as_of)
        assert by_spark.columns == by_arrow.column_names
        assert sorted((row.asDict() for row in by_spark.collect()), key=repr) == sorted(by_arrow.to_pylist(), key=repr)
    assert lake.read(later).where("price > 298").orderBy("t").select("price", "f", "q", "new").collect() == [
        (299, 0.5, Decimal("299.00"), None),
        (2**40, 0.1, Decimal("1000000000000000.00"), None),
    ]


def test_an_append_by_spark_takes_the_declared_columns(spark_lake: OpenLake, spark: SparkSession) -> None:
    lake = spark_lake()
    append(lake, stream(a="int", b="int"), {"k": "x", "op": "put", "t": 1, "a": 1, "b": 1})
    behind = stream(c="string", a="long")
    events = spark.createDataFrame([("y", "put", 2, 2**40, "web")], "k string, op string, t int, a long, c string")
    lake.append(behind, events)
    assert rows_of(lake, "shop.events") == [
        {"k": "x", "op": "put", "t": 1, "a": 1, "b": 1, "c": None},
        {"k": "y", "op": "put", "t": 2, "a": 2**40, "b": None, "c": "web"},
    ]


HANDED_ON: dict[str, Callable[[DataFrame], DataFrame]] = {
    "left out": lambda rows: rows.select("k"),
    "as it is": lambda rows: rows.select("k", F.col("x").alias("__a0")),
    "through a filter and a new column": lambda rows: (
        rows.where("k > 'a'").withColumn("day", F.lit("x")).select("k", "x")
    ),
    "renamed": lambda rows: rows.withColumn("y", F.col("x")).drop("x").select("k", F.col("y").alias("__a0")),
    "through a union": lambda rows: rows.union(rows).select("k", F.col("x").alias("__a0")),
}
USED: dict[str, Callable[[DataFrame], DataFrame]] = {
    "computed with": lambda rows: rows.select("k", (F.col("x") * 2).alias("__a0")),
    "hashed among others": lambda rows: rows.select("k", F.hash("k", "x").alias("__a0")),
    "filtered by": lambda rows: rows.where("x > 1").select("k"),
    "computed with under another name": lambda rows: rows.withColumn("y", F.col("x")).where("y > 1").select("k"),
    "in a struct of everything": lambda rows: rows.select("k", F.struct("*").alias("__a0")),
    "told apart by": lambda rows: rows.distinct().select("k"),
    "grouped by": lambda rows: rows.groupBy("k", "x").count().select("k"),
}


@pytest.mark.parametrize("how", [*HANDED_ON, *USED])
def test_a_plan_says_whether_a_column_is_only_handed_on(spark: SparkSession, how: str) -> None:
    then, now = (spark.createDataFrame([], kinds) for kinds in ("k string, x int, n int", "k string, x long, m date"))
    logic = (HANDED_ON | USED)[how]
    found = [handed_on(analysed_plan(logic(rows.alias(source_name(0)))), [{"x", "n", "m"}]) for rows in (then, now)]
    if how in USED:
        assert found == [None, None]
    else:
        assert found[0] is not None
        assert found[0] == found[1]
        assert found[0][1] == [set() if how == "left out" else {"x"}]


UNIONS: dict[str, tuple[Callable[[DataFrame, DataFrame], DataFrame], set[str]]] = {
    "all columns": (lambda one, other: one.union(other), {"x", "n"}),
    "one of them": (lambda one, other: one.union(other).select("k", "x"), {"x"}),
    "one that is computed with": (lambda one, other: one.union(other).selectExpr("k", "x + 1 AS x"), {"x"}),
    "in another order": (lambda one, other: one.union(other.select("k", "n", "x")).select("k", "x"), {"n"}),
    "under other names": (lambda one, other: one.union(other.toDF("a", "b", "c")).select("x"), {"x"}),
    "of three": (lambda one, other: one.union(one).union(other).select("n", "k"), {"n"}),
    "after a filter": (lambda one, other: one.union(other.where("k > 'a'")).where("x > 1").select("k"), {"x"}),
    "left out": (lambda one, other: one.union(other).select("k"), set()),
}


@pytest.mark.parametrize("how", UNIONS)
def test_columns_of_a_further_part_of_a_union_are_followed_by_their_places(spark: SparkSession, how: str) -> None:
    logic, expected = UNIONS[how]
    one, other = (spark.createDataFrame([], "k string, x int, n int").alias(source_name(place)) for place in (0, 1))
    found = handed_on(analysed_plan(logic(one, other).select("*")), [set(), {"x", "n"}])
    assert found is not None
    assert found[1] == [set(), expected]


def test_a_column_of_the_second_part_of_a_union_that_is_another_one_is_refused(spark_lake: OpenLake) -> None:
    web, shops = (fh.stream(f"shop.{name}", schema={"k": "string", "n": "long"}) for name in ("web", "shops"))
    fold = fh.fold(n=fh.total("n"))
    table = fh.table("shop.all", source=[web, shops], rows=lambda a, b: a.union(b), keys="k", fold=fold)
    lake = spark_lake()
    lake.append(web, [{"k": "x", "n": 1}])
    lake.append(shops, [{"k": "x", "n": 10}])
    lake.refresh(table)
    lake.evolve(fh.stream("shop.shops", schema={"k": "string"}), drop=["n"], even_if_read=True)
    lake.evolve(shops)
    lake.append(shops, [{"k": "x", "n": 100}])
    with pytest.raises(fh.DefinitionChanged, match=r"shop\.shops\.n is not the column"):
        lake.refresh(table)
    lake.rebuild(table)
    assert rows_of(lake, "shop.all") == [{"k": "x", "n": 101}]


def test_days_are_folded_again_over_columns_that_came_since_and_later_refreshes_go_on(spark_lake: OpenLake) -> None:
    days = date(2024, 1, 1), date(2024, 1, 2)

    def declared(**columns: str) -> fh.Stream:
        schema = {"k": "string", "day": "date", "t": "int", "a": "int", **columns}
        return fh.stream("shop.days", schema=schema, keys="k", sequence_by="t", partition_by="day")

    def tables(source: fh.Stream) -> list[fh.Table]:
        def rows(events: DataFrame) -> DataFrame:
            return events.where("t > 0")

        given: dict[str, Any] = {"source": source, "rows": rows, "keys": ["k", "day"], "partition_by": "day"}
        counted = fh.fold(n=fh.count(), a=fh.maximum("a"))
        return [fh.table("shop.wholes", fold=fh.latest(), **given), fh.table("shop.counts", fold=counted, **given)]

    lake = spark_lake()
    lake.append(declared(), [{"k": "a", "day": day, "t": 1, "a": 1} for day in days])
    for table in tables(declared()):
        lake.refresh(table)
    wider = declared(b="string")
    lake.append(wider, [{"k": "a", "day": days[0], "t": 2, "a": 5, "b": "x"}])
    for table in tables(wider):
        assert lake.restate(table, days[:1]).committed
        assert lake.refresh(table).committed
    assert rows_of(lake, "shop.counts") == [
        {"k": "a", "day": days[0], "n": 2, "a": 5},
        {"k": "a", "day": days[1], "n": 1, "a": 1},
    ]
    assert [(row["t"], row["b"]) for row in rows_of(lake, "shop.wholes")] == [(2, "x"), (1, None)]


def test_logic_that_looks_at_the_columns_there_are_is_other_logic(spark_lake: OpenLake) -> None:
    def rows(events: DataFrame) -> DataFrame:
        return events.where("t > 1") if "more" in events.columns else events

    def table(source: fh.Stream) -> fh.Table:
        return fh.table("shop.t", source=source, rows=rows, fold=fh.fold(events=fh.count()))

    lake = spark_lake()
    append(lake, stream(), {"k": "x", "op": "put", "t": 1})
    lake.refresh(table(stream()))
    append(lake, stream(more="int"), {"k": "x", "op": "put", "t": 2, "more": 1})
    with pytest.raises(fh.DefinitionChanged, match=r"shop\.events: more"):
        lake.refresh(table(stream(more="int")))


def test_a_join_goes_on_over_columns_that_it_does_not_name(spark_lake: OpenLake) -> None:
    def prices(**columns: str) -> fh.Stream:
        return fh.stream("shop.prices", schema={"k": "string", "price": "int", **columns}, keys="k")

    def joined(events: fh.Stream, priced: fh.Stream) -> fh.Table:
        return fh.table(
            "shop.joined",
            source=[events, priced],
            rows=lambda events, priced: events.join(priced.select("k", "price"), "k"),
            keys="k",
            fold=fh.fold(total=fh.total("price"), events=fh.count()),
        )

    lake = spark_lake()
    append(lake, stream(a="int"), {"k": "x", "op": "put", "t": 1, "a": 1})
    append(lake, prices(), {"k": "x", "price": 10})
    lake.refresh(joined(stream(a="int"), prices()))
    append(lake, stream(a="long", b="int"), {"k": "x", "op": "put", "t": 2, "a": 1, "b": 5})
    append(lake, prices(note="string"), {"k": "y", "price": 20, "note": "new"})
    append(lake, stream(a="long", b="int"), {"k": "y", "op": "put", "t": 3})
    assert lake.refresh(joined(stream(a="long", b="int"), prices(note="string"))).committed
    assert rows_of(lake, "shop.joined") == [
        {"k": "x", "total": 20, "events": 2},
        {"k": "y", "total": 20, "events": 1},
    ]


def test_a_table_goes_on_under_another_spark_that_prints_the_same_logic_in_other_words(
    spark_lake: Callable[..., fh.Lake], monkeypatch: pytest.MonkeyPatch
) -> None:
    from foldhouse.logic import compiled, understood

    events = fh.stream("engine.events", schema={"k": "string", "n": "long"}, keys="k")
    declared = lambda least: fh.table(  # noqa: E731
        "engine.table", source=events, rows=lambda e: e.where(e.n >= least), fold=fh.fold(n=fh.total("n"))
    )
    lake = spark_lake()
    lake.append(events, pa.table({"k": ["a", "b"], "n": [1, 2]}))
    lake.refresh(declared(1))
    lake.append(events, pa.table({"k": ["a"], "n": [5]}))
    plan = compiled.analysed_plan
    for module in (compiled, understood):
        monkeypatch.setattr(module, "analysed_plan", lambda frame: plan(frame).replace("Filter", "Sieve"))
    with pytest.raises(fh.DefinitionChanged):  # the same Spark, another plan: whatever it is, it is another logic
        lake.refresh(declared(1))
    monkeypatch.setattr(compiled, "engine_of", lambda _: "Spark 99.0.0")
    with pytest.raises(fh.DefinitionChanged):
        lake.refresh(declared(2))
    lake.refresh(declared(1))
    assert sorted(lake.to_arrow("engine.table").to_pydict()["n"]) == [2, 6]
    head = lake.head("engine.table")
    assert head is not None
    assert head.summary["foldhouse.declaration"].endswith(" by Spark 99.0.0")
    assert lake.refresh(declared(1)).committed is False


def test_changed_rows_are_shown_as_spark_understands_them(spark_lake) -> None:
    numbers = fh.stream("shop.numbers", schema={"k": "string", "n": "long"})

    def table(least: int, fold: str = "n") -> fh.Table:
        return fh.table(
            "shop.large",
            source=numbers,
            rows=lambda numbers: numbers.where(f"n > {least}"),
            keys="k",
            fold=fh.fold(n=fh.total(fold)),
        )

    lake = spark_lake()
    lake.append(numbers, [{"k": "a", "n": 5}])
    lake.refresh(table(1))
    with pytest.raises(
        fh.DefinitionChanged, match=r"`rows`: Filter \(n > cast\(1 as bigint\)\) -> Filter \(n > cast\(2"
    ):
        lake.refresh(table(2))
    with pytest.raises(fh.DefinitionChanged, match=r"column n: total\('n'\) -> total\('n \* 2'\); run"):
        lake.refresh(table(1, "n * 2"))


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("n +* 2", r"cannot evaluate 'n \+\* 2', for the column 'twice', total\('n \+\* 2'\): .*\(line 1, pos"),
        ("missing + 1", r"for the column 'twice', total\('missing \+ 1'\): .*missing"),
    ],
)
def test_an_expression_that_spark_refuses_is_named_with_its_column(spark_lake, expression: str, said: str) -> None:
    numbers = fh.stream("shop.numbers", schema={"k": "string", "n": "long"})
    table = fh.table(
        "shop.twice", source=numbers, keys="k", fold=fh.fold(n=fh.total("n + 1"), twice=fh.total(expression))
    )
    lake = spark_lake()
    lake.append(numbers, [{"k": "a", "n": 5}])
    with pytest.raises(fh.DefinitionError, match=said):
        lake.refresh(table)


def test_an_expression_in_a_fold_is_not_called_a_new_rows(spark_lake: Callable[..., fh.Lake]) -> None:
    events = fh.stream("engine.sums", schema={"k": "string", "n": "long"}, keys="k")
    declared = lambda argument: fh.table("engine.sum", source=events, fold=fh.fold(n=fh.total(argument)))  # noqa: E731
    lake = spark_lake()
    lake.append(events, pa.table({"k": ["a"], "n": [1]}))
    lake.refresh(declared("n"))
    with pytest.raises(fh.DefinitionChanged, match=r"column n: total\('n'\) -> total\('n \* 2'\); run"):
        lake.refresh(declared("n * 2"))
