"""Several threads share one lake, as sensors of one code server do: each table stays the fold of its source."""

from __future__ import annotations

import contextlib
import itertools
import random
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime

import pyarrow as pa
import pytest
from laws.amount import seeds
from oracle import assert_same, folded_at_its_position

import foldhouse as fh
from foldhouse.errors import CommitConflict

DAYS = [1, 2, 3]
events = fh.stream(
    "threads.events",
    schema={"k": "long", "seq": "long", "v": "long", "at": "timestamp"},
    keys="k",
    sequence_by="seq",
    event_time="at",
    partition_by="day(at)",
)
latest = fh.table("threads.latest", source=events, fold=fh.latest(columns=["v"]))
totals = fh.table("threads.totals", source=events, keys="k", fold=fh.fold(n=fh.count(), most=fh.maximum("v")))
below = fh.table("threads.below", source=latest, keys="v", fold=fh.fold(n=fh.count(), last=fh.maximum("k")))
EXPECTED = {
    latest: "SELECT DISTINCT ON (k) k, v FROM events ORDER BY k, seq DESC",
    totals: "SELECT k, count(*) AS n, max(v) AS most FROM events GROUP BY k",
    below: "SELECT v, count(*) AS n, max(k) AS last FROM latest GROUP BY v",
}
STEPS = {"append": 5, "replace": 2, "refresh": 9, "read": 4, "compact": 1, "roll back": 1, "rebuild": 1}


def some(chance: random.Random, sequence: itertools.count[int], day: int | None = None) -> pa.Table:
    rows = range(chance.randint(1, 20))
    moments = [datetime(2024, 1, day or chance.choice(DAYS), 9) for _ in rows]
    return pa.table(
        {
            "k": [chance.randint(0, 30) for _ in rows],
            "seq": [next(sequence) for _ in rows],
            "v": [chance.randint(0, 9) for _ in rows],
            "at": pa.array(moments, pa.timestamp("us")),
        }
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(1, 2, 30))
def test_threads_share_a_lake(lake: fh.Lake, seed: int) -> None:
    sequence = itertools.count()
    lake.append(events, some(random.Random(seed), sequence))
    for table in EXPECTED:
        lake.refresh(table)

    def work(thread: int) -> None:
        chance = random.Random(f"{seed} {thread}")
        for step in chance.choices(list(STEPS), list(STEPS.values()), k=10):
            table, day = chance.choice(list(EXPECTED)), chance.choice(DAYS)
            with contextlib.suppress(CommitConflict):  # nothing is written: another was first, ten times in a row
                if step == "append":
                    lake.append(events, some(chance, sequence))
                elif step == "replace":
                    lake.replace(events, some(chance, sequence, day), partitions=[date(2024, 1, day)])
                elif step == "refresh":
                    lake.refresh(table)
                elif step == "read":
                    lake.to_arrow(table)
                elif step == "compact":
                    lake.compact(chance.choice([events, table]))
                elif step == "rebuild":
                    lake.rebuild(table)
                elif len(history := lake.history(events)) > 1:
                    lake.rollback(events, to=history[1].id)

    with ThreadPoolExecutor(5) as threads:
        list(threads.map(work, range(5)))
    for table, query in EXPECTED.items():
        lake.refresh(table)
        expected = folded_at_its_position(lake, table, query)
        assert_same(lake.to_arrow(table), expected, list(table.keys))
        lake.rebuild(table)
        assert_same(lake.to_arrow(table), expected, list(table.keys))
