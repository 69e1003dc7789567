"""Random expressions over hostile values: this process gives the value and type of Spark, or leaves them to Spark.

A failure names its seed and the expression. `FOLDHOUSE_LAW_HISTORIES` sets how many are compared: two for each history.
"""

from __future__ import annotations

import functools
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from contract.random_expressions import Maker
from contract.random_values import SCHEMA, SPARK_TYPES, hostile
from laws.amount import HISTORIES
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from foldhouse.logic.analysed import analysed
from foldhouse.logic.columns import join_type
from foldhouse.logic.direct import _JOINS, _SAME_ROWS, Direct, direct_of
from foldhouse.logic.direct_groups import AGGREGATES
from foldhouse.logic.direct_windows import NEIGHBOURS, NUMBERS
from foldhouse.logic.expressions import _TRANSLATIONS
from foldhouse.logic.plan import source_name
from foldhouse.spark.source import frame_of_arrow
from foldhouse.spark.types import arrow_schema

pytestmark = [pytest.mark.spark, pytest.mark.classic]

AT_ONCE = 80
"""Expressions of one job."""
PLANS = 8
"""Plans of one seed: those of the first two seeds have each shape."""
SHAPES = ("filter", "groups", "window", "global", "distinct", "distinct in SQL", "union", "same rows", "cross")
JOINS = ("inner", "left", "right", "full", "left_semi", "left_anti")
SHAPES += JOINS
FUNCTIONS = ("count", "sum", "min", "max", "count(distinct", "count_if", "bool_or", "bool_and")
NODES = {"Project", "Filter", "Join", "Union", "Aggregate", "Window", "Distinct", "Deduplicate"}
Steps = Callable[[DataFrame, DataFrame], DataFrame]
KEYED = ("integer", "decimal", "text", "day", "time", "local", "bool", "floating")
"""Families of what can be grouped by, joined on and compared."""
_BITS = {pl.Float64: pl.Int64, pl.Float32: pl.Int32}


@functools.cache
def empty_source(spark: SparkSession, place: int = 0) -> DataFrame:
    return spark.createDataFrame([], SPARK_TYPES).alias(source_name(place))


def seeds(number: int) -> list[Any]:
    """Return the seeds of tests, of which all except the first two are long."""
    return [pytest.param(seed, marks=[pytest.mark.heavy] * (seed > 1)) for seed in range(max(2, number))]


def analysable(spark: SparkSession, texts: Sequence[str]) -> list[str]:
    """Return the expressions that Spark accepts, such as those whose operands have a common type."""
    try:
        _ = empty_source(spark).selectExpr("row", *texts).schema
        return list(texts)
    except PySparkException:
        half = len(texts) // 2
        return [*analysable(spark, texts[:half]), *analysable(spark, texts[half:])] if half else []


def directly(logic: DataFrame, names: Sequence[str]) -> dict[str, Direct]:
    """Return each column of a projection that is direct logic by itself, with the number of its row."""
    plan, outputs = analysed(logic), arrow_schema(logic.schema)
    row, *listed = plan.of("projectList")
    found = {}
    for one, name in zip(listed, names, strict=True):
        alone = replace(plan, expressions={**plan.expressions, "projectList": (row, one)})
        made = direct_of(alone, [SCHEMA], pa.schema([outputs.field("row"), outputs.field(name)]))
        if made is not None:
            found[name] = made
    return found


def evaluated(direct: Direct, sources: Sequence[pl.DataFrame]) -> pl.DataFrame | None:
    """Evaluate as a refresh does; `None` if Spark has to decide."""
    try:
        return direct.rows(sources)
    except (pl.exceptions.PolarsError, pa.ArrowException):
        return None


def listed(rows: pl.DataFrame) -> list[str]:
    """Return the rows as texts that are equal for the same bits only: -0.0 is not 0.0, and years have no limit.

    Of NaN, there is only one: nothing in Spark tells its bits apart.
    """
    nan = float("nan")
    floats = {name: kind for name, kind in rows.schema.items() if kind in _BITS}
    exact = [pl.col(name).fill_nan(nan).reinterpret(dtype=_BITS[kind]) for name, kind in floats.items()]
    exact += [pl.col(n).to_physical() for n, kind in rows.schema.items() if kind.is_temporal()]
    return list(map(repr, rows.with_columns(exact).rows()))


def of_spark(logic: DataFrame) -> pl.DataFrame:
    made = pl.from_arrow(logic.toArrow())
    assert isinstance(made, pl.DataFrame)
    return made


def rows_evaluated(direct: Direct, rows: pl.DataFrame) -> pl.DataFrame | None:
    """Evaluate all rows, or if that fails those that can be evaluated, such as those whose numbers do not overflow."""
    made = evaluated(direct, [rows])
    if made is not None or rows.height < 2:
        return made
    half = rows.height // 2
    parts = [rows_evaluated(direct, part) for part in (rows[:half], rows[half:])]
    found = [part for part in parts if part is not None]
    return pl.concat(found) if found else None


@functools.cache
def compare_values(spark: SparkSession, seed: int) -> Counter[str]:
    """Compare some expressions; return how many were the same, failed in each row here, or were left to Spark.

    With them are counted the functions in those that were the same.
    """
    chance = random.Random(seed)
    maker, rows = Maker(chance), hostile(60, seed)
    texts = analysable(spark, [maker.any(chance.randint(1, 4)) for _ in range(AT_ONCE)])
    names = [f"value {place}" for place in range(len(texts))]
    selected = ["row", *(F.expr(text).alias(name) for text, name in zip(texts, names, strict=True))]
    logic = empty_source(spark).select(*selected)
    direct = directly(logic, names)
    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame)
    ours = {name: made for name, one in direct.items() if (made := rows_evaluated(one, frame)) is not None}
    asked = {name: _of_some(texts[names.index(name)], made, rows.num_rows) for name, made in ours.items()}
    theirs = _of_spark_one_by_one(spark, rows, asked, seed)
    for name, made in ours.items():
        text, same = (
            texts[names.index(name)],
            theirs.select("row", name).filter(pl.col("row").is_in(made["row"].implode())),
        )
        assert made.schema == same.schema, f"seed {seed}: {text}"
        found = [pair for pair in zip(listed(made), listed(same), strict=True) if pair[0] != pair[1]]
        assert not found, f"seed {seed}: {text}: {found[0]} in row {listed(frame[_row(found[0][0])])}"
    made_of = dict(zip(names, analysed(logic).of("projectList")[1:], strict=True))
    kinds = Counter(kind for name in ours for kind in {part.kind for part in made_of[name].walk()})
    return Counter(same=len(ours), failed=len(direct) - len(ours), left=len(texts) - len(direct)) + kinds


def _of_some(text: str, made: pl.DataFrame, rows: int) -> str:
    """Return an expression that Spark evaluates only in the rows that this process evaluated."""
    return text if made.height == rows else f"CASE WHEN row IN ({', '.join(map(str, made['row']))}) THEN {text} END"


def _row(text: str) -> int:
    return int(text.strip("(").split(",")[0])


def _of_spark_one_by_one(spark: SparkSession, rows: pa.Table, texts: dict[str, str], seed: int) -> pl.DataFrame:
    """Evaluate expressions in one job; name the one that Spark refuses, though this process has a value."""
    frame = frame_of_arrow(spark, rows)
    try:
        return of_spark(frame.select("row", *(F.expr(text).alias(name) for name, text in texts.items())))
    except PySparkException:
        for text in texts.values():
            try:
                frame.selectExpr(text).toArrow()
            except PySparkException as failure:
                raise AssertionError(f"seed {seed}: Spark refuses {text}: {failure}") from failure
        raise


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(HISTORIES * 2 // AT_ONCE))
def test_random_expressions_give_the_values_of_spark(spark, seed):
    assert compare_values(spark, seed)["same"]


@pytest.mark.slow
def test_almost_all_random_expressions_are_evaluated_here_and_each_function_is(spark):
    count = sum((compare_values(spark, seed) for seed in range(4)), Counter[str]())
    assert count["same"] >= 0.85 * (count["same"] + count["failed"] + count["left"])
    assert _TRANSLATIONS.keys() - count.keys() == set()


@functools.cache
def compare_rows(spark: SparkSession, seed: int) -> Counter[str]:
    """Compare random plans of filters, groups, distinct rows, joins and unions over random expressions.

    Counted are also the nodes, the kinds of joins and the aggregates of the plans that were the same.
    """
    chance = random.Random(seed)
    tables = [hostile(chance.choice([1, 40]) if seed % 3 else 40, seed), hostile(40, seed + 1)]
    if seed % 11 == 5:
        tables[0] = hostile(0, seed)
    frames = [pl.from_arrow(one) for one in tables]
    count: Counter[str] = Counter()
    for place in range(PLANS):
        steps = random_steps(chance, SHAPES[(PLANS * seed + place) % len(SHAPES)])
        try:
            logic = steps(*(empty_source(spark, place) for place in range(2)))
            plan = analysed(logic)
        except PySparkException:  # operands without a common type
            continue
        direct = direct_of(plan, [SCHEMA] * 2, arrow_schema(logic.schema))
        ours = None if direct is None else evaluated(direct, frames)  # type: ignore[arg-type]
        count["left" if direct is None else "failed" if ours is None else "same"] += 1
        if ours is None:
            continue
        try:
            theirs = of_spark(steps(*(frame_of_arrow(spark, one) for one in tables)))
        except Py4JJavaError as failure:
            # Spark's optimiser makes a literal of an aggregate that has one value, which is no window function.
            if "Unsupported window function" not in str(failure):
                raise
            continue
        what = f"seed {seed}: {logic._jdf.queryExecution().analyzed().toString()}"
        assert ours.schema == theirs.schema, what
        assert Counter(listed(ours)) == Counter(listed(theirs)), what
        count.update(
            {node.kind for node in plan.walk()} | {part.kind for node in plan.walk() for part in node.everything()}
        )
        count.update(join_type(node) for node in plan.walk() if node.kind == "Join")
    return count


def random_steps(chance: random.Random, shape: str) -> Steps:
    """Return a random plan of a shape over two sources, as a function of their frames."""
    make = Maker(chance, beyond=0.0)
    few = [make.any(chance.randint(0, 2)) for _ in range(3)]
    tests = [make.condition(chance.randint(1, 3)) for _ in range(3)]
    is_join = shape in JOINS  # on columns: one key whose numbers overflow would leave the join to Spark
    depths = [0 if is_join else chance.randint(0, 2) for _ in range(chance.randint(1, 2))]
    kinds = KEYED[:-1] if shape == "cross" else KEYED  # it has the maximum of a key: of floats, that is left to Spark
    keys = [make.varying(chance.choice(kinds), depth).text for depth in depths]
    calls = [_a_call(chance, make, function) for function in FUNCTIONS]
    over = [_a_window(chance, make) for _ in range(3)]
    is_filtered = not is_join and chance.random() < 0.5

    def steps(one: DataFrame, other: DataFrame) -> DataFrame:
        if is_filtered:
            one = one.where(tests[0])
        if shape == "filter":
            return one.where(tests[1]).selectExpr("row", *few)
        if shape == "same rows":
            moved = one.repartition(2).repartition(3, "row").hint("broadcast").sort("row")
            moved.createOrReplaceTempView("random_rows")
            return one.sparkSession.table("random_rows").selectExpr("row", *few)
        if shape in ("groups", "global"):
            by = [F.expr(text).alias(f"key {place}") for place, text in enumerate(keys)] if shape == "groups" else []
            return one.groupBy(*by).agg(*(F.expr(text).alias(f"call {place}") for place, text in enumerate(calls)))
        if shape == "window":
            return one.selectExpr("row", *(f"{text} AS w{place}" for place, text in enumerate(over)))
        if shape == "distinct":
            return one.selectExpr(*keys).distinct()
        if shape == "distinct in SQL":
            listed = ", ".join(f"{text} AS k{place}" for place, text in enumerate(keys))
            return one.sparkSession.sql(f"SELECT DISTINCT {listed} FROM {{one}}", one=one)
        if shape == "union":
            return one.selectExpr("row", keys[0]).union(other.where(tests[1]).selectExpr("row", keys[0]))
        left = one.selectExpr("row AS l", *(f"{text} AS a{place}" for place, text in enumerate(keys)))
        right = other.selectExpr("row AS r", *(f"{text} AS b{place}" for place, text in enumerate(keys)))
        if shape == "cross":
            return left.crossJoin(right.groupBy().agg(F.count("*").alias("n"), F.max("b0").alias("most")))
        equal = [F.col(f"a{place}") == F.col(f"b{place}") for place in range(len(keys))]
        return left.join(right, functools.reduce(lambda a, b: a & b, equal), shape)

    return steps


def _a_call(chance: random.Random, make: Maker, function: str) -> str:
    if function == "sum":  # of numbers whose sum fits
        given = chance.choice([*"ijkmnopq", f"if({make.condition(1)}, j, k)"])
    elif function in ("count_if", "bool_or", "bool_and"):
        given = make.condition(chance.randint(0, 2))
    else:
        given = make.varying(chance.choice(KEYED), chance.randint(0, 2)).text
    if function == "count" and chance.random() < 0.3:
        given = chance.choice(["*", "1", f"{given}, {make.varying(chance.choice(KEYED), 1).text}", f"1, {given}"])
    call = f"count(distinct {given})" if function == "count(distinct" else f"{function}({given})"
    if chance.random() < 0.4:
        call = f"{call} FILTER (WHERE {make.condition(chance.randint(0, 2))})"
    return chance.choice([call, call, f"coalesce({call}, {call})", f"({call} is null)", call])


def _a_window(chance: random.Random, make: Maker) -> str:
    """Return a window function; where the order of rows that tie would count, the number of the row is in it."""
    keys = [make.varying(chance.choice(KEYED[:-1]), chance.choice([0, 0, 1])).text for _ in range(chance.randint(1, 2))]
    kind = chance.choice(["row_number()", "rank()", "dense_rank()", "neighbour", "neighbour", "aggregate"])
    order = [
        make.varying(chance.choice(KEYED[:-1]), chance.choice([0, 0, 1])).text for _ in range(chance.randint(1, 2))
    ]
    order += [] if kind in ("rank()", "dense_rank()") else ["row"]
    sorted_by = [
        f"{one}{chance.choice(['', ' ASC', ' DESC'])}{chance.choice(['', ' NULLS FIRST', ' NULLS LAST'])}"
        for one in order
    ]
    if kind == "aggregate":
        call = _a_call(chance, make, chance.choice([one for one in FUNCTIONS if one != "count(distinct"]))
        if not call.startswith(("coalesce", "(")):
            return f"{call} OVER (PARTITION BY {', '.join(keys)})"
        kind = "row_number()"
    if kind == "neighbour":
        value = make.varying(chance.choice(KEYED), chance.randint(0, 1)).text
        further = chance.choice(["", ", 1", ", 2", ", 0", ", 60", f", 1, {value}", ", 3, NULL"])
        kind = f"{chance.choice(['lag', 'lead'])}({value}{further})"
    return f"{kind} OVER (PARTITION BY {', '.join(keys)} ORDER BY {', '.join(sorted_by)})"


@pytest.mark.parametrize("seed", seeds(HISTORIES // 20))
def test_random_plans_give_the_rows_of_spark(spark, seed):
    assert compare_rows(spark, seed)["same"]


@pytest.mark.slow
def test_most_random_plans_are_evaluated_here_and_each_node_join_and_aggregate_is(spark):
    count = sum((compare_rows(spark, seed) for seed in range(6)), Counter[str]())
    assert count["same"] >= 0.7 * (count["same"] + count["failed"] + count["left"])
    wanted = NODES | _SAME_ROWS | _JOINS.keys() | set(AGGREGATES) | NUMBERS | NEIGHBOURS.keys()
    assert wanted - count.keys() == {"RebalancePartitions"}, "it needs adaptive execution, which the tests do without"
