"""After any history, and a crash at any moment of it, a forget leaves nothing of the subject."""

from __future__ import annotations

import random
from typing import Any

import pytest
from forgetting import (
    OTHERS,
    SUBJECT,
    TABLES,
    append,
    assert_forgotten,
    events,
    forget,
    mentions,
    others,
    refresh,
    visits,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from laws.amount import IS_THOROUGH
from laws.crashes import Moment, going_wrong

import foldhouse as fh
from foldhouse.storage.catalog import open_local_catalog

ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(st.sampled_from([*OTHERS, SUBJECT]), min_size=1, max_size=5)),
        st.tuples(st.just("replace"), st.integers(1, 3)),
        st.tuples(st.just("refresh"), st.integers(0, 2)),
        st.tuples(st.sampled_from(["tag", "branch", "rollback", "compact", "expire", "rebuild"]), st.integers(0, 3)),
    ),
    max_size=14,
)


CRASHES = st.tuples(st.sampled_from([*Moment]), st.integers(0, 16))
HISTORIES = {"acts": ACTS, "crash": CRASHES, "seed": st.integers(0, 10**6)}


@pytest.mark.slow
@settings(max_examples=3, suppress_health_check=list(HealthCheck))
@given(**HISTORIES)
def test_after_a_history_and_a_crash_nothing_is_left(
    tmp_path_factory: pytest.TempPathFactory, acts: list[Any], crash: tuple[Moment, int], seed: int
) -> None:
    check_history(tmp_path_factory, acts, crash, seed)


@pytest.mark.heavy
@settings(max_examples=25 if IS_THOROUGH else 6, suppress_health_check=list(HealthCheck))
@given(**HISTORIES)
def test_after_many_histories_and_a_crash_nothing_is_left(
    tmp_path_factory: pytest.TempPathFactory, acts: list[Any], crash: tuple[Moment, int], seed: int
) -> None:
    check_history(tmp_path_factory, acts, crash, seed)


def check_history(
    tmp_path_factory: pytest.TempPathFactory, acts: list[Any], crash: tuple[Moment, int], seed: int
) -> None:
    folder = tmp_path_factory.mktemp("any") / "lake"
    lake = fh.Lake(open_local_catalog(folder), _no_spark)
    append(lake, 1, SUBJECT, OTHERS[0])
    chance = random.Random(seed)
    for number, (act, what) in enumerate(acts, start=2):
        _act(lake, chance, number, act, what)
    kept = others(lake)
    with going_wrong(lake, *crash):
        if forget(lake).is_done:
            assert mentions(folder) == []
    assert forget(lake).is_done
    refresh(lake)
    assert_forgotten(lake, folder, kept)
    append(lake, 500, OTHERS[1], OTHERS[2])
    refresh(lake)
    assert_forgotten(lake, folder, events(lake))
    assert len(events(lake)) == len(kept) + 2
    lake.close()


def _no_spark() -> Any:
    raise AssertionError("this test must not need a JVM")


def _act(lake: fh.Lake, chance: random.Random, number: int, act: str, what: Any) -> None:
    there = [table for table in (visits, *TABLES) if lake.head(table) is not None]
    if act == "append":
        append(lake, number, *what)
    elif act == "replace":
        rows = [row for row in events(lake) if row["at"].day == what and chance.random() < 0.5]
        lake.replace(visits, rows, partitions=[lake.to_arrow(visits)["at"][0].as_py().date().replace(day=what)])
    elif act == "refresh":
        for table in TABLES[: what + 1]:
            lake.refresh(table)
    elif act == "rollback":
        table = chance.choice(there)
        lake.rollback(table, to=chance.choice(lake.history(table)).id)
    elif act in ("tag", "branch"):
        table = chance.choice(there)
        iceberg = lake.load(table)
        at = chance.choice(iceberg.snapshots()).snapshot_id
        with iceberg.manage_snapshots() as manage:
            (manage.create_tag if act == "tag" else manage.create_branch)(at, f"{act} {number}")
    elif act == "compact":
        lake.compact(chance.choice(there), min_files=1)
    elif act == "expire":
        lake.expire(chance.choice(there), older_than="0m", keep_last=1)
    elif len(there) == len(TABLES) + 1:
        lake.rebuild(chance.choice(TABLES), publish=what == 0)
