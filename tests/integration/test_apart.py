"""Joins, groupings and row-by-row logic that this process evaluates in parts, against DuckDB."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from laws.amount import IS_THOROUGH, share
from oracle import assert_same, folded_at_its_position
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import foldhouse as fh
from foldhouse.refresh.run import apart, by_root
from foldhouse.refresh.run import parts as here
from foldhouse.refresh.run.in_process import fold_in_process

pytestmark = pytest.mark.spark

DAYS = [date(2024, 1, day) for day in (1, 2, 3)]
KEYS: dict[str, list[Any]] = {
    "int": [0, 1, -7, 2**31 - 1, None],
    "long": [0, 1, -7, 2**63 - 1, None],
    "string": ["", "a", "ab", "ein längerer Text als zwölf Bytes", None],
    "date": [*DAYS, date(1582, 10, 4), None],
    "timestamp": [datetime(2024, 1, 1, 0, 0, 0, 1, UTC), datetime(1969, 12, 31, tzinfo=UTC), None],
    "boolean": [True, False, None],
    "decimal(12,2)": [Decimal("0.00"), Decimal("-1.50"), Decimal("9999999999.99"), None],
    "double": [0.0, -0.0, math.nan, -math.nan, 1.5, math.inf, None],
    "float": [0.0, -0.0, math.nan, 1.5, None],
}
COUNTED = fh.fold(n=fh.count(), v=fh.total("v"), w=fh.total("w"), most=fh.maximum("w"))
FOLDED = "count(*) AS n, sum(v)::BIGINT AS v, sum(w)::BIGINT AS w, max(w) AS most"


@dataclass(frozen=True)
class Case:
    """How the rows of two sources meet: as `rows`, and as DuckDB's query of the rows to fold."""

    rows: Callable[[DataFrame, DataFrame], DataFrame]
    sql: str


def _joined(how: str, condition: str, g: str = "g", w: str = "w") -> Case:
    return Case(
        lambda one, two: (
            one.alias("one").join(two.alias("two"), F.expr(condition), how).selectExpr(f"{g} AS g", "v", f"{w} AS w")
        ),
        f"SELECT {g} AS g, v, {w} AS w FROM one {how.upper()} JOIN two ON {condition}",
    )


CASES = {
    "inner": _joined("inner", "one.k = two.k"),
    "left": _joined("left", "one.k = two.k"),
    "right": _joined("right", "one.k = two.k", g="h"),
    "full": _joined("full", "one.k = two.k", g="coalesce(g, h)"),
    "semi": _joined("semi", "one.k = two.k", w="v + 1"),
    "anti": _joined("anti", "one.k = two.k", w="v + 1"),
    "two columns": _joined("left", "one.k = two.k AND one.j = two.j"),
    "a further condition": _joined("inner", "one.k = two.k AND v > w"),
    "grouped": Case(
        lambda one, two: (
            one.join(two, "k").groupBy("k", "g").agg(F.sum("v").alias("v"), F.max("w").alias("w")).where("v > 0")
        ),
        "SELECT g, sum(v)::BIGINT AS v, max(w) AS w FROM one JOIN two USING (k) GROUP BY k, g HAVING sum(v) > 0",
    ),
    "stacked": Case(
        lambda one, two: one.selectExpr("g", "v", "v + 1 AS w").union(
            two.where("w <> 3").selectExpr("h", "w", "w * 2")
        ),
        "SELECT g, v, v + 1 AS w FROM one UNION ALL SELECT h, w, w * 2 FROM two WHERE w <> 3",
    ),
}


def _streams(kind: str) -> tuple[fh.Stream, fh.Stream]:
    return (
        fh.stream(
            "apart.one", schema={"k": kind, "j": "int", "g": "string", "v": "long", "day": "date"}, partition_by="day"
        ),
        fh.stream(
            "apart.two", schema={"k": kind, "j": "int", "h": "string", "w": "long", "day": "date"}, partition_by="day"
        ),
    )


def _table(name: str, case: Case, sources: tuple[fh.Stream, fh.Stream]) -> fh.Table:
    said = f"apart.{name.replace(' ', '_')}"
    return fh.table(said, source=list(sources), rows=case.rows, keys="g", fold=COUNTED)


def _some(
    chance: random.Random, stream: fh.Stream, kind: str, count: int, day: date | None = None
) -> list[dict[str, Any]]:
    drawn: dict[str, Callable[[], Any]] = {
        "k": lambda: chance.choice(KEYS[kind]),
        "j": lambda: chance.choice([1, 2, None]),
        "g": lambda: chance.choice(["p", "q", None]),
        "h": lambda: chance.choice(["p", "r", None]),
        "v": lambda: chance.choice([-5, 0, 3, None]),
        "w": lambda: chance.choice([1, 2, 3, None]),
        "day": lambda: day or chance.choice(DAYS),
    }
    return [{name: drawn[name]() for name, _ in stream.schema} for _ in range(count)]


def _in_parts(**further: Any) -> fh.Tuning:
    """Every window is computed again from all rows, of which few are evaluated at once."""
    tuning: dict[str, Any] = {"full_recompute_share": 0, "full_recompute_least_rows": 0, "direct_rows": 900}
    return fh.Tuning(**{**tuning, "spilled_piece_rows": 1, "chunk_rows": 7, **further})


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tables that were folded in parts, and `Spark` for each that Spark evaluated after all."""
    found: list[str] = []
    folded = apart._folded

    def noted(run):
        results = folded(run)
        found.append(run.name.partition(".")[2])
        return results

    monkeypatch.setattr(apart, "_folded", noted)

    def noting(by_spark):
        def noted_too(run):
            found.append("Spark")
            return by_spark(run)

        return noted_too

    for name in ("fold_written", "fold_on_spark"):  # the other one over Connect
        monkeypatch.setattr(apart, name, noting(getattr(apart, name)))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", share(list(KEYS), 3))
def test_rows_that_meet_by_their_keys_are_folded_in_parts(
    spark, spark_lake, monkeypatch: pytest.MonkeyPatch, parts: list[str], kind: str
) -> None:
    is_classic = hasattr(spark, "_jsparkSession")
    # Small enough for this process as a whole; so it is told that it is not.
    monkeypatch.setattr("foldhouse.refresh.run.runner.fold_in_process", _apart_or_here)
    for seed in range(6 if IS_THOROUGH else 1):
        unspilled_bytes = 2**20 * ((list(KEYS).index(kind) + seed) % 2)
        lake = spark_lake(f"lake{seed}", tuning=_in_parts(unspilled_bytes=unspilled_bytes))
        chance = random.Random(f"{kind} {seed}")
        streams = _streams(kind)
        tables = {name: _table(name, case, streams) for name, case in CASES.items()}
        for step in range(4 if IS_THOROUGH else 2):
            for stream in streams:
                lake.append(stream, _some(chance, stream, kind, 40))
                if step:
                    lake.replace(stream, _some(chance, stream, kind, 9, DAYS[0]), partitions=[DAYS[0]])
            for name, table in tables.items():
                parts.clear()
                lake.refresh(table)
                # The plan that Connect prints is not understood for all of them.
                assert parts == [table.name.partition(".")[2]] or (not parts and not is_classic), (name, step)
                _assert_right(lake, table, CASES[name])


def _assert_right(lake: fh.Lake, table: fh.Table, case: Case) -> None:
    expected = f"SELECT g, {FOLDED} FROM ({case.sql}) WHERE g IS NOT NULL GROUP BY g"
    assert_same(lake.to_arrow(table), folded_at_its_position(lake, table, expected), ["g"])


def _apart_or_here(run):
    return apart.fold_apart(run) if apart.can_be_apart(run.logic, run.evaluations) else fold_in_process(run)


def _large(streams: tuple[fh.Stream, fh.Stream], lake: fh.Lake, keys: Callable[[int], Any], rows: int = 3_000) -> None:
    one, two = streams
    lake.append(one, [{"k": keys(n), "j": 1, "g": f"g{n % 7}", "v": n, "day": DAYS[0]} for n in range(rows)])
    lake.append(two, [{"k": keys(n), "j": 1, "h": "h", "w": n % 11, "day": DAYS[0]} for n in range(0, rows, 2)])


@pytest.mark.parametrize(
    "name", ["left", *(pytest.param(one, marks=pytest.mark.classic) for one in ("grouped", "stacked"))]
)
def test_a_window_that_is_too_large_to_be_evaluated_at_once_is_evaluated_in_parts(
    spark_lake, parts: list[str], name: str
) -> None:
    lake, streams = (
        spark_lake(tuning=fh.Tuning(direct_rows=4_000, spilled_piece_rows=400, chunk_rows=500)),
        _streams("long"),
    )
    table = _table(name, CASES[name], streams)
    _large(streams, lake, lambda n: None if n % 5 == 0 else n)  # nulls meet nothing, however many there are
    assert lake.plan(table).runs == "in this process, in parts"
    lake.refresh(table)
    assert parts == [name]
    _assert_right(lake, table, CASES[name])


@pytest.mark.parametrize("reason", ["few keys make many pairs", "a part cannot be evaluated", "a key of other rows"])
def test_what_cannot_be_evaluated_in_parts_is_evaluated_by_spark(
    spark_lake, monkeypatch: pytest.MonkeyPatch, parts: list[str], reason: str
) -> None:
    lake, streams = spark_lake(tuning=fh.Tuning(direct_rows=1_500, spilled_piece_rows=400)), _streams("long")
    table = _table("left", CASES["left"], streams)
    evaluated, answers = here.evaluated_directly, iter([*[True] * 5, False])

    def failing(*given: Any) -> Any:
        return evaluated(*given) if next(answers, True) else None

    if reason == "a part cannot be evaluated":
        monkeypatch.setattr(here, "evaluated_directly", failing)
    _large(streams, lake, lambda n: n % 40 if reason == "few keys make many pairs" else n, 2_000)
    if reason == "a key of other rows":  # each row of one side alone; the pairs of that key are too many
        lake.append(streams[0], [{"k": 0, "j": 1, "g": "p", "v": 1, "day": DAYS[1]}] * 60)
        lake.append(streams[1], [{"k": 0, "j": 1, "h": "p", "w": 1, "day": DAYS[1]}] * 60)
    lake.refresh(table)
    assert parts == ["Spark"]
    _assert_right(lake, table, CASES["left"])


def test_keys_that_are_bytes_are_left_to_spark(spark_lake, parts: list[str]) -> None:
    lake, streams = spark_lake(tuning=fh.Tuning(direct_rows=100, spilled_piece_rows=20)), _streams("binary")
    table, keys = _table("left", CASES["left"], streams), [b"", b"\x00", b"a", None]
    _large(streams, lake, lambda n: keys[n % len(keys)], 200)
    lake.refresh(table)
    assert parts == []
    _assert_right(lake, table, CASES["left"])


@pytest.mark.slow
def test_events_with_ids_and_joins_of_a_source_with_itself_are_evaluated_in_parts(
    spark, spark_lake, parts: list[str]
) -> None:
    lake = spark_lake(tuning=fh.Tuning(direct_rows=700, spilled_piece_rows=20, compared_rows=100))
    one = fh.stream(
        "apart.one",
        schema={"k": "long", "id": "long", "g": "string", "v": "long", "seen": "long"},
        event_id="id",
        sequence_by="seen",
    )
    two = fh.stream("apart.two", schema={"k": "long", "w": "long"})
    joined = fh.table(
        "apart.joined", source=[one, two], rows=lambda one, two: one.join(two, "k"), keys="g", fold=COUNTED
    )
    paired = fh.table(
        "apart.paired",
        source=two,
        rows=lambda two: (
            two.alias("a").join(two.alias("b"), F.expr("a.k = b.k")).selectExpr("a.k AS g", "a.w AS v", "b.w")
        ),
        keys="g",
        fold=COUNTED,
    )
    # The later delivery of an event counts, whichever came first; without an id, each delivery is an event.
    events = [{"k": n % 50, "id": n if n % 9 else None, "g": f"g{n % 3}", "v": n, "seen": 5} for n in range(500)]
    again = [{**one, "v": -7, "k": (one["k"] + 1) % 50, "seen": 4 + n % 3} for n, one in enumerate(events[:60])]
    lake.append(one, events)
    lake.append(one, again)
    lake.append(two, [{"k": n % 200 if n % 7 else None, "w": n} for n in range(800)])
    for table, sql in (
        (
            joined,
            "SELECT g, v, w FROM (SELECT * FROM one QUALIFY id IS NULL OR row_number() OVER (PARTITION BY id "
            "ORDER BY seen DESC, k DESC, id DESC, g DESC, v DESC) = 1) JOIN two USING (k)",
        ),
        (paired, "SELECT a.k AS g, a.w AS v, b.w FROM two a JOIN two b ON a.k = b.k"),
    ):
        lake.refresh(table)
        assert parts == [table.name.partition(".")[2]]
        _assert_right(lake, table, Case(lambda one, two: one, sql))
        parts.clear()
    lake.append(one, [{**one, "seen": 9} for one in events])  # more events came again than are compared in memory
    lake.rebuild(joined)
    assert parts == ["Spark"]


TREES: dict[str, tuple[Callable[..., DataFrame], str]] = {
    "a star": (
        lambda facts, one, two: facts.join(one, F.expr("fk = ok")).join(two, F.expr("fj = tk"), "left"),
        "facts JOIN one ON fk = ok LEFT JOIN two ON fj = tk",
    ),
    "a chain": (
        lambda facts, one, two: facts.join(one, F.expr("fk = ok"), "left").join(two, F.expr("oj = tk"), "left"),
        "facts LEFT JOIN one ON fk = ok LEFT JOIN two ON oj = tk",
    ),
    "a chain on the right": (
        lambda facts, one, two: facts.join(one.join(two, F.expr("oj = tk")), F.expr("fk = ok"), "left"),
        "facts LEFT JOIN (SELECT * FROM one JOIN two ON oj = tk) ON fk = ok",
    ),
    "a further condition": (
        lambda facts, one, two: facts.join(one, F.expr("fk = ok AND fv > oj")).join(two, F.expr("fj = tk AND ow < tw")),
        "facts JOIN one ON fk = ok AND fv > oj JOIN two ON fj = tk AND ow < tw",
    ),
    "what has no match": (
        lambda facts, one, two: (
            facts.join(one, F.expr("fk = ok"), "left_anti").join(two, F.expr("fj = tk")).withColumn("ow", F.lit(1))
        ),
        "(SELECT *, 1 AS ow FROM facts ANTI JOIN one ON fk = ok) JOIN two ON fj = tk",
    ),
    "what has a match": (
        lambda facts, one, two: (
            facts.join(one, F.expr("fk = ok"), "left")
            .join(two, F.expr("fj = tk"), "left_semi")
            .withColumn("tw", F.lit(2))
        ),
        "(SELECT *, 2 AS tw FROM (SELECT * FROM facts LEFT JOIN one ON fk = ok) SEMI JOIN two ON fj = tk)",
    ),
    "a grouped source": (
        lambda facts, one, two: facts.join(
            one.groupBy("ok").agg(F.sum("ow").alias("ow")), F.expr("fk = ok"), "left"
        ).join(two, F.expr("fj = tk")),
        "facts LEFT JOIN (SELECT ok, sum(ow)::BIGINT AS ow FROM one GROUP BY ok) ON fk = ok JOIN two ON fj = tk",
    ),
}


def _selected(rows: Callable[..., DataFrame], *sources: DataFrame) -> DataFrame:
    return rows(*sources).select("fg", "fv", "ow", "tw")


def _tree_sources(kind: str, event_id: str | tuple[str, ...]) -> dict[str, fh.Stream]:
    day = {"day": "date"}
    return {
        "facts": fh.stream(
            "tree.facts",
            schema={"fk": kind, "fj": "int", "fg": "string", "fv": "long", "id": "long", **day},
            partition_by="day",
            event_id=event_id,
        ),
        "one": fh.stream("tree.one", schema={"ok": kind, "oj": "int", "ow": "long", **day}, partition_by="day"),
        "two": fh.stream("tree.two", schema={"tk": "int", "tw": "long", **day}, partition_by="day"),
    }


def _rows_of_tree(chance: random.Random, name: str, kind: str, day: date | None) -> dict[str, Any]:
    key, other = chance.choice(KEYS[kind]), chance.choice([1, 2, 3, 4, 5, None])
    number = chance.choice([-5, 0, 3, None])
    row: dict[str, Any] = {
        "facts": {"fk": key, "fj": other, "fg": chance.choice(["p", "q", None]), "fv": number},
        "one": {"ok": key, "oj": other, "ow": number},
        "two": {"tk": other, "tw": number},
    }[name]
    return {**row, "day": day or chance.choice(DAYS), **({"id": chance.randrange(40)} if name == "facts" else {})}


@pytest.mark.slow
@pytest.mark.classic
@pytest.mark.parametrize(
    ("kind", "ways", "event_id"),
    [
        ("long", "in memory", ()),
        ("string", "divided", ()),
        ("string", "in memory", "id"),
        ("long", "divided", "id"),
        ("string", "divided and looked up", "id"),
        ("decimal(12,2)", "divided and looked up", ()),
        ("double", "divided and looked up", ()),
    ],
)
def test_trees_of_joins_are_folded_in_parts_of_their_root(
    spark_lake,
    monkeypatch: pytest.MonkeyPatch,
    parts: list[str],
    kind: str,
    ways: str,
    event_id: str | tuple[str, ...],
) -> None:
    monkeypatch.setattr("foldhouse.refresh.run.runner.fold_in_process", _apart_or_here)
    fold = fh.fold(n=fh.count(), v=fh.total("fv"), w=fh.total("ow"), most=fh.maximum("tw"))
    most_held = {"in memory": 2, "divided": 1}.get(ways, 0)
    monkeypatch.setattr(by_root, "_fits", lambda logic, evaluation, held: len(held) <= most_held)
    found: set[str] = set()
    divide, looked_up = by_root.divide, by_root.LookedUp.met_by
    monkeypatch.setattr(by_root, "divide", lambda *given: (found.add("divided"), divide(*given)))
    monkeypatch.setattr(by_root.LookedUp, "met_by", lambda *given: (found.add("looked up"), looked_up(*given))[1])
    for seed in range(6 if IS_THOROUGH else 1):
        unspilled_bytes = 0 if ways != "in memory" and seed % 2 == 0 else 2**20
        lake = spark_lake(f"lake{seed}", tuning=_in_parts(unspilled_bytes=unspilled_bytes, direct_rows=4_000))
        chance, sources = random.Random(f"{kind} {ways} {event_id} {seed}"), _tree_sources(kind, event_id)
        tables = {
            name: fh.table(
                f"tree.{name.replace(' ', '_')}",
                source=list(sources.values()),
                rows=partial(_selected, rows),
                keys="fg",
                fold=fold,
            )
            for name, (rows, _) in TREES.items()
        }
        for step in range(3 if IS_THOROUGH else 2):
            for name, stream in sources.items():
                lake.append(stream, [_rows_of_tree(chance, name, kind, None) for _ in range(30)])
                if step:
                    rows = [_rows_of_tree(chance, name, kind, DAYS[0]) for _ in range(9)]
                    lake.replace(stream, rows, partitions=[DAYS[0]])
            for name, table in tables.items():
                parts.clear()
                found.clear()
                lake.refresh(table)
                assert parts == [table.name.partition(".")[2]], (name, step)
                assert (" and ".join(sorted(found)) or "in memory") == ways, (name, step)
                facts = "facts"
                if event_id:
                    facts = (
                        "(SELECT * FROM facts QUALIFY row_number() OVER (PARTITION BY id ORDER BY fk DESC NULLS LAST, "
                        "fj DESC NULLS LAST, fg DESC NULLS LAST, fv DESC NULLS LAST, day DESC NULLS LAST) = 1) facts"
                    )
                joined = TREES[name][1].replace("facts", facts, 1)
                folded = "count(*) AS n, sum(fv)::BIGINT AS v, sum(ow)::BIGINT AS w, max(tw) AS most"
                expected = f"SELECT fg, {folded} FROM {joined} WHERE fg IS NOT NULL GROUP BY fg"
                assert_same(lake.to_arrow(table), folded_at_its_position(lake, table, expected), ["fg"])


@pytest.mark.classic
@pytest.mark.parametrize(("direct_rows", "by"), [(4_000, "a_chain"), (1_000, "Spark")])
def test_rows_of_a_root_that_meet_many_are_evaluated_few_at_once_and_by_spark_if_one_meets_too_many(
    spark_lake, parts: list[str], direct_rows: int, by: str
) -> None:
    lake, sources = spark_lake(tuning=fh.Tuning(direct_rows=direct_rows)), _tree_sources("long", ())
    rows, sql = TREES["a chain"]
    fold = fh.fold(n=fh.count(), v=fh.total("fv"), w=fh.total("ow"), most=fh.maximum("tw"))
    table = fh.table("tree.a_chain", source=list(sources.values()), rows=partial(_selected, rows), keys="fg", fold=fold)
    facts = [{"fk": n % 2_000, "fj": 1, "fg": f"g{n % 3}", "fv": n, "id": n} for n in range(5_000)]
    # A row of each tenth key meets 10 rows, and each of these 30.
    ones = [{"ok": n % 20 * 100, "oj": n % 4, "ow": n} for n in range(200)]
    twos = [{"tk": n % 4, "tw": n} for n in range(120)]
    for stream, given in zip(sources.values(), (facts, ones, twos), strict=True):
        lake.append(stream, [{**row, "day": DAYS[0]} for row in given])
    lake.refresh(table)
    assert parts == [by]
    folded = "count(*) AS n, sum(fv)::BIGINT AS v, sum(ow)::BIGINT AS w, max(tw) AS most"
    expected = f"SELECT fg, {folded} FROM {sql} GROUP BY fg"
    assert_same(lake.to_arrow(table), folded_at_its_position(lake, table, expected), ["fg"])


@pytest.mark.classic
@pytest.mark.parametrize(
    ("fj", "tk", "how", "by"),
    [
        (lambda n: n % 2_000 if n % 2 else None, lambda n: n if n % 10 == 0 else None, "left", "a_star"),
        (lambda n: n % 2_000, lambda n: n // 4, "left", "a_star"),
        (lambda n: n % 2_000, lambda n: n if n % 10 == 0 else 7, "left_semi", "Spark"),
    ],
    ids=["most are null", "each meets four", "most are one"],
)
def test_rows_that_are_looked_up_are_few_or_spark_joins_them(
    spark_lake, parts: list[str], fj: Callable[[int], Any], tk: Callable[[int], Any], how: str, by: str
) -> None:
    lake, sources = spark_lake(tuning=fh.Tuning(direct_rows=4_000, spilled_piece_rows=400)), _tree_sources("long", ())
    fold = fh.fold(n=fh.count(), v=fh.total("fv"), w=fh.total("ow"))
    table = fh.table(
        "tree.a_star",
        source=list(sources.values()),
        rows=lambda facts, one, two: (
            facts.join(one, F.expr("fk = ok"), "left").join(two, F.expr("fj = tk"), how).select("fg", "fv", "ow")
        ),
        keys="fg",
        fold=fold,
    )
    count = 8_000
    lake.append(
        sources["facts"],
        [{"fk": n, "fj": fj(n), "fg": f"g{n % 3}", "fv": n, "id": n, "day": DAYS[0]} for n in range(count)],
    )
    lake.append(sources["one"], [{"ok": n, "oj": 1, "ow": n, "day": DAYS[0]} for n in range(count)])
    lake.append(sources["two"], [{"tk": tk(n), "tw": n, "day": DAYS[0]} for n in range(count)])
    lake.refresh(table)
    assert parts == [by]
    join = "SEMI" if how == "left_semi" else "LEFT"
    expected = (
        "SELECT fg, count(*) AS n, sum(fv)::BIGINT AS v, sum(ow)::BIGINT AS w "
        f"FROM facts LEFT JOIN one ON fk = ok {join} JOIN two ON fj = tk GROUP BY fg"
    )
    assert_same(lake.to_arrow(table), folded_at_its_position(lake, table, expected), ["fg"])
