"""Eight processes refresh one table at once, one appends, one compacts and expires: one chain, nothing lost or double.

This file is also each of these processes: started as a script it does what its arguments say.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import foldhouse as fh
from foldhouse.lake import position_of
from foldhouse.storage.catalog import open_local_catalog

pytestmark = pytest.mark.heavy

REFRESHERS, BATCHES, MOST_BATCHES, ROWS = 8, 10, 300, 20
DAYS = [date(2024, 1, day) for day in (1, 2, 3)]
COLUMNS = pa.schema([("key", pa.string()), ("day", pa.date32()), ("n", pa.int32())])
FOLD = fh.fold(rows=fh.count(), units=fh.total("n"), least=fh.minimum("n"))

events = fh.stream("eight.events", schema={"key": "string", "day": "date", "n": "int"}, partition_by="day")
by_key = fh.table("eight.by_key", source=events, keys="key", buckets=2, fold=FOLD)


def a_batch(seed: int) -> pa.Table:
    chance = random.Random(seed)
    made = [
        {"key": f"k{chance.randrange(40)}", "day": chance.choice(DAYS), "n": chance.randint(-3, 9)} for _ in range(ROWS)
    ]
    return pa.Table.from_pylist(made, COLUMNS)


def open_lake(root: Path) -> fh.Lake:
    def no_spark() -> Any:
        raise AssertionError("this test must not need a JVM")

    return fh.Lake(open_local_catalog(root), no_spark)


def refreshes_of(lake: fh.Lake) -> list[fh.SnapshotInfo]:
    """The commits of the table that folded a window, the oldest first."""
    return [info for info in lake.history(by_key)[::-1] if info.operation != "replace"]


def winners(lake: fh.Lake) -> set[str]:
    """The processes that committed a refresh."""
    if by_key.name not in lake.tables():
        return set()
    return {info.summary["foldhouse.run-id"] for info in refreshes_of(lake)}


# The processes


def append(root: Path) -> None:
    """Until two of them have won: on a slow machine the first window may hold all of `BATCHES`."""
    lake, number = open_lake(root), 0
    while number < BATCHES or (number < MOST_BATCHES and len(winners(lake)) < 2):
        lake.append(events, a_batch(number), batch_id=f"batch {number}")
        number += 1
        time.sleep(0.2)  # so that there is a window for many of them
    (root / "done").write_text(str(number))


def refresh(root: Path) -> None:
    """Until everything that was appended is folded."""
    lake, is_last = open_lake(root), False
    while not is_last:
        is_last = (root / "done").exists()
        try:
            lake.refresh(by_key)
        except fh.CommitConflict:
            is_last = False
        except fh.UnknownTable:
            is_last = False
            time.sleep(0.05)


def maintain(root: Path) -> None:
    """As often as possible; what was the head within the hour stays, because the refreshes are pinned to it."""
    lake = open_lake(root)
    while not (root / "done").exists():
        for table in (events, by_key):
            try:
                lake.compact(table, min_files=3)
                lake.expire(table, older_than=timedelta(), keep_last=1)
            except (fh.CommitConflict, fh.UnknownTable):
                time.sleep(0.05)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("eight") / "lake"
    open_lake(root).close()
    works = [*["refresh"] * REFRESHERS, "append", "maintain"]
    processes = [
        subprocess.Popen([sys.executable, __file__, work, str(root)], stderr=subprocess.PIPE, text=True)
        for work in works
    ]
    while len(list(root.glob("ready-*"))) < len(works) and all(process.poll() is None for process in processes):
        time.sleep(0.05)
    (root / "go").touch()
    for work, process in zip(works, processes, strict=True):
        _, said = process.communicate(timeout=900)
        assert process.returncode == 0, f"{work}: {said[-3000:]}"
    return root


@pytest.fixture(scope="module")
def given(root: Path) -> pa.Table:
    return pa.concat_tables([a_batch(number) for number in range(int((root / "done").read_text()))])


@pytest.fixture(scope="module")
def lake(root: Path) -> Any:
    opened = open_lake(root)
    yield opened
    opened.close()


def test_nothing_is_lost_and_nothing_is_double(lake: fh.Lake, given: pa.Table) -> None:
    assert Counter(map(str, lake.to_arrow(events).to_pylist())) == Counter(map(str, given.to_pylist()))
    assert lake.to_arrow(by_key).sort_by("key").to_pylist() == folded(given)


def test_there_is_one_chain_of_positions_that_goes_forward_alone(lake: fh.Lake) -> None:
    order: dict[int | None, int] = {None: -1}  # the stream before its first commit
    order |= {info.id: place for place, info in enumerate(reversed(lake.history(events)))}
    history = lake.history(by_key)[::-1]
    assert [info.parent_id for info in history] == [None, *(info.id for info in history[:-1])]
    assert {snapshot.snapshot_id for snapshot in lake.load(by_key).snapshots()} == {info.id for info in history}
    positions = [order[position_of(info)["eight.events"]] for info in refreshes_of(lake)]
    assert positions == sorted(set(positions)), "no window was folded twice"
    assert positions[-1] == len(order) - 2 or lake.history(events)[0].operation == "replace"
    assert len(winners(lake)) > 1, "only one of them ever won"


def test_every_snapshot_is_the_fold_of_its_own_position(lake: fh.Lake) -> None:
    for info in lake.history(by_key):
        position = position_of(info)["eight.events"]
        source = COLUMNS.empty_table() if position is None else lake.to_arrow(events, as_of=position)
        assert lake.to_arrow(by_key, as_of=info.id).sort_by("key").to_pylist() == folded(source)


def test_it_was_compacted_meanwhile_and_the_position_is_held(lake: fh.Lake) -> None:
    assert any(info.operation == "replace" for info in lake.history(events))
    assert "foldhouse.position.eight.by_key" in lake.load(events).metadata.refs


def folded(given: pa.Table) -> list[dict[str, Any]]:
    query = (
        "SELECT key, count(*) AS rows, sum(n)::BIGINT AS units, min(n) AS least FROM given GROUP BY key ORDER BY key"
    )
    return duckdb.sql(query).to_arrow_table().to_pylist()


def together(root: Path) -> None:
    """Wait until all processes are there: starting them takes longer than what they do."""
    (root / f"ready-{os.getpid()}").touch()
    while not (root / "go").exists():
        time.sleep(0.01)


if __name__ == "__main__":
    together(Path(sys.argv[2]))
    {"append": append, "refresh": refresh, "maintain": maintain}[sys.argv[1]](Path(sys.argv[2]))
