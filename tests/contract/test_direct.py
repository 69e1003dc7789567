"""Direct logic: whatever this process evaluates itself gives the rows that Spark gives; all else is left to Spark."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from laws.amount import IS_THOROUGH, share
from pyspark.errors import ArithmeticException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

import foldhouse as fh
from foldhouse.logic.analysed import analysed
from foldhouse.logic.direct import Direct, direct_of
from foldhouse.logic.plan import source_name
from foldhouse.logic.shape import origins_of
from foldhouse.spark.source import frame_of_arrow
from foldhouse.spark.types import arrow_schema

pytestmark = [pytest.mark.spark, pytest.mark.classic]

SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "i": pa.int32(),
        "j": pa.int32(),
        "l": pa.int64(),
        "m": pa.decimal128(12, 4),
        "n": pa.decimal128(10, 2),
        "w": pa.decimal128(38, 10),
        "s": pa.string(),
        "t": pa.timestamp("us", "UTC"),
        "u": pa.timestamp("us"),
        "d": pa.date32(),
        "b": pa.bool_(),
        "x": pa.float64(),
        "a": pa.list_(pa.int32()),
    }
)
SPARK_TYPES = (
    "id long, i int, j int, l long, m decimal(12,4), n decimal(10,2), w decimal(38,10), s string, t timestamp, "
    "u timestamp_ntz, d date, b boolean, x double, a array<int>"
)
HOSTILE: dict[str, Sequence[Any]] = {
    "i": (None, 0, 1, -1, 7, 2**31 - 1, -(2**31)),
    "j": (None, 0, 2, -3, 7, 46_341),
    "l": (None, 0, 1, -1, 7, 2**63 - 1, -(2**63), 2**31),
    "m": (None, Decimal("0.0000"), Decimal("1.5000"), Decimal("-0.0001"), Decimal("99999999.9999")),
    "n": (None, Decimal("0.00"), Decimal("1.50"), Decimal("-99999999.99")),
    "w": (None, Decimal("0"), Decimal("1.5"), Decimal("9999999999999999999999999999.9999999999")),
    "s": (None, "", "a", "A", "a ", "é", "é", "\U0001f600", "￿", "\x00", "null", "a" * 40),
    "t": (
        None,
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime(2024, 2, 29, 12, tzinfo=UTC),
    ),
    "u": (None, datetime(1969, 12, 31, 0, 0, 0, 1), datetime(1582, 10, 10), datetime(2024, 3, 1)),
    "d": (None, date(1, 1, 1), date(1582, 10, 10), date(1970, 1, 1), date(2024, 2, 29), date(9999, 12, 31)),
    "b": (None, True, False),
    "x": (None, 0.0, -0.0, float("nan"), float("inf"), 1.5),
    "a": (None, [], [1, None], [1, 2]),
}


def hostile(rows: int, seed: int, most: int = 6) -> pa.Table:
    """Rows of values that engines treat differently; `id` has few values, so that joins find some, and null."""
    chance = random.Random(seed)
    columns = {name: [chance.choice(values) for _ in range(rows)] for name, values in HOSTILE.items()}
    columns["id"] = [chance.choice([None, *range(most)]) for _ in range(rows)]
    return pa.table({field.name: pa.array(columns[field.name], field.type) for field in SCHEMA}, schema=SCHEMA)


Rows = Callable[..., DataFrame]


def _listed(text: str) -> list[str]:
    return text.strip().replace("\n", "|").replace("|    ", "|").split("|")


@cache
def _no_rows(spark: SparkSession, place: int) -> DataFrame:
    """A source without rows; each place has its own: a frame joined with itself has each column twice."""
    return spark.createDataFrame([], SPARK_TYPES).alias(source_name(place))


def direct_logic(spark: SparkSession, rows: Rows, sources: int = 1) -> Direct | None:
    logic = rows(*(_no_rows(spark, place) for place in range(sources)))
    return direct_of(analysed(logic), [SCHEMA] * sources, arrow_schema(logic.schema))


def translated(spark: SparkSession, rows: Rows, tables: Sequence[pa.Table]) -> tuple[Direct | None, DataFrame]:
    return direct_logic(spark, rows, len(tables)), rows(*(frame_of_arrow(spark, one) for one in tables))


def counted(rows: pa.Table) -> Counter[str]:
    numbers = {pa.date32(): pa.int32(), pa.timestamp("us", "UTC"): pa.int64(), pa.timestamp("us"): pa.int64()}
    schema = [field.with_type(numbers.get(field.type, field.type)) for field in rows.schema]  # Python has fewer years
    return Counter(map(repr, rows.cast(pa.schema(schema)).to_pylist()))


def check(spark: SparkSession, rows: Rows, *tables: pa.Table) -> None:
    """Both engines give the same rows; or this process fails, and leaves them to Spark."""
    direct, logic = translated(spark, rows, tables)
    assert direct is not None
    frames = [pl.from_arrow(one) for one in tables]
    try:
        ours = direct.rows(frames)  # type: ignore[arg-type]
    except (pl.exceptions.PolarsError, pa.ArrowException):
        with pytest.raises(ArithmeticException):
            logic.toArrow()
        return
    theirs = pl.from_arrow(logic.toArrow())
    assert isinstance(theirs, pl.DataFrame)
    assert ours.schema == theirs.schema
    assert counted(ours.to_arrow()) == counted(theirs.to_arrow())


EXPRESSIONS = _listed("""
    i = j|i < j|i <= l|l > 5|m >= n|m = 1.5|s = 'a'|s < 'b'|s >= ''|s <> 'A'|d > date '1970-01-01'|not b|b and i > 0
    t >= timestamp '1970-01-01 00:00:00'|t < timestamp '2024-02-29 12:00:00.000001'|d = to_date(t)|to_date(t)|to_date(u)
    cast(t as date)|cast(u as date)|date(d)|i <=> j|s <=> null|b or i > 0|b = (i > 0)|i is null|s is not null|x is null
    a is not null|i in (1, 7, null)|s in ('a', 'é')|d in (date '1970-01-01')|i not in (1, 2)|u < u|u is null
    coalesce(i, j)|coalesce(i, l)|coalesce(m, n)|coalesce(s, 'none')|nvl(i, 0)|ifnull(s, '')|least(i, j)
    greatest(i, j, 0)|least(m, 0)|greatest(s, 'a')|least(d, to_date(t))|zeroifnull(i)|nvl2(i, 'set', 'unset')
    case when i > 0 then 'plus' when i < 0 then s end|if(b, i, j)|case when b then m else n end
    case s when 'a' then 1 when 'A' then 2 else 0 end|cast(i as long)|cast(i as decimal(10,0))|cast(l as decimal(20,0))
    cast(m as decimal(20,6))|cast(n as decimal(12,4))|cast(null as string)|cast(null as decimal(5,2))|cast(1 as tinyint)
    cast(3 as decimal(5,2))|'text'|true|date '0001-01-01'|m + n|m - n|m * n|1 - m|m * (1 - n)|i * m
    i in (null)|b in (true, null)|m in (1.5, null)|w not in (1.5)|t in (timestamp '2024-02-29 12:00:00')|2 in (1, 2)
    i in (j, null)|i in (0, j)|l in (-9223372036854775808, 7)|s not in ('a', null)|least(i, j, 1, i)
    -m|abs(m)|abs(n)|- cast(m as decimal(34,4))
    m + 1|j + 1|j - j|j * 2|-j|abs(j)|j * j|i + j|l + 1|l * i|-l|abs(l)|-i|cast(j as long) * j|l - i|m + n - 1.25
    case when j < 1000 then j * j else 0 end|i + null|x|a|s|w|i between 0 and 7|case when b then null else i end
    d between date '1970-01-01' and date '2024-12-31'|i + j between 0 and 9 and l > 1|m not between 0 and 1.5
    w > 1|w = 1.5|coalesce(w, 0)|timestamp '1969-12-31 23:59:59.999999'|timestamp '9999-12-31 23:59:59.999999'
    u|t|x > 1|x = x|x <=> null|x in (1.5, 0)|x not in (1.5D, null)|coalesce(x, 0)|greatest(x, 1)
    i / 2|x / 1.5D|x + 1|x - 0.1D|x * x|-x|abs(x)|m = x|n * 1.19D|m + x|l + 0.5D|cast(i as float)|cast(l as double)
    cast(x as float)|cast(m as double)|cast(cast(x as float) as double)|isnan(x)|x between -1 and 1.5|x < double(l)
    concat(s, 'a')|concat(s, '-', s)|length(s)|trim(s)|ltrim(s)|rtrim(s)|substring(s, 2)
    substring(s, 1, 2)|substring(s, 2, -1)|startswith(s, 'a')|endswith(s, 'a')|contains(s, 'a')|contains(s, '')
    cast(i as string)|cast(l as string)|cast(b as string)|year(d)|quarter(d)|month(d)|day(d)|dayofyear(d)|year(t)
    hour(t)|minute(t)|second(t)|hour(u)|date_trunc('day', t)|date_trunc('HOUR', t)|date_trunc('week', t)
    date_trunc('quarter', t)|trunc(d, 'MM')|trunc(d, 'week')|date_add(d, 1)|date_sub(d, j)
    datediff(d, date '2024-01-01')|datediff(d, to_date(t))|i % 2|l % -3|j % -1
    case when x > 0 then x else -x end|cast(l as float) * cast(i as float)|nvl(x, i)|cast(x as float) < x
""")


def compared(spark: SparkSession, rows: pa.Table, texts: Sequence[str]) -> list[str]:
    """Compare expressions in one evaluation of each engine; return those that this process leaves to Spark."""
    made, left = [], []
    frame = pl.from_arrow(rows)
    for text in texts:
        direct = direct_logic(spark, lambda one, text=text: one.select("id", F.expr(text).alias("value")))
        assert direct is not None, text
        try:
            direct.rows([frame])  # type: ignore[list-item]
            made.append(text)
        except (pl.exceptions.PolarsError, pa.ArrowException):
            left.append(text)
    selected = [F.expr(text).alias(f"{place}: {text}") for place, text in enumerate(made)]
    direct, logic = translated(spark, lambda one: one.select("id", "s", *selected), [rows])
    assert direct is not None
    ours, theirs = direct.rows([frame]), pl.from_arrow(logic.toArrow())  # type: ignore[list-item]
    assert isinstance(theirs, pl.DataFrame)
    assert ours.schema == theirs.schema
    for name in ours.columns:
        values = [one.select("id", "s", pl.col(name).alias("value")).to_arrow() for one in (ours, theirs)]
        assert counted(values[0]) == counted(values[1]), name
    return left


@pytest.mark.parametrize("first", range(0, len(EXPRESSIONS), 25))
def test_expressions_give_the_values_of_spark(spark, first):
    for text in compared(spark, hostile(300, 1), EXPRESSIONS[first : first + 25]):
        check(spark, lambda one, text=text: one.select("id", "s", F.expr(text).alias("value")), hostile(300, 1))


@pytest.mark.parametrize("first", range(0, len(EXPRESSIONS), 25))
def test_expressions_over_small_numbers_do_not_overflow(spark, first):
    rows = hostile(200, 2)
    for name in ("i", "l"):
        small = pa.array([None if v is None else v % 100 for v in rows[name].to_pylist()], SCHEMA.field(name).type)
        rows = rows.set_column(SCHEMA.get_field_index(name), name, small)
    too_large = pc.fill_null(pc.equal(rows["j"], 46_341), False)  # its square is
    rows = rows.filter(pc.invert(too_large))
    assert compared(spark, rows, EXPRESSIONS[first : first + 25]) == []


CONDITIONS = [
    text
    for text in EXPRESSIONS
    if any(word in text for word in ("=", "<", ">", " is ", " in ", "not ", "between")) and "case" not in text
]


@pytest.mark.parametrize(
    "text", [pytest.param(text, marks=[pytest.mark.heavy] * bool(n % 6)) for n, text in enumerate(CONDITIONS)]
)
def test_a_filter_keeps_the_rows_that_spark_keeps(spark, text):
    check(spark, lambda one: one.where(text).select("id", "i", "s", "x"), hostile(300, 3))


JOINS = ["inner", "left", "right", "full", "left_semi", "left_anti"]


MORE_KEYS = share([(keys, how) for keys in (["d"], ["m"], ["t"], ["s"], ["b", "id"]) for how in JOINS], 5)


@pytest.mark.parametrize(
    ("keys", "how"),
    [
        *((keys, how) for keys in (["id"], ["id", "s"], ["x"]) for how in JOINS),
        *(pytest.param(*one, marks=pytest.mark.heavy) for one in MORE_KEYS),
    ],
)
def test_a_join_gives_the_rows_of_spark(spark, how, keys):
    def rows(one: DataFrame, other: DataFrame) -> DataFrame:
        same = [one[name] == other[name] for name in keys]
        joined = one.join(other, same, how)
        mine = [one.i.alias("mine"), one.x.alias("x")]
        return joined.select(*mine) if how.startswith("left_") else joined.select(*mine, other.i.alias("theirs"))

    check(spark, rows, hostile(120, 4), hostile(90, 5))
    check(spark, rows, hostile(0, 4), hostile(9, 5))
    check(spark, rows, hostile(9, 4), hostile(0, 5))


@pytest.mark.parametrize("how", JOINS)
@pytest.mark.parametrize("kind", ["double", "float"])
def test_a_join_of_sorted_floats_gives_the_rows_of_spark(spark, how, kind):
    """Polars merges sorted floats, and finds no match for NaN."""

    def rows(one: DataFrame, other: DataFrame) -> DataFrame:
        left, right = (side.select(F.col("x").cast(kind), "l").where("x IS NOT NULL") for side in (one, other))
        return left.withColumnRenamed("l", "mine").join(right, "x", how)

    frames = [pl.from_arrow(hostile(number, seed)).sort("x") for number, seed in ((120, 4), (90, 5))]  # type: ignore[union-attr]
    direct, logic = translated(spark, rows, [frame.to_arrow().cast(SCHEMA) for frame in frames])
    assert direct is not None
    ours = direct.rows(frames)
    assert counted(ours.to_arrow().cast(logic.toArrow().schema)) == counted(logic.toArrow())


@pytest.mark.parametrize("how", JOINS)
def test_a_join_by_names_gives_the_rows_of_spark(spark, how):
    def rows(one: DataFrame, other: DataFrame) -> DataFrame:
        return one.select("id", "s", "i").join(other.select("id", "s", F.col("j").alias("k")), ["id", "s"], how)

    check(spark, rows, hostile(120, 6), hostile(90, 7))


@pytest.mark.parametrize("how", ["inner", "left", "left_semi", "left_anti"])
def test_a_further_condition_on_the_right_side_gives_the_rows_of_spark(spark, how):
    def rows(one: DataFrame, other: DataFrame) -> DataFrame:
        joined = one.join(other, (one.id == other.id) & (other.i > 0) & other.s.isNotNull(), how)
        return joined.select(one.id, one.s)

    check(spark, rows, hostile(120, 8), hostile(90, 9))


def test_an_inner_join_with_an_unequal_condition_gives_the_rows_of_spark(spark):
    def rows(one: DataFrame, other: DataFrame) -> DataFrame:
        return one.join(other, (one.id == other.id) & (one.i < other.l)).select(one.id, other.l)

    check(spark, rows, hostile(120, 10), hostile(90, 11))


def test_three_joins_and_a_self_join_give_the_rows_of_spark(spark):
    def rows(one: DataFrame, other: DataFrame, third: DataFrame) -> DataFrame:
        again = other.select(F.col("id").alias("id2"), F.col("s").alias("s2"))
        joined = one.join(other, one.id == other.id, "left").join(third, one.s == third.s, "inner")
        return joined.join(again, again.id2 == third.id, "left").select(one.i, other.j, third.l, again.s2)

    check(spark, rows, hostile(25, 12), hostile(20, 13), hostile(15, 14))


def test_a_union_gives_the_rows_of_spark(spark):
    def rows(one: DataFrame) -> DataFrame:
        return one.select("id", "s").union(one.where("i > 0").select("id", F.lit("twice"))).union(one.select("id", "s"))

    check(spark, rows, hostile(100, 15))


CALLS = _listed("""
    count(*)|count(1)|count(i)|count(x)|count(a)|count(distinct s)|count(distinct i)|count(distinct b)|sum(i)|sum(j)
    sum(m)|sum(n)|max(i)|max(l)|max(s)|max(b)|max(d)|max(t)|max(u)|max(m)
    max(w)|min(i)|min(l)|min(s)|min(b)|min(d)|min(t)|min(u)|min(n)|min(w)|max(i) - min(j)|sum(m) + sum(n)|sum(i * j)
    case when count(*) > 3 then max(s) else min(s) end|coalesce(max(i), 0)|max(i + j)|sum(abs(m)) > 1|'literal'|7
    count(*) + 1|max(coalesce(s, 'none'))|least(max(d), to_date(max(t)))|max(distinct s)|count(i is null)
    count(null)|count(distinct x)|count(distinct cast(x as float))|count(x > 1)|max(x > 1)|count(i, s)|count(1, b)
    sum(i) filter (where b)|sum(m) filter (where s > 'a' and i > 0)|max(s) filter (where i is null)|count_if(b)
    count(*) filter (where x > 1)|count(s) filter (where b)|count(distinct s) filter (where i > 0)|count_if(i > j or b)
    count_if(true)|bool_and(b)|bool_or(i > j)|every(m > 1)|some(b) filter (where d is not null)
    count(i, s) filter (where b)|count(i, null)
""")
FEW_DIGITS = ("i", "j", "l")


def few_digits(rows: pa.Table) -> pa.Table:
    """The same rows with small numbers, whose sums do not overflow."""
    for name in FEW_DIGITS:
        small = pa.array([None if v is None else v % 100 for v in rows[name].to_pylist()], SCHEMA.field(name).type)
        rows = rows.set_column(SCHEMA.get_field_index(name), name, small)
    return rows


KEYS = (["id"], ["id", "s"], ["d"], ["b", "m"], ["t"], ["u", "i"], ["x"], ["x", "b"], [])


@pytest.mark.slow
@pytest.mark.parametrize("keys", KEYS, ids=lambda keys: ", ".join(keys) or "no keys")
def test_groups_give_the_rows_of_spark(spark, keys):
    made = [F.expr(text).alias(f"{place}") for place, text in enumerate(CALLS)]
    fewer = (hostile(0, 20), few_digits(hostile(1, 20))) if IS_THOROUGH or keys in (["id"], []) else ()
    for rows in (few_digits(hostile(300, 20)), *fewer):
        check(spark, lambda one: one.groupBy(*keys).agg(*made), rows)


@pytest.mark.parametrize("text", CALLS)
def test_an_aggregate_of_any_values_gives_the_value_of_spark_or_fails_in_both(spark, text):
    check(spark, lambda one: one.groupBy("id").agg(F.expr(text).alias("value")), hostile(300, 21))


def test_a_sum_that_is_too_large_for_its_type_is_left_to_spark(spark):
    rows = pa.table({"l": [2**62, 2**62], **{n: [None] * 2 for n in SCHEMA.names if n != "l"}}).select(SCHEMA.names)
    direct = direct_logic(spark, lambda one: one.agg(F.sum("l").alias("value")))
    assert direct is not None
    with pytest.raises(pl.exceptions.PolarsError, match="conversion from"):
        direct.rows([pl.from_arrow(rows.cast(SCHEMA))])  # type: ignore[list-item]


@pytest.mark.parametrize("values", [[2**62, 2**62, -(2**62)], [-(2**63), -1, 1], [2**63 - 1, -(2**63), 1, -1]])
def test_a_sum_of_which_a_part_may_be_too_large_is_left_to_spark(spark, values):
    """Spark adds up longs in the order in which it reads them, and fails at the first part that does not fit."""
    nothing = {n: [None] * len(values) for n in SCHEMA.names if n != "l"}
    rows = pa.table({"l": values, **nothing}).select(SCHEMA.names).cast(SCHEMA)
    direct = direct_logic(spark, lambda one: one.agg(F.sum("l").alias("value")))
    assert direct is not None
    with pytest.raises(pl.exceptions.PolarsError, match="conversion from"):
        direct.rows([pl.from_arrow(rows)])  # type: ignore[list-item]


def test_a_sum_up_to_both_ends_of_a_long_is_evaluated(spark):
    values = [2**63 - 1, -(2**62), -(2**62), None]
    rows = pa.table({"l": values, **{n: [None] * 4 for n in SCHEMA.names if n != "l"}}).select(SCHEMA.names)
    direct = direct_logic(spark, lambda one: one.agg(F.sum("l").alias("value")))
    assert direct is not None
    assert direct.rows([pl.from_arrow(rows.cast(SCHEMA))]).to_dicts() == [{"value": -1}]  # type: ignore[list-item]


def test_groups_by_expressions_and_of_groups_give_the_rows_of_spark(spark):
    def by_day(one: DataFrame) -> DataFrame:
        return one.groupBy(F.to_date("t").alias("day"), F.expr("i > 0")).agg(F.count("*").alias("n"), F.max("s"))

    def of_groups(one: DataFrame) -> DataFrame:
        inner = one.groupBy("id", "s").agg(F.sum("m").alias("m"), F.count("*").alias("n"))
        return inner.where("n > 1").groupBy("id").agg(F.max("m").alias("most"), F.sum("n").alias("n"))

    def having(one: DataFrame) -> DataFrame:
        return one.groupBy("s").agg(F.max("i").alias("i")).where("i > 0").select(F.expr("i + 1").alias("more"), "s")

    def twice(one: DataFrame) -> DataFrame:
        return one.groupBy(F.expr("coalesce(s, 'none')")).agg(F.expr("coalesce(s, 'none')").alias("s"), F.max("j"))

    rows = few_digits(hostile(300, 22))
    for logic in (by_day, of_groups, having, twice):
        check(spark, logic, rows)


def test_distinct_rows_are_those_of_spark(spark):
    check(spark, lambda one: one.select("id", "s", "m", "d", "t", "b").distinct(), hostile(300, 23, most=2))
    check(spark, lambda one: one.select("s").distinct().groupBy("s").count(), hostile(300, 23))
    check(spark, lambda one: one.select("b", "x").distinct(), hostile(300, 23))


@pytest.mark.slow
def test_a_join_with_the_one_row_of_an_aggregate_gives_the_rows_of_spark(spark):
    def beside(one: DataFrame, other: DataFrame) -> DataFrame:
        greatest = other.agg(F.max("i").alias("greatest"), F.count("*").alias("others"))
        return one.crossJoin(greatest).select("id", "s", "greatest", "others")

    def below(one: DataFrame, other: DataFrame) -> DataFrame:
        return (
            other.agg(F.max("i").alias("greatest")).join(one, F.col("greatest") > F.col("i")).select("id", "greatest")
        )

    def itself(one: DataFrame, other: DataFrame) -> DataFrame:
        return one.crossJoin(one.agg(F.max("j").alias("greatest"))).selectExpr("id", "greatest - j AS below")

    for logic in (beside, below, itself):
        check(spark, logic, few_digits(hostile(100, 24)), hostile(50, 25))
        check(spark, logic, few_digits(hostile(100, 24)), hostile(0, 25))
        check(spark, logic, hostile(0, 24), hostile(50, 25))


def test_a_value_that_this_process_cannot_compute_is_computed_by_spark(spark_lake):
    events = fh.stream("direct.events", schema={"k": "long", "i": "int"}, keys="k")
    square = F.when(F.col("i") < 1_000, F.col("i") * F.col("i")).otherwise(0)
    table = fh.table(
        "direct.squares",
        source=events,
        rows=lambda rows: rows.select("k", square.alias("square")),
        keys="k",
        fold=fh.fold(most=fh.maximum("square")),
    )
    lake = spark_lake()
    lake.append(events, pa.table({"k": [1, 2], "i": pa.array([30, 2**31 - 1], pa.int32())}))
    lake.refresh(table)
    assert sorted(map(tuple, (row.values() for row in lake.to_arrow(table).to_pylist()))) == [(1, 900), (2, 0)]


@pytest.mark.parametrize("text", ["x / x", "i / j", "1 / i", "1.5D / x"])
def test_a_division_by_zero_is_left_to_spark(spark, text):
    rows = few_digits(hostile(300, 29))
    zero = pc.or_kleene(pc.equal(rows["i"], 0), pc.or_kleene(pc.equal(rows["j"], 0), pc.equal(rows["x"], 0)))
    divisible = rows.filter(pc.invert(pc.fill_null(zero, False)))
    assert compared(spark, divisible, [text]) == []
    logic = direct_logic(spark, lambda one: one.select(F.expr(text).alias("value")))
    assert logic is not None
    with pytest.raises(pa.ArrowInvalid, match="by zero"):
        logic.rows([pl.from_arrow(rows)])  # type: ignore[list-item]


def test_the_case_of_letters_is_changed_here_if_all_are_ascii(spark):
    texts, rows = ["upper(s)", "lower(s)", "upper(s) = 'A'"], hostile(300, 31)
    assert compared(spark, rows, texts) == texts
    is_ascii = pc.equal(pc.binary_length(rows["s"]), pc.utf8_length(rows["s"]))
    assert compared(spark, rows.filter(pc.fill_null(is_ascii, True)), texts) == []


def test_a_day_that_polars_cannot_count_with_is_left_to_spark(spark):
    days = pa.array([2_932_897, None, -719_163], pa.int32()).cast(pa.date32())
    empty = {name: pa.nulls(3, SCHEMA.field(name).type) for name in SCHEMA.names}
    rows = pa.table(
        empty | {"d": days, "t": pa.array([253_402_300_800_000_000] * 3, pa.int64()).cast(SCHEMA.field("t").type)}
    )
    texts = ["year(d)", "trunc(d, 'MM')", "date_trunc('day', t)", "hour(t)", "date_add(d, 2147483647)"]
    assert compared(spark, rows, texts) == texts
    assert compared(spark, rows, ["date_add(d, 1)", "datediff(d, d)", "to_date(t)"]) == []


def test_a_division_that_a_condition_guards_is_evaluated(spark):
    guarded = [
        "case when j <> 0 then i / j else x end",
        "if(x = 0, null, 1 / x)",
        "case when j = 0 then 0D else i / j end",
    ]
    assert compared(spark, hostile(300, 30), guarded) == []


def test_a_decimal_that_java_rounds_once_is_not_rounded_twice(spark):
    numbers = [
        Decimal(f"{sign}{digits}.{rest}")
        for sign in ("", "-")
        for digits in (0, 7, 99999999)
        for rest in ("0001", "3333", "9999")
    ]
    rows = pa.table({name: numbers if name == "m" else [None] * len(numbers) for name in SCHEMA.names}, schema=SCHEMA)
    assert compared(spark, rows, ["cast(m as double)", "m * 1.1D", "m / 3D"]) == []
    wide = [Decimal(f"{2**53}"), Decimal("9999999999999999999999999999.9999999999")]
    rows = pa.table({name: wide if name == "w" else [None] * 2 for name in SCHEMA.names}, schema=SCHEMA)
    assert compared(spark, rows, ["cast(w as double)"]) == ["cast(w as double)"]


def test_literals_alone_are_as_many_rows_as_the_source(spark):
    check(spark, lambda one: one.select(F.lit(1).alias("one"), F.lit("a").alias("a")), hostile(70, 16))
    check(spark, lambda one: one.where(F.lit(False)).select(F.lit(1).alias("one")), hostile(70, 16))


def test_a_column_that_nobody_uses_needs_no_spark(spark):
    left_out = F.expr("initcap(s)")
    for rows in (
        lambda one: one.withColumn("left_out", left_out).where("i > 0").select("id", "s"),
        lambda one: one.withColumn("left_out", left_out).groupBy("id").agg(F.max("l")),
    ):
        check(spark, rows, hostile(50, 3))


WINDOWS = _listed("""
    rank() over (partition by id order by s)|rank() over (partition by id, b order by i desc, d nulls last)
    dense_rank() over (partition by s order by m desc nulls first, t)|rank() over (partition by d order by b, i + 1L)
    lag(s) over (partition by id order by s)|lead(m, 2) over (partition by b order by m desc)
    lag(t, 3, timestamp '2024-01-01') over (partition by id order by t)
    lag(w, 1, null) over (partition by id order by w)
    lead(l, 0) over (partition by id order by l)|lag(d, 9999) over (partition by id order by d)
    coalesce(lag(u) over (partition by id order by u), u)
    sum(m) over (partition by id)|count(*) over (partition by s)|max(s) over (partition by id, b)
    count_if(b) over (partition by coalesce(s, 'none'))|max(i) filter (where b) over (partition by id)
    bool_or(i > 0) over (partition by u)|min(t) over (partition by m) = t|count(i, s) over (partition by s) + 1
    count(i) over (partition by id order by s rows between unbounded preceding and unbounded following)
""")
WINDOWS_LEFT_TO_SPARK = _listed("""
    row_number() over (order by s)|sum(m) over (partition by id order by d)|rank() over (partition by id order by x)
    rank() over (partition by x order by s)|lag(s) ignore nulls over (partition by id order by s)
    ntile(2) over (partition by id order by s)|first_value(s) over (partition by id order by s)
    max(x) over (partition by id)|count(*) over (partition by initcap(s))
    percent_rank() over (partition by id order by s)
    count(*) over (partition by id order by s rows between 1 preceding and current row)
    rank() over (partition by id order by s collate UTF8_LCASE)|count(*) over (partition by a)|count(*) over ()
    lag(s, 1, initcap(s)) over (partition by id order by s)|sum(w) over (partition by id)
""")


@pytest.mark.parametrize("text", WINDOWS)
def test_a_window_gives_the_rows_of_spark(spark, text):
    for rows in (hostile(300, 22), hostile(0, 22), hostile(1, 22)):
        check(spark, lambda one: one.select(F.expr(text).alias("value")), few_digits(rows))


def test_windows_of_different_orders_below_and_above_other_logic_give_the_rows_of_spark(spark):
    def rows(one: DataFrame, other: DataFrame) -> DataFrame:
        key = Window.partitionBy("id")
        newest = one.withColumn("place", F.rank().over(key.orderBy(F.col("d").desc(), "i")))
        newest = newest.withColumn("of_key", F.count("*").over(key)).where("place <= 2")
        joined = newest.join(other.groupBy("id").agg(F.max("l").alias("most")), "id", "left")
        again = joined.withColumn("place", F.dense_rank().over(Window.partitionBy("b").orderBy("most", "place")))
        both = again.select("id", "place", "of_key", "most")
        return both.union(both.where("place > 1")).groupBy("place").agg(F.count("*"), F.sum("of_key"), F.max("most"))

    check(spark, rows, hostile(200, 24), hostile(50, 25))


@pytest.mark.parametrize("text", WINDOWS_LEFT_TO_SPARK)
def test_a_window_that_engines_may_see_differently_is_left_to_spark(spark, text):
    assert direct_logic(spark, lambda one: one.select("id", F.expr(text).alias("value"))) is None


CALLS_LEFT_TO_SPARK = _listed("""
    max(x)|sum(cast(l as decimal(30,0)))|avg(m)|max(struct(i, s))|sort_array(collect_list(i))
    count(distinct i, s)|min(x)|sum(1)|max(1)|sum(i) filter (where initcap(s) = 'A')|bool_and(true)|sum(distinct i)
    max_by(s, id)|count(distinct a)|sum(w)|max(s collate UTF8_LCASE)|max(x) filter (where b)|count_if(distinct b)
""")


@pytest.mark.parametrize("text", CALLS_LEFT_TO_SPARK)
def test_an_aggregate_that_engines_may_see_differently_is_left_to_spark(spark, text):
    direct = direct_logic(spark, lambda one: one.groupBy("id").agg(F.expr(text).alias("value")))
    assert direct is None


LEFT_TO_SPARK = _listed("""
    m / n|m / 2|m % 2|x % 2|sqrt(x)|x = 1.5F|cast(w as float)|cast(cast(w as decimal(38,23)) as double)|cast(x as int)
    i div 2|initcap(s)|concat_ws('-', s, s)|length(cast(s as binary))|substring(s, -1)|substring(s, i, 1)
    cast(l as int)|cast(m as string)|cast(s as int)|cast(m as decimal(5,2))|cast(m as long)|cast(x as decimal(10,2))
    isnan(s)|nanvl(x, 0)
    try_add(i, j)|try_cast(s as int)|a[0]|size(a)|a = a|w + w|w * w|date_trunc(s, t)|cast(d as timestamp)
    t = d|cast(t as timestamp_ntz)|to_date(s)|to_date(s, 'yyyy')|explode(a)|s like 'a%'|startswith(s, s)
    trim(both 'a' from s)|trunc(d, 'day')|concat()|1 + 1|cast(t as long)
    date '0000-12-31'|timestamp '0000-01-01 00:00:00'
    s = 'a' collate UTF8_LCASE|timestamp '-0001-01-01 00:00:00'|timestamp '+10000-01-01 00:00:00'|date '+10000-01-01'
    interval 1 day|(select max(id) from range(3))|try_cast(1000 as tinyint)|cast(1.5 as int)|cast(1.25 as decimal(1,0))
    -w|abs(w)|- cast(m as decimal(35,4))|nullif(i, 1)|u = timestamp_ntz '2024-03-01 00:00:00'|j + greatest(2, 3)
    i between 0 and (case when j between 0 and 1 then 1 else 2 end)
    x = -0.0D|x in (-0.0D)|-0.0D|least(x, -0.0D)|nvl(x, -0.0D)|date_trunc('wee\u212a', t)|trunc(d, 'wee\u212a')
""")


def test_a_long_list_is_compared_at_once(spark):
    numbers = ", ".join(map(str, range(-1_000, 1_000)))
    check(
        spark, lambda one: one.selectExpr("id", f"i in ({numbers}) AS found", f"l not in ({numbers})"), hostile(300, 28)
    )


def test_a_time_means_the_same_whatever_session_the_logic_leaves_active(spark):
    other = spark.newSession()
    other.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")

    def rows(one: DataFrame) -> DataFrame:
        other.createDataFrame([(1,)], "a int")  # PySpark makes its session the active one
        return one.where(F.col("t") >= F.expr("timestamp '2024-02-29 12:00:00Z'")).select("id", "t")

    try:
        check(spark, rows, hostile(300, 29))
        moments = pa.array([1_709_200_800_000_000 + minutes * 60_000_000 for minutes in range(0, 1_200, 60)])
        near = pa.concat_tables([hostile(20, 30)]).set_column(
            SCHEMA.get_field_index("t"), SCHEMA.field("t"), moments.cast(SCHEMA.field("t").type)
        )
        check(spark, rows, near)
    finally:
        spark.createDataFrame([(1,)], "a int")


IN_A_ZONE = ("hour(t)", "to_date(t)", "cast(t as date)", "date_trunc('day', t)", "year(t)", "datediff(to_date(t), d)")


@pytest.mark.parametrize("through_a_view", [True, False])
def test_what_was_analysed_in_another_time_zone_is_left_to_spark(spark, through_a_view):
    def in_tokyo(one: DataFrame, text: str) -> DataFrame:
        spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        try:
            if not through_a_view:
                return one.select(F.expr(text).alias("value"))
            one.createOrReplaceTempView("given")
            spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW in_tokyo AS SELECT {text} AS value FROM given")
        finally:
            spark.conf.set("spark.sql.session.timeZone", "UTC")
        return spark.table("in_tokyo")

    for text in IN_A_ZONE:
        assert direct_logic(spark, lambda one, text=text: in_tokyo(one, text)) is None, text
    plan = analysed(in_tokyo(_no_rows(spark, 0), "to_date(t)"))
    assert origins_of(plan, ["value"]) == {}
    assert [
        one.is_day
        for one in origins_of(analysed(_no_rows(spark, 0).selectExpr("to_date(t) AS value")), ["value"]).values()
    ] == [True]


MANY_PARTS = {
    "least": f"least({', '.join(['i', 'j'] * 8)})",
    "nested": "least(i, greatest(j, least(i, greatest(j, least(i, greatest(j, least(i, greatest(j, 1))))))))",
    "case": f"case {' '.join(f'when i = {n} then j' for n in range(300))} end",
    "and": " and ".join(["i > j"] * 300),
    "in": f"i in ({', '.join(['j', 'i + 1'] * 100)})",
}


@pytest.mark.parametrize("what", MANY_PARTS)
def test_an_expression_that_takes_long_to_plan_is_left_to_spark(spark, what):
    """Polars repeats the parts of `least` in each other: 14 columns took more than a minute."""
    direct = direct_logic(spark, lambda one: one.select("id", F.expr(MANY_PARTS[what])))
    assert direct is None


@pytest.mark.parametrize("text", LEFT_TO_SPARK)
def test_an_expression_that_engines_may_see_differently_is_left_to_spark(spark, text):
    direct = direct_logic(spark, lambda one: one.select("id", F.expr(text).alias("value")))
    assert direct is None


OTHER_PLANS: dict[str, Rows] = {
    "cross": lambda one, other: one.crossJoin(other).select(one.id),
    "cross with groups": lambda one, other: one.crossJoin(other.groupBy("id").count()).select(one.id),
    "left without equal columns": lambda one, other: one.join(other.agg(F.max("i")), F.lit(True), "left").select("id"),
    "extremes of floats": lambda one, other: one.groupBy("id").agg(F.max("x")),
    "distinct lists": lambda one, other: one.select("a").distinct(),
    "grouping sets": lambda one, other: one.rollup("id", "s").count(),
    "first rows of groups": lambda one, other: one.dropDuplicates(["id"]).select("id", "s"),
    "a window, and one column twice": lambda one, other: one.selectExpr("id", "id", "count(*) OVER (PARTITION BY id)"),
    "unequal": lambda one, other: one.join(other, one.i < other.i).select(one.id),
    "null-safe": lambda one, other: one.join(other, one.id.eqNullSafe(other.id)).select(one.id),
    "left with a condition on the left": lambda one, other: one.join(
        other, (one.id == other.id) & (one.i > 0), "left"
    ).select(one.id),
    "full with a condition": lambda one, other: one.join(other, (one.id == other.id) & (other.i > 0), "full").select(
        one.id
    ),
    "an empty list": lambda one, other: one.where(~F.col("s").isin([])).select("id"),
    "no columns": lambda one, other: one.select().withColumn("k", F.lit("all")),
    "a count of no columns": lambda one, other: one.drop(*one.columns).agg(F.count("*")),
    "groups of no columns": lambda one, other: one.select().groupBy(F.lit("all")).agg(F.count("*")),
    "a join of no columns": lambda one, other: one.select().crossJoin(other.agg(F.max("i"))),
    "a union of no columns": lambda one, other: one.select().union(one.select()).withColumn("k", F.lit("all")),
    "one column twice": lambda one, other: one.select("id", "id"),
    "except": lambda one, other: one.select("id").exceptAll(other.select("id")),
    "literal rows": lambda one, other: one.select("id").union(one.sparkSession.range(3)),
    "python": lambda one, other: one.select("id").mapInArrow(lambda batches: batches, "id long"),
}


@pytest.mark.parametrize("name", OTHER_PLANS)
def test_any_other_plan_is_left_to_spark(spark, name):
    direct = direct_logic(spark, OTHER_PLANS[name], 2)
    assert direct is None
