"""The law over random programs: trees of joins, sets, groups and windows over streams and a table, against DuckDB."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from typing import Any

import pyarrow as pa
import pytest
from laws.amount import HISTORIES
from laws.definitions import deliveries
from laws.programs import Program, random_program
from laws.settings import any_tuning
from new_process import new_processes, starts
from oracle import assert_same, folded_at_its_position

import foldhouse as fh
from foldhouse.errors import DefinitionError

DAYS = [date(2024, 1, day) for day in (1, 2, 3)]
TYPES = {"a": "long", "b": "long", "s": "string", "day": "date"}
MORE = {"id": "string", **TYPES}
plain = fh.stream("random.plain", schema=TYPES, partition_by="day")
named = fh.stream("random.named", schema=MORE, event_id="id", partition_by="day")
kept = fh.table("random.kept", source=plain, keys="a", fold=fh.fold(b=fh.maximum("b"), s=fh.minimum("s")))
KEPT = {"a": "long", "b": "long", "s": "string"}
SOURCES = {plain: TYPES, named: MORE, kept: KEPT}
ARROW = {"long": pa.int64(), "string": pa.string(), "date": pa.date32()}
ONCE = f"CREATE TEMP VIEW once AS {deliveries(named).replace('FROM source', 'FROM named')}"
SEEDS = range(1 + HISTORIES // 40)
PROGRAMS, ORDERS = 6, 4
"""Programs of a lake, and further orders of the rows in which DuckDB answers."""


def a_batch(chance: random.Random, stream: fh.Stream, day: date | None = None, rows: int | None = None) -> pa.Table:
    made: dict[str, Any] = {
        "id": lambda: chance.choice(["i", "j", "k", "l", "m", None]),
        "a": lambda: chance.choice([0, 1, 2, 3, None]),
        "b": lambda: chance.choice([-1, 0, 1, 2, None]),
        "s": lambda: chance.choice(["x", "y", "", None]),
        "day": lambda: day or chance.choice(DAYS),
    }
    wanted = chance.choice([0, 1, 3, 6]) if rows is None else rows
    schema = pa.schema([(name, ARROW[kind]) for name, kind in stream.schema])
    return pa.Table.from_pylist([{name: made[name]() for name in schema.names} for _ in range(wanted)], schema)


def disturb(lake: fh.Lake, chance: random.Random) -> None:
    stream = chance.choice([plain, named])
    history = lake.history(stream)
    kind = chance.choice(["append", "append", "append", "restate", "empty", "roll back"])
    if kind == "restate":
        day = chance.choice(DAYS)
        lake.replace(stream, a_batch(chance, stream, day), partitions=[day])
    elif kind == "empty":
        lake.replace(stream, a_batch(chance, stream, rows=0), partitions=[chance.choice(DAYS)])
    elif kind == "roll back" and len(history) > 1:
        lake.tuning = replace(lake.tuning, restored_rows_factor=chance.choice([0, 10]))
        lake.rollback(stream, to=chance.choice(history[1:]).id)
    else:
        lake.append(stream, a_batch(chance, stream))


def an_answer(lake: fh.Lake, program: Program, chance: random.Random | None = None) -> pa.Table:
    """What DuckDB says that a table holds, the rows of its sources in any order."""
    uses_named = named in program.table.sources
    sql = program.expected.replace("FROM named", "FROM once") if uses_named else program.expected

    def arranged(rows: pa.Table) -> pa.Table:
        if chance is None:
            return rows
        return rows.take(pa.array(chance.sample(range(rows.num_rows), rows.num_rows), pa.int64()))

    return folded_at_its_position(lake, program.table, sql, ONCE if uses_named else "", arranged)


def check(lake: fh.Lake, program: Program, chance: random.Random, *, ties: bool) -> None:
    keys = list(program.table.keys)
    expected = an_answer(lake, program)
    for _ in range(ORDERS if ties else 0):
        try:
            assert_same(an_answer(lake, program, chance), expected, keys)
        except AssertionError as failure:
            raise AssertionError(f"it was accepted, and has two answers: {failure}") from failure
    assert_same(lake.to_arrow(program.table), expected, keys)


def is_accepted(lake: fh.Lake, program: Program) -> bool:
    try:
        lake.refresh(program.table)
    except DefinitionError as failure:
        if "A table must always equal the fold of its source" not in str(failure):
            raise
        return False
    return True


def run_history(
    lake: fh.Lake,
    seed: int,
    programs: int,
    steps: int,
    *,
    ties: bool = False,
    opened_again: Callable[[], fh.Lake] | None = None,
) -> int:
    """Refresh random programs while their sources change; return how many of them were accepted.

    Args:
        lake: empty.
        seed: of the programs, the changes and the settings.
        programs: how many.
        steps: how often their sources change.
        ties: whether rows may tie in the orders of a program.
        opened_again: opens the lake once more, as a new process; called before each refresh.
    """
    chance = random.Random(seed)
    for stream in (plain, named):
        lake.append(stream, a_batch(chance, stream, rows=chance.choice([0, 5, 8])))
    lake.refresh(kept)
    made = []
    for number in range(programs):
        sources = chance.sample(list(SOURCES), chance.choice([1, 2, 2, 3]))
        types = [SOURCES[one] for one in sources]
        made.append(random_program(chance, f"random.p{number}", sources, types, ties=ties))
    accepted = [one for one in made if is_accepted(lake, one)]
    for step in range(steps):
        lake.tuning = fh.Tuning()
        lake.refresh(kept)
        for one in accepted:
            lake = opened_again() if opened_again else lake
            lake.tuning = any_tuning(chance, has_spark=True)
            lake.refresh(one.table)
            try:
                check(lake, one, chance, ties=ties)
            except AssertionError as failure:
                raise AssertionError(f"seed {seed}, step {step}, {one.table.name}, {one.said}: {failure}") from failure
        for _ in range(chance.randint(1, 2)):
            disturb(lake, chance)
    for one in accepted:
        lake.rebuild(one.table)
        check(lake, one, chance, ties=ties)
    return len(accepted)


@pytest.mark.heavy
@pytest.mark.spark
@pytest.mark.parametrize("seed", SEEDS)
def test_random_programs_hold_the_law(spark_lake, seed: int) -> None:
    assert run_history(spark_lake(), seed, PROGRAMS, steps=3) == PROGRAMS


@pytest.mark.heavy
@pytest.mark.spark
@pytest.mark.classic
@pytest.mark.parametrize("seed", [10_000 + seed for seed in SEEDS])
def test_random_programs_hold_the_law_in_processes_that_read_what_others_compiled(
    spark, tmp_path, monkeypatch, seed: int
) -> None:
    found: list[fh.Lake] = []

    def opened_again() -> fh.Lake:
        found.append(new_process())
        return found[-1]

    new_process = new_processes(spark, tmp_path, monkeypatch)
    assert run_history(opened_again(), seed, PROGRAMS, steps=3, opened_again=opened_again) == PROGRAMS
    assert any(not starts(lake) for lake in found[1:])


@pytest.mark.heavy
@pytest.mark.spark
@pytest.mark.parametrize("seed", SEEDS)
def test_a_program_of_several_answers_is_refused(spark_lake, seed: int) -> None:
    run_history(spark_lake(), seed, PROGRAMS, steps=3, ties=True)
