"""Every function that Spark registers is classified, and what gives another answer for the same input is refused."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import foldhouse as fh
from foldhouse.errors import DefinitionError, FoldhouseError
from foldhouse.logic.asked import check_words
from foldhouse.logic.compiled import Compiled, compile_table
from foldhouse.logic.functions import (
    AGGREGATES,
    CLASS_OF,
    DETERMINISTIC,
    FLOATS,
    FUNCTIONS,
    ORDERED,
    REFUSED,
    REFUSED_NAMES,
)
from foldhouse.storage.schema import Layout, schema_of_types

pytestmark = pytest.mark.spark

TYPES = {"k": "string", "n": "int", "t": "timestamp", "d": "date", "x": "double", "s": "string"}
EVENTS_OF_SPARK = ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
EVENTS = fh.stream("f.events", schema=TYPES, keys="k")


def layout() -> Layout:
    return Layout(schema_of_types(TYPES).model_dump_json(), '{"spec-id": 0, "fields": []}', "file:///nowhere", (), ())


def compiled(
    spark: SparkSession, rows: Callable[..., DataFrame] | None = None, argument: fh.ColumnFold | None = None
) -> Compiled:
    fold = fh.fold(a=argument if argument is not None else fh.count())
    return compile_table(fh.table("f.t", source=EVENTS, rows=rows, fold=fold), [layout()], lambda: spark)


@pytest.mark.classic
def test_every_function_that_spark_registers_is_classified(spark: SparkSession) -> None:
    names = {row[0] for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect()}
    words = {name for name in names if name.isidentifier()}
    known = FUNCTIONS | REFUSED_NAMES.keys() | CLASS_OF.keys()
    assert words - known == set(), "look at each: is its answer the same for the same input?"
    assert known - words == set(), "no function of Spark's"
    assert not FUNCTIONS & (REFUSED_NAMES.keys() | CLASS_OF.keys())
    assert known >= AGGREGATES
    assert set(CLASS_OF.values()) <= ORDERED.keys() | FLOATS
    assert not DETERMINISTIC & (REFUSED.keys() | ORDERED.keys() | FLOATS)


REFUSED_TEXTS = """random()|rand()|randn(1)|spark_partition_id()|timestamp 'now'|date 'today'|date'tomorrow'
timestamp /*x*/ 'yesterday'|cast('today' as date)|to_date('now')|date('today')|string(now())|current_date|now()
localtimestamp()|current_user|session_user|uuid()|reflect('java.util.UUID','randomUUID')|version()
java_method('java.util.UUID','randomUUID')|try_reflect('java.util.UUID','randomUUID')|input_file_name()
aes_encrypt(s,'0000111122223333')|shuffle(array(1,2))|unix_timestamp()|current_timezone()|t > 'now'|d > 'tomorrow'
transform(array(n), q -> q + rand())|cast(concat('to','day') as date)|timestamp_ntz 'now'|timestamp_ltz 'now'
coalesce(d, date 'today')|case when d = date'today' then 1 end|monotonically_increasing_id()|randstr(5)|uniform(1,2)
curdate()|array(date 'today')|named_struct('a', timestamp 'now')|date_add(current_date,1)|current_catalog()
nvl(n, cast(rand()*10 as int))|(select current_timestamp())|date_trunc('day', now())|timestamp('now')|current_database()
input_file_block_start()|input_file_block_length()|current_timestamp|current_time()|current_schema()
lag(n) over (partition by k order by t)|ntile(2) over (order by n)
collect_list(n) over (partition by k order by t)|sum(x) over (partition by k)|first(n) over (partition by k order by t)
sum(n) over (partition by k order by t rows between 1 preceding and current row)
lead(s) over (partition by k order by n)|avg(n) over (partition by k)
cast('to' 'day' as date)|date(replace('tox','x','day'))
try_sum(n) over (partition by k)|try_avg(cast(n as decimal(9,2))) over (partition by k)
""".replace("\n", "|").strip("|")
ACCEPTED_TEXTS = """timestamp 'epoch'|timestamp '2020-01-01'|date '2020-02-29'|to_date(s)|unix_timestamp(t)
t > '2020-01-01'|row_number() over (partition by k order by t)
upper(s)|transform(array(n), q -> q + 1)|concat('to','day')|s = 'now'|x'1f'|interval 1 day|make_date(2020,1,1)
(select max(id) from range(3))|sum(n) over (partition by k order by t)|rank() over (partition by k order by t)
max(x) over (partition by k)|count(*) over ()|hash(k, n)|date_format(t, 'yyyy')|regexp_extract(s, '(a)', 1)|md5(s)
row_number() over (partition by k order by t, n, d, x, s)|case when n > 1 then 'now' end|s like 'today%'
""".replace("\n", "|").strip("|")


@pytest.mark.slow
def test_expressions_that_give_another_answer_are_refused_by_name_in_rows_and_in_arguments(spark: SparkSession) -> None:
    for text in REFUSED_TEXTS.split("|"):
        with pytest.raises(DefinitionError, match=r"f\.t: .*A table must always equal the fold of its source"):
            compiled(spark, argument=fh.maximum(lambda text=text: F.expr(f"string({text})")))
        with pytest.raises(DefinitionError, match=r"f\.t: .*A table must always equal the fold of its source"):
            compiled(spark, lambda e, text=text: e.selectExpr("k", "n", "t", "d", "x", "s", f"string({text}) AS v"))


@pytest.mark.slow
@pytest.mark.classic
def test_expressions_that_give_the_same_answer_are_accepted(spark: SparkSession) -> None:
    for text in ACCEPTED_TEXTS.split("|"):
        compiled(spark, argument=fh.count(lambda text=text: F.expr(text)))


def test_texts_that_are_joined_of_literals_are_refused_over_connect() -> None:
    for text in ("cast('to'||'d'||'ay' as date)", "cast('to' /* */ 'day' as date)", "date(concat('to', \"day\"))"):
        with pytest.raises(DefinitionError, match=r"by the present (day|time)"):
            check_words(text)
    for text in (
        "k in ('a','b')",
        "'a' || 'b'",
        "concat(s, 'a')",
        "replace(s,'a','b') || 'c'",
        "to_date('2020-01-01')",
        "array('a', 'b')",
    ):
        check_words(text)


SUMS = {"sum(n)": True, "sum(n * 2)": True, "sum(cast(x as decimal(20,2)))": True, "sum(x)": False, "avg(x)": False}
SUMS |= {"avg(n)": False, "avg(cast(n as decimal(20,0)))": True, "sum(case when n > 1 then x end)": False}


@pytest.mark.parametrize("name", ["try_sum", "try_avg"])
def test_a_sum_that_is_null_where_a_part_of_it_overflows_is_refused(spark: SparkSession, name: str) -> None:
    """Of 2^63 - 1, 2^63 - 1 and 1 - 2^63 `try_sum` is null, and in another order of the rows it is a number."""
    with pytest.raises(DefinitionError, match=rf"{name}\(.*once a part of its sum does not fit"):
        compiled(spark, lambda e: e.groupBy("k").agg(getattr(F, name)(F.col("n").cast("decimal(9,2)")).alias("n")))


def test_without_ansi_a_sum_of_long_decimals_is_refused(spark: SparkSession) -> None:
    def rows(digits: int, name: str) -> Callable[[DataFrame], DataFrame]:
        given = F.col("n").cast(f"decimal({digits},2)")
        return lambda e: e.groupBy("k").agg(getattr(F, name)(given).alias("n"), F.sum("n").alias("m"))

    for name in ("sum", "avg"):
        compiled(spark, rows(38, name))
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        for name in ("sum", "avg"):
            compiled(spark, rows(28, name))
            with pytest.raises(
                DefinitionError, match=r"once a part of its sum does not fit|adds floats in another order"
            ):
                compiled(spark, rows(29, name))
    finally:
        spark.conf.set("spark.sql.ansi.enabled", "true")


def test_sums_and_averages_of_what_adds_up_exactly_are_accepted(spark: SparkSession) -> None:
    for text, is_exact in SUMS.items():
        name, _, given = text.removesuffix(")").partition("(")

        def rows(e: DataFrame, name: str = name, given: str = given) -> DataFrame:
            return e.groupBy("k").agg(F.coalesce(getattr(F, name)(F.expr(given)), F.lit(0)).alias("n"))

        if is_exact:
            compiled(spark, rows)
        else:
            with pytest.raises(DefinitionError, match="adds floats in another order each time"):
                compiled(spark, rows)


REFUSED_ROWS: dict[str, tuple[Callable[[DataFrame], DataFrame], str]] = {
    "a limit": (lambda e: e.limit(3), "a limit without an order"),
    "a limit that ties": (lambda e: e.orderBy("n").limit(3), "order by d, k, s, t, x as well"),
    "a sample": (lambda e: e.sample(0.5, 1), "sample"),
    "any row of a key": (lambda e: e.dropDuplicates(["k"]), r"dropDuplicates\(k\)"),
    "the first of a group": (lambda e: e.groupBy("k").agg(F.first("n")), "first"),
    "a sum of floats": (lambda e: e.groupBy("k").agg(F.sum("x").alias("x")), "floats"),
    "a list in any order": (lambda e: e.groupBy("k").agg(F.collect_list("n").alias("n")), "sort_array"),
    "a function that says so": (
        lambda e: e.withColumn("n", F.udf(lambda n: n, "int").asNondeterministic()("n")),
        "not deterministic",
    ),
    "the present time": (lambda e: e.withColumn("v", F.lit(datetime.now())), "differs each time"),
    "a random literal": (lambda e: e.withColumn("v", F.lit(random.random())), "differs each time"),
}


@pytest.mark.parametrize("what", REFUSED_ROWS)
def test_rows_that_are_others_each_time_are_refused(spark: SparkSession, what: str) -> None:
    rows, message = REFUSED_ROWS[what]
    if not hasattr(spark, "_jsparkSession"):  # Connect names the relation only
        message = "A table must always equal the fold of its source"
    with pytest.raises(DefinitionError, match=message):
        compiled(spark, rows)


def _collated(e: DataFrame) -> DataFrame:
    return e.withColumn("s", F.expr("s COLLATE UTF8_LCASE"))


BY_CHANCE: dict[str, Callable[[DataFrame], DataFrame]] = {
    "a group": lambda e: e.groupBy(F.expr("s COLLATE UTF8_LCASE").alias("s")).agg(F.max("k").alias("k")),
    "a group of a column": lambda e: _collated(e).groupBy("s").agg(F.max("k").alias("k")),
    "a text made of a group": lambda e: _collated(e).groupBy("s").agg(F.hex("s").alias("s"), F.max("k").alias("k")),
    "a cast": lambda e: e.select("k", F.col("s").cast("string collate UNICODE_CI").alias("s")).distinct(),
    "a group of an array": lambda e: (
        _collated(e).groupBy(F.array("s").alias("a")).agg(F.max("k").alias("k")).selectExpr("k", "a[0] AS s")
    ),
    "a group of structs in an array": lambda e: (
        _collated(e)
        .groupBy(F.array(F.struct("s")).alias("a"))
        .agg(F.max("k").alias("k"))
        .selectExpr("k", "a[0].s AS s")
    ),
    "distinct rows": lambda e: _collated(e).select("k", "s").distinct(),
    "distinct in SQL": lambda e: e.sparkSession.sql("SELECT DISTINCT k, s COLLATE UTF8_LCASE AS s FROM {e}", e=e),
    "the greatest": lambda e: _collated(e).groupBy("k").agg(F.max("s").alias("s")),
    "the greatest struct": lambda e: _collated(e).groupBy("k").agg(F.min(F.struct("s")).alias("m")).select("k", "m.s"),
    "a sorted list": lambda e: _collated(e).groupBy("k").agg(F.expr("sort_array(collect_list(s))[0]").alias("s")),
    "a window": lambda e: _collated(e).select("k", "s").withColumn("n", F.expr("row_number() OVER (ORDER BY k, s)")),
    "the greatest of a window": lambda e: e.select("k", F.expr("max(s COLLATE UTF8_LCASE) OVER ()").alias("s")),
    "a limit": lambda e: _collated(e).select("k", "s").orderBy("k", "s").limit(1),
    "a set": lambda e: _collated(e).select("k", "s").intersect(_collated(e).select("k", "s")),
}
"""Logic of which the text is that of the first of the rows ('k', 'a') and ('k', 'A')."""


@pytest.mark.parametrize("what", BY_CHANCE)
def test_one_of_the_texts_that_a_collation_takes_for_equal_is_refused(spark: SparkSession, what: str) -> None:
    rows = BY_CHANCE[what]

    def answer(*texts: str) -> list[object]:
        made = spark.createDataFrame([("k", 1, None, None, None, text) for text in texts], EVENTS_OF_SPARK)
        return sorted(map(str, rows(made.repartition(1)).collect()))

    assert answer("a", "A") != answer("A", "a"), "Spark gives another answer in another order of the rows"

    def as_folded(e: DataFrame) -> DataFrame:
        made = rows(e)
        return made.withColumns({n: F.lit(None).cast(t) for n, t in TYPES.items() if n not in made.columns})

    with pytest.raises(DefinitionError, match="A table must always equal the fold of its source"):
        compiled(spark, as_folded)


ALIKE: dict[str, Callable[[DataFrame], DataFrame]] = {
    "a filter": lambda e: e.where("s COLLATE UTF8_LCASE = 'a' AND contains(s COLLATE UNICODE_CI, 'b')"),
    "a join": lambda e: e.join(
        e.selectExpr("s COLLATE UTF8_LCASE AS other").where("other = 'x'"), F.expr("s COLLATE UTF8_LCASE = other")
    ),
    "a group that is not kept": lambda e: _collated(e).groupBy("s").agg(F.max("k").alias("k")).select("k"),
    "a group by a condition": lambda e: e.groupBy(F.expr("s COLLATE UTF8_LCASE = 'a'").alias("s")).agg(
        F.max("k").alias("k"), F.countDistinct(F.expr("s COLLATE UNICODE_CI")).alias("n")
    ),
    "the greatest without it": lambda e: _collated(e).groupBy("k").agg(F.expr("max(s COLLATE UTF8_BINARY)").alias("s")),
}


@pytest.mark.classic
@pytest.mark.parametrize("what", ALIKE)
def test_collations_that_keep_no_text_by_chance_are_accepted(spark: SparkSession, what: str) -> None:
    compiled(spark, lambda e: ALIKE[what](e).selectExpr("k"), fh.count())


def test_a_file_that_is_no_source_is_refused(spark: SparkSession, tmp_path) -> None:
    spark.range(3).selectExpr("string(id) AS k").write.parquet(str(tmp_path / "other"))
    with pytest.raises(DefinitionError, match=r"not a source of the table|cannot be checked over Spark Connect"):
        compiled(spark, lambda e: e.join(spark.read.parquet(str(tmp_path / "other")), "k"))


@pytest.mark.classic
def test_logic_that_is_row_by_row_or_kept_by_columns_is_found(spark: SparkSession) -> None:
    def shape(rows: Callable[[DataFrame], DataFrame] | None = None, argument: fh.ColumnFold | None = None) -> object:
        return compiled(spark, rows, argument).shape

    assert shape(lambda e: e.where("n > 1").withColumn("s", F.upper("s"))).is_linear
    assert shape(lambda e: e.withColumn("n", F.udf(lambda n: n, "int")("n"))).is_linear
    assert shape(argument=fh.total("n + 1")).is_linear
    window = "CASE WHEN n > lag(n) OVER (PARTITION BY k ORDER BY t, n) THEN 1 ELSE 0 END"
    assert shape(argument=fh.total(window)).cells == (("k",),)
    assert shape(lambda e: e.selectExpr("*", "max(n) OVER (PARTITION BY k, d) AS m")).cells == (("d", "k"),)
    assert not shape(lambda e: e.selectExpr("*", "max(n) OVER () AS m")).is_known
    assert not shape(argument=fh.total("(SELECT max(id) FROM range(3))")).is_known
    assert not shape(lambda e: e.unionByName(e.sparkSession.createDataFrame([("a",)], "k string"), True)).is_known


def test_a_function_whose_change_would_not_be_noticed_is_warned_of(spark: SparkSession, caplog) -> None:
    made: dict[str, Callable[[int], int]] = {}
    exec("doubled = lambda n: 2 * n", made)
    doubled = made["doubled"]
    compiled(spark, lambda e: e.withColumn("n", F.udf(lambda n: 2 * n, "int")("n")))
    assert not caplog.records
    compiled(spark, lambda e: e.withColumn("n", F.udf(doubled, "int")("n")))
    (warned,) = caplog.messages
    assert warned.startswith("f.t: a change of the text of its logic may not be noticed, because of <function <lambda>")
    assert "which has no source text (in test_a_function" in warned
    assert "rebuild the table after such a change" in warned


def test_rows_that_a_definition_holds_itself_are_part_of_its_hash(spark: SparkSession) -> None:
    def hash_of(*names: str) -> str:
        made = spark.createDataFrame([(name,) for name in names], "k string")
        return compiled(spark, lambda e: e.select("k").union(made)).definition_hash

    assert hash_of("a", "b") == hash_of("b", "a")
    assert hash_of("a", "b") != hash_of("a", "c")


def test_settings_that_change_what_expressions_mean_are_part_of_the_hash(spark: SparkSession) -> None:
    rows = lambda e: e.withColumn("n", F.expr("int(s)"))  # noqa: E731
    before = compiled(spark, rows).definition_hash
    try:
        spark.conf.set("spark.sql.ansi.enabled", "false")
        other = compiled(spark, rows).definition_hash
        spark.conf.set("spark.sql.ansi.enabled", "true")
        assert compiled(spark, rows).definition_hash == before != other
        spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        with pytest.raises(FoldhouseError, match="Asia/Tokyo"):
            compiled(spark, rows)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        spark.conf.set("spark.sql.ansi.enabled", "true")


SETTINGS = {
    "spark.sql.chunkBase64String.enabled": ("false", "base64(cast(repeat(s, 99) AS binary))"),
    "spark.sql.columnNameOfCorruptRecord": ("a", "from_json('{' || s, 'a string, b int').a"),
    "spark.sql.function.concatBinaryAsString": ("true", "concat(cast(s AS binary), cast(s AS binary))"),
    "spark.sql.function.eltOutputAsString": ("true", "elt(1, cast(s AS binary), cast(s AS binary))"),
    "spark.sql.icu.caseMappings.enabled": ("false", "initcap('ŉ ' || s)"),
    "spark.sql.json.enablePartialResults": (
        "false",
        'from_json(concat(\'{"a": {"b": "x", "c": \', length(s), \'}}\'), \'a struct<b: int, c: int>\').a.c',
    ),
    "spark.sql.jsonGenerator.ignoreNullFields": ("false", "to_json(named_struct('a', nullif(s, 'x'), 'b', 1))"),
    "spark.sql.preserveCharVarcharTypeInfo": ("true", "cast(s AS char(5))"),
}
"""A setting -> another value than Spark's default, and an expression of which it changes the value."""


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_that_changes_a_value_is_part_of_the_hash(spark: SparkSession, name: str) -> None:
    other, text = SETTINGS[name]
    rows = lambda e: e.withColumn("s", F.expr(f"cast({text} AS string)"))  # noqa: E731

    def seen() -> tuple[str, object]:
        value = spark.createDataFrame([("x",)], "s string").select(F.expr(text)).collect()[0][0]
        return compiled(spark, rows).definition_hash, value

    before = seen()
    spark.conf.set(name, other)
    try:
        changed = seen()
    finally:
        spark.conf.unset(name)
    assert changed[0] != before[0]
    assert changed[1] != before[1]
    assert seen() == before


@pytest.mark.classic
def test_logic_in_sql_has_the_same_hash_each_time(spark: SparkSession) -> None:
    rows = lambda e: e.sparkSession.sql("SELECT k, count(*) AS n FROM {e} GROUP BY k", e=e)  # noqa: E731
    assert compiled(spark, rows).definition_hash == compiled(spark, rows).definition_hash
