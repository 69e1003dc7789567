"""Joins that this process evaluates for Spark, which evaluates what stands above them, against DuckDB."""

from __future__ import annotations

import math
import os
import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from laws.rules import FULLY, WRITTEN
from oracle import assert_same, folded_at_its_position
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

import foldhouse as fh
from foldhouse.refresh.rows import written as rows_written
from foldhouse.refresh.run import joined, written

pytestmark = [pytest.mark.spark, pytest.mark.classic]

DAYS = [date(2024, 1, day) for day in (1, 2, 3)]
TYPES: dict[str, list[Any]] = {
    "n": [0, 1, -7, 2**31 - 1, None],
    "ratio": [0.0, -0.0, math.nan, 1.5, math.inf, None],
    "small": [0.0, -0.0, math.nan, 1.5, None],
    "price": [Decimal("0.00"), Decimal("-1.50"), Decimal("9" * 36 + ".99"), None],
    "seen": [date(1582, 10, 4), date(1, 1, 1), date(9999, 12, 31), None],
    "at": [datetime(1, 1, 1, tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), None],
    "local": [datetime(1582, 10, 10), datetime(9999, 12, 31, 23, 59, 59, 999_999), None],
    "raw": [b"", b"\x00\xff", None],
    "flag": [True, False, None],
}
KINDS = ["int", "double", "float", "decimal(38,2)", "date", "timestamptz", "timestamp", "binary", "boolean"]
_OWN = {"id": "long", "k": "long", "g": "string", "v": "long", "day": "date"}
one = fh.stream("joined.one", schema=_OWN, partition_by="day")
two = fh.stream("joined.two", schema={"k": "long", "h": "string", "w": "long", **dict(zip(TYPES, KINDS, strict=True))})
three = fh.stream("joined.three", schema={"w": "long", "x": "long"}, keys="w", sequence_by="x")
latest = fh.table("joined.latest", source=three, buckets=2, fold=fh.latest())
JOINED = fh.Tuning(**WRITTEN, **FULLY, joined_least_rows=0)


@dataclass(frozen=True)
class Case:
    """The rows to fold, as `rows` and as DuckDB's query, and whether this process joins them."""

    rows: Callable[..., DataFrame]
    sql: str
    is_joined: bool = True


def _word(name: str) -> str:
    return f"regexp_replace({name}, '[a-m]', 'x')"


def _sql_word(name: str) -> str:
    return f"regexp_replace({name}, '[a-m]', 'x', 'g')"


def _doubled(name: str) -> Column:
    """Twice a text, by a function of Python; it is made here because a session makes it."""
    return F.udf(lambda text: None if text is None else text + text, "string")(name)


def _case(how: str, g: str = "g", w: str = "w", condition: str = "one.k = two.k", is_joined: bool = True) -> Case:
    return Case(
        lambda one, two: (
            one.alias("one")
            .join(two.alias("two"), F.expr(condition), how)
            .selectExpr(f"{_word(g)} AS g", "v", f"{w} AS w")
        ),
        f"SELECT {_sql_word(g)} AS g, v, {w} AS w FROM one {how} JOIN two ON {condition}",
        is_joined,
    )


CASES = {
    "inner": _case("inner"),
    "left": _case("left"),
    "semi": _case("semi", w="v + 1"),
    "anti": _case("anti", w="v + 1"),
    "right": _case("right", g="h"),
    "full": _case("full", g="coalesce(g, h)"),
    "a further condition": _case("inner", condition="one.k = two.k AND v > w"),
    "a condition that only Spark evaluates": Case(
        lambda one, two: one.join(two, "k").where("g RLIKE '^[pq]'"),
        "SELECT g, v, w FROM one JOIN two USING (k) WHERE regexp_matches(g, '^[pq]')",
    ),
    "no other column": Case(
        lambda one, two: one.join(two, "k").selectExpr("regexp_replace('abc', 'b', 'x') AS g", "1L AS v", "2L AS w"),
        "SELECT 'axc' AS g, 1 AS v, 2 AS w FROM one JOIN two USING (k)",
    ),
    "grouped above": Case(
        lambda one, two: (
            one.join(two, "k").groupBy("k", F.expr(_word("g")).alias("g")).agg(F.expr("sum(v) v"), F.expr("max(w) w"))
        ),
        f"SELECT k, {_sql_word('g')} AS g, sum(v)::BIGINT AS v, max(w) AS w FROM one JOIN two USING (k) GROUP BY ALL",
    ),
    "grouped below": Case(
        lambda one, two: one.join(two.groupBy("k").agg(F.expr("max(w) w")), "k").selectExpr(
            f"{_word('g')} AS g", "v", "w"
        ),
        f"SELECT {_sql_word('g')} AS g, v, w FROM one JOIN (SELECT k, max(w) AS w FROM two GROUP BY k) USING (k)",
    ),
    "words below an inner join": Case(
        lambda one, two: (
            one.withColumn("g", F.expr(_word("g")))
            .withColumn("g", F.expr("regexp_replace(g, 'x', 'yz')"))
            .where("v <> 3 OR v IS NULL")
            .join(two.selectExpr("k", f"length({_word('h')}) + w AS w"), "k")
        ),
        f"""SELECT regexp_replace({_sql_word("g")}, 'x', 'yz', 'g') AS g, v, length({_sql_word("h")}) + w AS w
        FROM one JOIN two USING (k) WHERE v <> 3 OR v IS NULL""",
    ),
    "a word that stays": Case(
        lambda one, two: (
            one.withColumn("g", F.expr(_word("g")))
            .join(two, "k", "left")
            .groupBy("g", "k")
            .agg(F.expr("sum(v) v"), F.expr("max(w) w"))
        ),
        f"""SELECT {_sql_word("g")} AS g, sum(v)::BIGINT AS v, max(w) AS w FROM one LEFT JOIN two USING (k)
        GROUP BY {_sql_word("g")}, k""",
    ),
    "a word beside a semi join": Case(
        lambda one, two: (
            one.withColumn("g", F.expr(_word("g")))
            .withColumn("w", F.col("v") + 1)
            .join(two.withColumn("h", F.expr(_word("h"))), "k", "left_semi")
        ),
        f"SELECT {_sql_word('g')} AS g, v, v + 1 AS w FROM one SEMI JOIN two USING (k)",
    ),
    "a word that is not used": Case(
        lambda one, two: one.join(two.withColumn("h", F.expr(_word("h"))), "k").where("g RLIKE 'p'"),
        "SELECT g, v, w FROM one JOIN two USING (k) WHERE regexp_matches(g, 'p')",
    ),
    "a word that a left join makes null": Case(
        lambda one, two: one.join(
            two.selectExpr("k", "coalesce(" + _word("h") + ", 'none') AS h"), "k", "left"
        ).selectExpr("h AS g", "v", "v + 1 AS w"),
        f"""SELECT h AS g, v, v + 1 AS w
        FROM one LEFT JOIN (SELECT k, coalesce({_sql_word("h")}, 'none') AS h FROM two) USING (k)""",
        is_joined=False,
    ),
    "a function of Python": Case(
        lambda one, two: one.withColumn("g", _doubled("g")).join(two, "k"),
        "SELECT g || g AS g, v, w FROM one JOIN two USING (k)",
    ),
    "a window above": Case(
        lambda one, two: (
            one.join(two, "k")
            .withColumn("w", F.max("w").over(Window.partitionBy("k")))
            .selectExpr(f"{_word('g')} AS g", "v", "w")
        ),
        f"SELECT {_sql_word('g')} AS g, v, max(w) OVER (PARTITION BY one.k) AS w FROM one JOIN two USING (k)",
    ),
    "a collated text": Case(
        lambda one, two: (
            one.withColumn("word", F.expr("g COLLATE UTF8_LCASE")).join(two, "k").where("word IN ('PAL', 'quarZ')")
        ),
        "SELECT g, v, w FROM one JOIN two USING (k) WHERE lower(g) IN ('pal', 'quarz')",
    ),
    "joined by a word": Case(
        lambda one, two: one.withColumn("h", F.expr(_word("g"))).join(two, "h").selectExpr("g", "v", "w"),
        f"SELECT g, v, w FROM one JOIN two ON {_sql_word('g')} = h",
        is_joined=False,
    ),
    "filtered by a word": Case(
        lambda one, two: one.withColumn("word", F.expr(_word("g"))).where("word <> ''").join(two, "k"),
        f"SELECT g, v, w FROM one JOIN two USING (k) WHERE {_sql_word('g')} <> ''",
        is_joined=False,
    ),
}
COUNTED = fh.fold(n=fh.count(), v=fh.total("v"), w=fh.total("w"), most=fh.maximum("w"))
FOLDED = "count(*) AS n, sum(v)::BIGINT AS v, sum(w)::BIGINT AS w, max(w) AS most"


@pytest.fixture
def frames(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each fold from files of Spark, whether this process joined its sources."""
    found: list[bool] = []
    join = joined.joined_for_spark

    def noted(run, folder):
        made = join(run, folder)
        found.append(bool(made.frames))
        return made

    monkeypatch.setattr(written, "joined_for_spark", noted)
    return found


def _some(chance: random.Random, count: int, days: list[date] = DAYS) -> list[dict[str, Any]]:
    return [
        {
            "id": number,
            "k": chance.choice([*range(9), None]),
            "g": chance.choice(["pal", "quarz", "", None]),
            "v": chance.choice([-5, 0, 3, None]),
            "day": chance.choice(days),
        }
        for number in range(count)
    ]


def _others(chance: random.Random, count: int) -> list[dict[str, Any]]:
    return [
        {
            "k": chance.choice([*range(9), None]),
            "h": chance.choice(["pal", "rot", None]),
            "w": chance.choice([1, 2, 3, None]),
            **{name: chance.choice(values) for name, values in TYPES.items()},
        }
        for _ in range(count)
    ]


@pytest.mark.slow
def test_rows_of_joins_are_evaluated_by_spark(spark_lake, frames: list[bool]) -> None:
    lake, chance = spark_lake(tuning=JOINED), random.Random(1)
    tables = {
        name: fh.table(f"joined.t{at}", source=[one, two], rows=case.rows, keys="g", fold=COUNTED)
        for at, (name, case) in enumerate(CASES.items())
    }
    for step in range(2):
        lake.append(one, _some(chance, 40))
        lake.append(two, _others(chance, 30))
        if step:
            lake.replace(one, _some(chance, 9, DAYS[:1]), partitions=DAYS[:1])
        for name, table in tables.items():
            frames.clear()
            lake.refresh(table)
            assert frames == [CASES[name].is_joined], name
            _assert_right(lake, table, CASES[name].sql)


def _assert_right(lake: fh.Lake, table: fh.Table, sql: str) -> None:
    expected = f"SELECT g, {FOLDED} FROM ({sql}) WHERE g IS NOT NULL GROUP BY g"
    assert_same(lake.to_arrow(table), folded_at_its_position(lake, table, expected), ["g"])


@pytest.mark.slow
@pytest.mark.parametrize("is_divided", [False, True])
def test_every_type_of_value_reaches_spark_as_it_is(
    spark_lake, monkeypatch: pytest.MonkeyPatch, frames: list[bool], is_divided: bool
) -> None:
    if is_divided:
        monkeypatch.setattr("foldhouse.refresh.run.by_root._fits", lambda logic, evaluation, held: not held)

    def rows(one: DataFrame, two: DataFrame, latest: DataFrame) -> DataFrame:
        met = one.join(two, "k", "left").join(latest, "w", "left")
        return met.withColumn("g", F.expr(_word("g"))).select("id", "g", "x", *TYPES)

    chance = random.Random(3)
    by_spark, by_both = spark_lake("by_spark", tuning=fh.Tuning(joined_least_rows=10**9)), spark_lake(tuning=JOINED)
    fold = fh.fold(**{name: fh.collect(name) for name in TYPES if name not in ("ratio", "small")}, n_=fh.count())
    some = fh.fold(ratio=fh.maximum("ratio"), small=fh.minimum("small"), x=fh.maximum("x"), events=fh.count())
    tables = [
        fh.table(f"joined.t{at}", source=[one, two, latest], rows=rows, keys=["id", "g"], fold=each)
        for at, each in enumerate((fold, some))
    ]
    events = _some(chance, 60), _others(chance, 40), [{"w": w, "x": w % 2} for w in (1, 2, 3)]
    for lake in (by_spark, by_both):
        for stream, of_stream in zip((one, two, three), events, strict=True):
            lake.append(stream, of_stream)
        lake.refresh(latest)
        for table in tables:
            lake.refresh(table)
    assert frames[-1]
    for table in tables:
        assert_same(by_both.to_arrow(table), by_spark.to_arrow(table), ["id", "g"])


def test_only_the_days_of_a_backfill_are_folded(spark_lake, frames: list[bool]) -> None:
    lake, chance = spark_lake(tuning=JOINED), random.Random(2)
    table = fh.table(
        "joined.by_day",
        source=[one, two],
        rows=lambda one, two: one.join(two, "k").withColumn("g", F.expr(_word("g"))),
        keys=["day", "g"],
        partition_by="day",
        fold=COUNTED,
    )
    lake.append(one, _some(chance, 60))
    lake.append(two, _others(chance, 40))
    lake.backfill(table, DAYS[:2])
    assert frames == [True]
    sql = f"""SELECT day, {_sql_word("g")} AS g, {FOLDED} FROM one JOIN two USING (k)
    WHERE day < '2024-01-03' AND g IS NOT NULL GROUP BY ALL"""
    assert_same(lake.to_arrow(table), folded_at_its_position(lake, table, sql), ["day", "g"])


def test_events_that_come_again_are_joined_once(spark_lake, frames: list[bool]) -> None:
    lake, chance = spark_lake(tuning=JOINED), random.Random(4)
    once = fh.stream("joined.once", schema=_OWN, event_id="id", sequence_by="v")
    table = fh.table("joined.t", source=[once, two], rows=CASES["left"].rows, keys="g", fold=COUNTED)
    events = [{**one, "v": number} for number, one in enumerate(_some(chance, 50))]
    lake.append(once, events)
    lake.append(once, [{**one, "v": 100 + one["v"], "k": 3} for one in events[:20]])
    lake.append(two, _others(chance, 20))
    lake.refresh(table)
    assert frames == [True]
    last = "SELECT * FROM once QUALIFY row_number() OVER (PARTITION BY id ORDER BY v DESC) = 1"
    _assert_right(lake, table, f"WITH one AS ({last}) {CASES['left'].sql}")


def test_spark_joins_what_this_process_cannot(spark_lake, monkeypatch: pytest.MonkeyPatch, frames: list[bool]) -> None:
    lake, chance, folders = spark_lake(tuning=replace(JOINED, chunk_rows=7)), random.Random(5), []
    table = fh.table("joined.t", source=[one, two], rows=CASES["left"].rows, keys="g", fold=COUNTED)
    lake.append(one, _some(chance, 60))
    lake.append(two, _others(chance, 40))
    answers, directly, write = iter([True, True, False]), joined.rows_directly, written.written_by_spark

    def failing(*given: Any) -> Any:
        return directly(*given) if next(answers, True) else None

    def noted(logic, evaluations, folder, *given, **named):
        folders.append(sorted(path.name for path in folder.parent.iterdir()))
        return write(logic, evaluations, folder, *given, **named)

    monkeypatch.setattr(joined, "rows_directly", failing)
    monkeypatch.setattr(written, "written_by_spark", noted)
    lake.refresh(table)
    assert frames == [False]
    assert not next(answers, False)  # it did fail
    assert folders == [[]]  # nothing of the rows before is left
    _assert_right(lake, table, CASES["left"].sql)


def test_small_sources_and_sessions_with_other_settings_join_in_spark(spark, spark_lake, frames: list[bool]) -> None:
    chance = random.Random(6)
    events, others = _some(chance, 30), _others(chance, 20)
    table = fh.table("joined.t", source=[one, two], rows=CASES["inner"].rows, keys="g", fold=COUNTED)
    for number, (least, is_joined) in enumerate([(20, True), (21, False)]):
        lake = spark_lake(f"lake{number}", tuning=replace(JOINED, joined_least_rows=least))
        lake.append(one, events)
        lake.append(two, others)
        lake.refresh(table)
        assert frames.pop() is is_joined
        _assert_right(lake, table, CASES["inner"].sql)
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        lake = spark_lake("settings", tuning=JOINED)
        lake.append(one, events)
        lake.append(two, others)
        lake.refresh(table)
        assert not frames.pop()
        _assert_right(lake, table, CASES["inner"].sql)
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")


def test_a_full_disk_is_named(spark_lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, chance = spark_lake(tuning=JOINED), random.Random(7)
    table = fh.table("joined.t", source=[one, two], rows=CASES["inner"].rows, keys="g", fold=COUNTED)
    lake.append(one, _some(chance, 30))
    lake.append(two, _others(chance, 20))
    write = joined.pq.write_table

    def full(rows: pa.Table, path: Path, **given: Any) -> None:
        with open("/dev/full", "wb", buffering=0) as device:  # by its path, Arrow would remove it
            write(rows, device, **given)

    with monkeypatch.context() as patch:
        patch.setattr(joined.pq, "write_table", full)
        with pytest.raises(fh.StorageError, match=r"joined\.t: the disk is full"):
            lake.refresh(table)
    lake.refresh(table)
    _assert_right(lake, table, CASES["inner"].sql)


ODD_FOLDERS = ["a b", "a%20b", "day=1", "[a]{b,c}*?", "\u00e9+@#;", "a:b"]


@pytest.mark.parametrize("name", ODD_FOLDERS)
def test_a_temporary_folder_may_have_any_name(
    spark_lake, frames: list[bool], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    """Spark takes an address as it is: rows were written to a folder `a%20b`, and none were found in `a b`."""
    (folder := tmp_path / name).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    lake, chance = spark_lake(tuning=JOINED), random.Random(8)
    lake.append(one, _some(chance, 30))
    lake.append(two, _others(chance, 20))
    tables = [
        fh.table("joined.here", source=[one, two], rows=CASES["inner"].rows, keys="g", fold=COUNTED),
        fh.table("joined.there", source=[one, two], rows=CASES["inner"].rows, keys="g", fold=COUNTED),
    ]
    for table, least in zip(tables, (0, 10**9), strict=True):
        lake.tuning = replace(JOINED, joined_least_rows=least)
        lake.refresh(table)
        _assert_right(lake, table, CASES["inner"].sql)
    assert frames == [True, False]
    assert not list(folder.iterdir())


def test_rows_that_spark_writes_elsewhere_are_missed(spark_lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, chance = spark_lake(tuning=JOINED), random.Random(9)
    table = fh.table("joined.t", source=[one, two], rows=CASES["inner"].rows, keys="g", fold=COUNTED)
    lake.append(one, _some(chance, 30))
    lake.append(two, _others(chance, 20))
    with monkeypatch.context() as patch:
        patch.setattr(rows_written, "address", lambda folder: folder.with_name("elsewhere").as_uri())
        with pytest.raises(fh.StorageError, match=r"joined\.t: Spark did not write its rows to"):
            lake.refresh(table)
    assert lake.head(table) is None
    lake.refresh(table)
    _assert_right(lake, table, CASES["inner"].sql)


@pytest.mark.parametrize("change", [lambda path: path.write_bytes(b""), Path.unlink], ids=["emptied", "removed"])
@pytest.mark.parametrize("when", ["before Spark lists them", "before Spark reads them"])
def test_joined_rows_that_another_program_changes_are_missed(
    spark_lake, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], Any], when: str
) -> None:
    """Spark leaves out a file without any bytes."""
    lake, chance = spark_lake(tuning=JOINED), random.Random(10)
    table = fh.table("joined.t", source=[one, two], rows=CASES["inner"].rows, keys="g", fold=COUNTED)
    lake.append(one, _some(chance, 30))
    lake.append(two, _others(chance, 20))
    opened, address = joined.files_of_this_process, rows_written.address

    def listed(session: Any, schema: Any, paths: list[Path]) -> DataFrame:
        change(paths[0])
        return opened(session, schema, paths)

    def read(folder: Path) -> str:
        change(next(folder.with_name("joined").glob("*.parquet")))
        return address(folder)

    with monkeypatch.context() as patch:
        if when == "before Spark lists them":
            patch.setattr(joined, "files_of_this_process", listed)
        else:
            patch.setattr(rows_written, "address", read)
        with pytest.raises(fh.StorageError, match=r"joined\.t: the temporary file .*parquet was changed or removed"):
            lake.refresh(table)
    assert lake.head(table) is None
    lake.refresh(table)
    _assert_right(lake, table, CASES["inner"].sql)


def _disturbed(chance: random.Random, given: DataFrame, texts: list[str], numbers: list[str]) -> DataFrame:
    """Compute columns, and leave out rows, sometimes with functions that only Spark has."""
    for _ in range(chance.randrange(3)):
        text, number, way = chance.choice(texts), chance.choice(numbers), chance.randrange(11)
        if way < 3:
            given = given.withColumn(text, F.expr(_word(text)))
        elif way < 5:
            given = given.withColumn(number, F.expr(f"{number} + length(regexp_replace({text}, 'a', ''))"))
        elif way < 7:
            given = given.withColumn(text, F.concat(text, F.lit("!")))
        elif way < 8:
            given = given.where(f"{number} > 0 OR {number} IS NULL")
        elif way < 10:
            there = given.withColumn("t", F.expr(_word(text)))
            given = there.withColumn(number, F.expr(f"coalesce({number}, length(t))"))
        else:
            given = given.where(f"{text} IS NULL OR {text} RLIKE '[a-z!]'")
    return given


def _drawn(seed: int) -> Callable[..., DataFrame]:
    """Make random logic over three sources."""

    def rows(one: DataFrame, two: DataFrame, latest: DataFrame) -> DataFrame:
        chance = random.Random(seed)
        ours, theirs = _disturbed(chance, one, ["g"], ["v"]), _disturbed(chance, two, ["h"], ["w"])
        if chance.random() < 0.3:
            theirs = theirs.groupBy("k").agg(F.max("w").alias("w"), F.min("h").alias("h"))
        how = chance.choice(["inner", "inner", "left", "left", "right", "left_semi", "left_anti"])
        met = ours.select("id", "k", "g", "v").join(theirs.select("k", "h", "w"), "k", how)
        if how in ("left_semi", "left_anti"):
            met = met.withColumn("h", F.col("g")).withColumn("w", F.col("v"))
        met = _disturbed(chance, met, ["g", "h"], ["v", "w"])
        met = met.join(latest.withColumnRenamed("w", "id"), "id", chance.choice(["inner", "left", "left_semi"]))
        met = _disturbed(chance, met, ["g", "h"], ["v", "w"])
        if chance.random() < 0.3:
            met = met.groupBy("k", "g", "h").agg(F.sum("v").alias("v"), F.max("w").alias("w"))
        return met.selectExpr("coalesce(g, h, '-') AS g", "CAST(v AS LONG) AS v", "CAST(w AS LONG) AS w")

    return rows


@pytest.mark.slow
def test_random_logic_gives_what_spark_alone_gives(spark_lake, frames: list[bool]) -> None:
    count = int(os.environ.get("FOLDHOUSE_LAW_HISTORIES", "16")) // 2
    lakes = spark_lake("by_spark", tuning=fh.Tuning(joined_least_rows=10**9)), spark_lake(tuning=JOINED)
    chance = random.Random(8)
    events = _some(chance, 60), _others(chance, 40), [{"w": w, "x": w % 2} for w in range(0, 60, 2)]
    for lake in lakes:
        for stream, of_stream in zip((one, two, three), events, strict=True):
            lake.append(stream, of_stream)
        lake.refresh(latest)
    for seed in range(count):
        table = fh.table(f"joined.t{seed}", source=[one, two, latest], rows=_drawn(seed), keys="g", fold=COUNTED)
        for lake in lakes:
            lake.refresh(table)
        assert_same(lakes[1].to_arrow(table), lakes[0].to_arrow(table), ["g"])
    assert sum(frames) >= count // 4
