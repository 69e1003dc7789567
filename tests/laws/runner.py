"""Runs a history: a function of its seed, and of the lake it happens to."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from laws import changes, foreign, landing, reading, streams, tables, there_and_back, trouble, upkeep
from laws.definitions import random_definitions
from laws.history import History
from laws.quick import quick_lake
from laws.rules import rule_of
from laws.two_processes import two_processes

import foldhouse as fh

STEPS = 20
SEED = "FOLDHOUSE_LAW_SEED"
"""The environment variable that has the tests run one seed again."""

Likely = dict[Callable[[History], None], float]
LIKELY: Likely = {
    streams.append: 6,
    streams.append_twice: 1,
    streams.restate: 3,
    streams.write_to_the_stream: 1.5,
    streams.roll_back_the_stream: 1,
    there_and_back.there_and_back: 1,
    there_and_back.there_and_back_with_a_crash: 1,
    streams.empty_the_stream: 0.5,
    streams.correct_a_number: 1,
    streams.create_the_stream_again: 0.3,
    tables.refresh: 6,
    tables.refresh_all: 3,
    tables.backfill: 3,
    tables.rebuild: 1,
    tables.restate: 1,
    tables.roll_back_a_table: 2,
    tables.change_a_definition: 1,
    upkeep.compact: 1,
    upkeep.expire: 1,
    trouble.crash: 4,
    trouble.race: 3,
    trouble.compact_as_somebody_else: 1,
    trouble.write_to_a_table: 1,
    trouble.deliver_again_after_upkeep: 1,
    foreign.partition_the_stream: 1,
    foreign.store_the_stream_differently: 1,
    foreign.add_a_column_and_drop_it: 1,
    foreign.move_fields: 1,
    foreign.add_a_file: 1,
    reading.ask_until: 1,
    reading.verify_since: 1,
    landing.land: 2,
    landing.look_at_the_folder: 1,
}
"""Step -> how likely it is beside the others."""


def run_history(
    lake: fh.Lake, seed: int, steps: int = STEPS, *, has_spark: bool = False, more: Likely | None = None
) -> History:
    """Run one history, the law checked after each step, and every snapshot again at the end; `more` steps may happen.

    Raises:
        AssertionError: with the seed, the definitions and the steps, whatever went wrong.
    """
    with rule_of(seed, lake, has_spark=has_spark) as rule:
        return _run_history(lake, seed, steps, rule, LIKELY | (more or {}), has_spark=has_spark)


def _run_history(lake: fh.Lake, seed: int, steps: int, rule: str, likely: Likely, *, has_spark: bool) -> History:
    chance = random.Random(seed)
    definitions = random_definitions(chance, tables=chance.choice([1, 2]) if has_spark else None, has_spark=has_spark)
    history = History(lake, definitions, chance, has_spark=has_spark)
    told = history.told
    try:
        for number in range(steps):
            (step,) = chance.choices(list(likely), list(likely.values()))
            step = streams.append if number == 0 and (has_spark or chance.random() < 0.9) else step
            step = tables.refresh_all if number == 1 and has_spark else step
            told.append(step.__name__)
            step(history)
            history.ledger.check_step()
        told.append("(every snapshot again)")
        history.ledger.check_history(chance)
        changes.check_changes(history)
        if has_spark:
            told.append("(verify since a commit)")
            reading.verify_since(history)
    except (Exception, pytest.fail.Exception) as failure:  # the latter if an error that is due does not come
        steps_told = "\n".join(f"{number:3} {step}" for number, step in enumerate(told, 1))
        raise AssertionError(
            f"seed {seed} ({rule}): {type(failure).__name__}: {failure}\n{definitions}\n{steps_told}\n"
            f"again: {SEED}={seed} python -m pytest tests/laws/test_the_law.py"
        ) from failure
    finally:
        if history.folder is not None:
            history.folder.place.cleanup()
    return history


def run_in_process(seed: int, more: Likely | None = None) -> None:
    """Run one history in a lake of its own that needs no JVM."""
    with quick_lake(_no_spark) as lake:
        run_history(lake, seed, more=more)


def run_in_two_processes(seed: int, more: Likely | None = None) -> None:
    """Run one history whose steps two processes do in turns."""
    chance = random.Random(f"two processes {seed}")
    with quick_lake(_no_spark) as lake, two_processes(lake, chance) as (second, by_either):
        likely = {by_either(step): weight for step, weight in (LIKELY | (more or {})).items()}
        with rule_of(seed, lake, second, has_spark=False) as rule:
            _run_history(lake, seed, STEPS, f"{rule}, two processes", likely, has_spark=False)


def _no_spark() -> object:
    raise AssertionError("these histories must not need a JVM")
