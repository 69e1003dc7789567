"""Joins, groupings and row-by-row logic that this process evaluates in parts, against DuckDB."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from laws.amount import IS_THOROUGH
from oracle import assert_same, folded_at_its_position
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import foldhouse as fh
from foldhouse.refresh.run import apart
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


@pytest.mark.parametrize("kind", KEYS)
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
    evaluated, answers = apart.evaluated_directly, iter([*[True] * 5, False])

    def failing(*given: Any) -> Any:
        return evaluated(*given) if next(answers, True) else None

    if reason == "a part cannot be evaluated":
        monkeypatch.setattr(apart, "evaluated_directly", failing)
    _large(streams, lake, lambda n: n % 40 if reason == "few keys make many pairs" else n, 2_000)
    if reason == "a key of other rows":  # each row of one side alone; the pairs of that key are too many
        lake.append(streams[0], [{"k": 0, "j": 1, "g": "p", "v": 1, "day": DAYS[1]}] * 60)
        lake.append(streams[1], [{"k": 0, "j": 1, "h": "p", "w": 1, "day": DAYS[1]}] * 60)
    lake.refresh(table)
    assert parts == ["Spark"]
    _assert_right(lake, table, CASES["left"])


@pytest.mark.parametrize("kind", ["double", "decimal(12,2)"])
def test_keys_whose_equal_values_may_have_other_hashes_are_left_to_spark(
    spark_lake, parts: list[str], kind: str
) -> None:
    lake, streams = spark_lake(tuning=fh.Tuning(direct_rows=100, spilled_piece_rows=20)), _streams(kind)
    table = _table("left", CASES["left"], streams)
    keys = [0.0, -0.0, 1.5, None] if kind == "double" else [Decimal("0.00"), Decimal("-1.50"), None]
    _large(streams, lake, lambda n: keys[n % len(keys)], 200)
    lake.refresh(table)
    assert parts == []
    if kind != "double":  # DuckDB joins -0.0 and 0.0 as well, but says so in other words
        _assert_right(lake, table, CASES["left"])


def test_events_with_an_id_and_joins_of_a_source_with_itself_are_left_to_spark(spark_lake, parts: list[str]) -> None:
    lake = spark_lake(tuning=fh.Tuning(direct_rows=100, spilled_piece_rows=20))
    one = fh.stream("apart.one", schema={"k": "long", "id": "long", "g": "string", "v": "long"}, event_id="id")
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
    lake.append(one, [{"k": n % 50, "id": n, "g": "p", "v": n} for n in [*range(150), *range(150)]])
    lake.append(two, [{"k": n % 50, "w": n} for n in range(150)])
    for table, sql in (
        (joined, "SELECT g, v, w FROM (SELECT DISTINCT * FROM one) JOIN two USING (k)"),
        (paired, "SELECT a.k AS g, a.w AS v, b.w FROM two a JOIN two b ON a.k = b.k"),
    ):
        lake.refresh(table)
        assert parts == []
        _assert_right(lake, table, Case(lambda one, two: one, sql))
