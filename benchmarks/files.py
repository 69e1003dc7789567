"""A table of daily partitions, one file each, where one old day is corrected: what does a day cost among many others?

Each day has 20 lines in the stream and up to 20 items in the table. A correction appends 200 lines of one old day, and
the table follows; or it replaces that day in the stream, and the table follows.

Peers, on a table of the same days, a file each: deltalake and Iceberg's own library in Spark merge the 200 lines into
the day, each with a condition on the day so that they can leave out the others.
"""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import foldhouse as fh
from benchmarks.agreement import check_same_rows
from benchmarks.histories import Steps
from benchmarks.peer_steps import steps_of
from benchmarks.peers import Missing, environment
from foldhouse.storage.live import live_of

FIRST = date(1900, 1, 1)
COMMITTED_FILES = 5_000
PEER_SECONDS = 120
"""A peer that takes longer is given up; its figures are those of the steps that it ended."""
PEER_ROUNDS = 2
"""Corrections by a peer, after the first: a merge into many partitions takes seconds."""
LINES, LATE_LINES, ITEMS = 20, 200, 50
lines = fh.stream(
    "bench.lines",
    schema={"line_id": "long", "day": "date", "item": "long", "quantity": "long", "paid": "long"},
    keys="line_id",
    partition_by="day",
)
daily = fh.table(
    "bench.daily",
    source=lines,
    keys=["day", "item"],
    partition_by="day",
    fold=fh.fold(quantity=fh.total("quantity"), paid=fh.total("paid"), lines=fh.count()),
)
DAILY_SQL = """SELECT day, item, CAST(sum(quantity) AS BIGINT) AS quantity, CAST(sum(paid) AS BIGINT) AS paid,
    count(*) AS lines FROM {lines} GROUP BY day, item ORDER BY day, item"""


def a_day(number: int) -> date:
    """The day of a number, from 0."""
    return FIRST + timedelta(days=number)


def lines_of(days: np.ndarray[Any, Any], each: int, first: int) -> pa.Table:
    """So many lines of each day, with ids from `first` on."""
    of = np.repeat(days, each)
    ids = np.arange(first, first + len(of))
    return pa.table(
        {
            "line_id": ids,
            "day": pa.array((np.datetime64(FIRST) + of).astype("datetime64[D]")),
            "item": ids * 7_919 % ITEMS,
            "quantity": ids % 11,
            "paid": ids % 9_973,
        }
    )


def late(days: int, number: int) -> tuple[date, pa.Table]:
    """An old day, and the lines that come late for it."""
    chosen = int(np.random.default_rng([9, number]).integers(0, days))
    return a_day(chosen), lines_of(np.array([chosen]), LATE_LINES, days * LINES + number * LATE_LINES)


def load(work: Path, folder: Path, steps: Steps, days: int, rounds: int) -> dict[str, Any]:
    """All days landed in one append, and folded for the first time."""
    lake = fh.Lake.local(folder / "lake")
    with steps("first_append"):
        lake.append(lines, lines_of(np.arange(days), LINES, 0))
    with steps("first_fold"):
        lake.refresh(daily)
    lake.close()
    pq.write_table(lake.to_arrow(daily), folder / "daily.parquet")
    return {}


def corrected(work: Path, folder: Path, steps: Steps, days: int, rounds: int) -> dict[str, Any]:
    """One old day after the other gets late lines, then is replaced; the first time in the process is told apart."""
    lake = fh.Lake.local(folder / "lake")
    found: dict[str, Any] = {}
    for number in range(rounds + 1):
        first = "first_" if not number else ""
        day, rows = late(days, 2 * number)
        with steps(f"{first}append"):
            lake.append(lines, rows)
        with steps(f"{first}refresh"):
            run = lake.refresh(daily)
        found = {"files_read": run.files_read, "rows_written": run.rows_written}
        day, rows = late(days, 2 * number + 1)
        with steps(f"{first}replace"):
            lake.replace(lines, rows, partitions=[day])
        with steps(f"{first}refresh_of_replaced"):
            lake.refresh(daily)
    lake.close()
    return found


def planned(work: Path, folder: Path, steps: Steps, days: int, rounds: int) -> dict[str, Any]:
    """A new process lists every live file of the table: what a driver holds to plan a read of all of it."""
    lake = fh.Lake.local(folder / "lake")
    iceberg = lake.load(daily)
    with steps("plan_of_all_files"):
        found = live_of(iceberg, iceberg.metadata.current_snapshot_id).slices()
    lake.close()
    return {"files": len(found)}


def committed(work: Path, folder: Path, steps: Steps, days: int, rounds: int) -> dict[str, Any]:
    """One commit of 5,000 files: so many days are added, a file each, to the stream that has all the others."""
    lake = fh.Lake.local(folder / "lake")
    rows = lines_of(np.arange(days, days + COMMITTED_FILES), LINES, 10**9)
    with steps("append_of_5000_files"):
        lake.append(lines, rows)
    lake.close()
    return {}


def read(work: Path, folder: Path, steps: Steps, days: int, rounds: int) -> dict[str, Any]:
    """The whole table into Arrow, in a new process; it holds what DuckDB folds from the lines."""
    lake = fh.Lake.local(folder / "lake")
    with steps("read"):
        rows = lake.to_arrow(daily)
    iceberg = lake.load(daily)
    paths = [
        one.file.path.removeprefix("file://") for one in live_of(iceberg, iceberg.metadata.current_snapshot_id).slices()
    ]
    with steps("pyarrow_read"), ThreadPoolExecutor(os.cpu_count()) as threads:
        pa.concat_tables(threads.map(lambda path: pq.ParquetFile(path).read(use_threads=False), paths))
    pq.write_table(rows, folder / "ours.parquet")
    given = lake.to_arrow(lines).filter(pc.less(pc.field("day"), a_day(days)))
    lake.close()
    connection = duckdb.connect()
    connection.register("given", given)
    connection.execute(f"COPY ({DAILY_SQL.format(lines='given')}) TO '{folder}/theirs.parquet' (FORMAT parquet)")
    connection.close()
    check_same_rows(folder / "ours.parquet", folder / "theirs.parquet", ["day", "item", "quantity", "paid", "lines"])
    return {}


def deltalake(work: Path, folder: Path, steps: Steps, days: int, rounds: int) -> dict[str, Any]:
    """deltalake: the late lines of a day merged into its table, and the day overwritten."""
    return _peer("deltalake", work, folder, steps, days, rounds)


def iceberg(work: Path, folder: Path, steps: Steps, days: int, rounds: int) -> dict[str, Any]:
    """Iceberg's own library in Spark: the late lines of a day by `MERGE INTO`, and the day overwritten."""
    return _peer("jvm", work, folder, steps, days, rounds)


def _peer(name: str, work: Path, folder: Path, steps: Steps, days: int, rounds: int) -> dict[str, Any]:
    """Run a peer in its own environment, on files with the late lines folded by day and item."""
    try:
        peer = environment(name, work)
    except Missing as missing:
        print(f"{name} was left out: {missing}")
        return {}
    given = folder / name
    given.mkdir()
    for number in range(2 * (rounds + 1)):
        with duckdb.connect() as connection:
            connection.register("late", late(days, number)[1])
            connection.execute(
                f"COPY ({DAILY_SQL.format(lines='late')}) TO '{given}/{number}.parquet' (FORMAT parquet)"
            )
    job = {
        "name": name,
        "folder": str(given),
        "first": str(folder / "daily.parquet"),
        "rounds": min(rounds, PEER_ROUNDS),
    }
    command = [peer.python, "-m", "benchmarks.contenders.days", json.dumps(job)]
    told, has_ended = steps_of(name, command, peer.variables, PEER_SECONDS)
    steps.taken += [(f"{name}_{step}", began, ended) for step, began, ended in told]
    return {} if has_ended else {f"{name}_given_up_after_seconds": PEER_SECONDS}
