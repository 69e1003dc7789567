"""`foldhouse follow` over a chain of three tables, killed each minute: from an event to the last table, and what grows.

This process appends; another one follows, and is killed and started again. The delay of an event begins at the moment
it is due, before its batch is full, and ends at the first commit of the last table that counts it. Snapshots of the
last table are read as they appear, because `follow` expires them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import polars as pl

import foldhouse as fh
from benchmarks.followed import BY_FLOOR, BY_SENSOR, CHAIN, EVENTS
from benchmarks.histories import ROOT, Steps
from benchmarks.watch import tree_bytes

_BATCHES_A_SECOND = 4
_SENSORS, _ROOMS, _FLOORS = 10_000, 100, 5
_LOOK_SECONDS = 20.0
_SAMPLE_SECONDS = 5.0
_DRAIN_SECONDS = 120.0
_STARTING_SECONDS = 30.0
"""So long, a process may not have come to where it catches SIGTERM."""
_SEED = 7
Moments = npt.NDArray[np.float64]
Grown = tuple[float, int, int]
"""A moment, and how many files and snapshots the lake had then."""


def follow(work: Path, folder: Path, steps: Steps, seconds: int, per_second: int, kill_every: int) -> dict[str, Any]:
    """Append at a steady rate while `foldhouse follow` runs; then compare all tables with the events."""
    del work
    made = fh.Lake.local(folder / "lake")
    made.append(EVENTS, _batch(0, 0))  # an empty batch, so that the stream exists
    made.close()
    rows, batches = per_second // _BATCHES_A_SECOND, seconds * _BATCHES_A_SECOND
    commits: dict[int, tuple[float, int]] = {}
    growth: list[Grown] = []
    memory: list[tuple[float, int]] = []
    look = partial(_look, folder, commits, growth)
    with _follower(folder, kill_every, memory) as (kills, stays), steps("appending"), _every(_LOOK_SECONDS, look):
        due = _appended(folder, batches, rows)
        stays.set()
        _drain(folder, due.size)
    look()
    _check(folder, batches, rows)
    delays = _delays(due, sorted(commits.values()))
    return {
        "events": due.size,
        "kills": len(kills),
        "delay_median_seconds": float(np.percentile(delays, 50)),
        "delay_p99_seconds": float(np.percentile(delays, 99)),
        "delay_largest_seconds": float(delays.max()),
        **_grown(growth, memory),
    }


def _batch(number: int, rows: int) -> pl.DataFrame:
    sensors = np.random.default_rng((_SEED, number)).integers(0, _SENSORS, rows)
    return pl.DataFrame(
        {"sensor": sensors, "room": sensors % _ROOMS, "floor": sensors % _FLOORS, "value": np.arange(rows) + number}
    )


def _appended(folder: Path, batches: int, rows: int) -> Moments:
    """Append a batch four times a second; return the moment at which each event was due."""
    lake = fh.Lake.local(folder / "lake")
    began = time.time()
    for number in range(1, batches + 1):
        time.sleep(max(0.0, began + number / _BATCHES_A_SECOND - time.time()))
        lake.append(EVENTS, _batch(number, rows), batch_id=str(number))
    lake.close()
    due: Moments = began + np.arange(rows * batches) / (rows * _BATCHES_A_SECOND)
    return due


@contextmanager
def _follower(
    folder: Path, kill_every: int, memory: list[tuple[float, int]]
) -> Iterator[tuple[list[int], threading.Event]]:
    """Run `foldhouse follow`, killed every so many seconds until the event is set; SIGTERM must end it well.

    Where a start takes longer than a process may live, none comes to a commit; the last one stays and does all of it.
    """
    kills: list[int] = []
    running, born = [_started(folder)], [time.monotonic()]
    stays, done = threading.Event(), threading.Event()

    def watch() -> None:
        while not done.wait(_SAMPLE_SECONDS):
            memory.append((time.time(), tree_bytes(running[0].pid)))
            if not stays.is_set() and time.monotonic() - born[0] >= kill_every:
                running[0].send_signal(signal.SIGKILL)
                kills.append(running[0].wait())
                running[0], born[0] = _started(folder), time.monotonic()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield kills, stays
    finally:
        done.set()
        thread.join()
        is_starting = time.monotonic() - born[0] < _STARTING_SECONDS
        running[0].terminate()
        ended = running[0].wait(timeout=_DRAIN_SECONDS)
    if ended and not (is_starting and ended == -signal.SIGTERM):
        raise RuntimeError(f"follow ended with {ended}: {(folder / 'follow.log').read_text()[-2000:]}")
    if any(one != -signal.SIGKILL for one in kills):
        raise RuntimeError(f"follow ended before it was killed: {(folder / 'follow.log').read_text()[-2000:]}")


def _started(folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", "from foldhouse.cli import main; main()", "follow", "--json"]
    with (folder / "follow.log").open("ab") as log:
        return subprocess.Popen(
            [*command, "--declared-in", "benchmarks.followed", "--lake", str(folder / "lake")],
            cwd=ROOT,
            stdout=log,
            stderr=log,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )


@contextmanager
def _every(seconds: float, look: Callable[[], None]) -> Iterator[None]:
    """Call a function again and again in a thread; what it raises is raised at the end."""
    done = threading.Event()
    raised: list[Exception] = []

    def run() -> None:
        try:
            while not done.wait(seconds):
                look()
        except Exception as failure:
            raised.append(failure)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    if raised:
        raise raised[0]


def _look(folder: Path, commits: dict[int, tuple[float, int]], growth: list[Grown]) -> None:
    """Read new snapshots of the last table, and count files and snapshots of the lake."""
    lake = fh.Lake.local(folder / "lake")
    if BY_FLOOR.name in lake.tables():
        for one in lake.history(BY_FLOOR):
            if one.id not in commits:
                counted = int(lake.to_polars(BY_FLOOR, as_of=one.id)["events"].sum())
                commits[one.id] = (one.committed_at.timestamp(), counted)
        snapshots = sum(len(lake.load(name).snapshots()) for name in lake.tables())
        files = sum(len(names) for _, _, names in os.walk(folder / "lake"))
        growth.append((time.time(), files, snapshots))
    lake.close()


def _drain(folder: Path, events: int) -> None:
    lake = fh.Lake.local(folder / "lake")
    until = time.monotonic() + _DRAIN_SECONDS
    while BY_FLOOR.name not in lake.tables() or lake.to_polars(BY_FLOOR)["events"].sum() != events:
        if time.monotonic() > until:
            raise RuntimeError(f"after {_DRAIN_SECONDS:.0f} s without events, not all {events:,} are in the last table")
        time.sleep(0.5)
    lake.close()


def _check(folder: Path, batches: int, rows: int) -> None:
    """Compare all tables with what DuckDB computes from the batches, which are made again from their seeds."""
    connection = duckdb.connect()
    connection.register("made", pl.concat([_batch(number, rows) for number in range(1, batches + 1)]).to_arrow())
    lake = fh.Lake.local(folder / "lake")
    for table in CHAIN:
        keys = ", ".join(table.keys)
        largest = ", max(value) AS largest" if table is BY_SENSOR else ""
        query = f"SELECT {keys}, count(*) AS events, sum(value)::BIGINT AS value{largest} FROM made GROUP BY ALL"
        expected = pl.DataFrame(connection.sql(query).to_arrow_table()).sort(table.keys)
        found = lake.to_polars(table).select(expected.columns).sort(table.keys)
        if not found.equals(expected):
            raise RuntimeError(f"{table.name} does not hold what was appended")
    lake.close()


def _delays(due: Moments, commits: Sequence[tuple[float, int]]) -> Moments:
    """Return the seconds of each event until the first commit of the last table that counts it."""
    counted = np.array([events for _, events in commits])
    at = np.array([moment for moment, _ in commits])
    delays: Moments = at[np.searchsorted(counted, np.arange(1, due.size + 1))] - due
    return delays


def _grown(growth: Sequence[Grown], memory: Sequence[tuple[float, int]]) -> dict[str, float]:
    """Return the most that was held in each third of the run: files, snapshots, memory."""
    began, ended = growth[0][0], growth[-1][0]
    found: dict[str, float] = {}
    for third in range(3):
        first, last = (began + (ended - began) * part / 3 for part in (third, third + 1))
        inside = [one for one in growth if first <= one[0] <= last]
        held = [size for at, size in memory if first <= at <= last]
        found[f"files_in_third_{third + 1}"] = max((files for _, files, _ in inside), default=0)
        found[f"snapshots_in_third_{third + 1}"] = max((snapshots for _, _, snapshots in inside), default=0)
        found[f"memory_in_third_{third + 1}_bytes"] = max(held, default=0)
    return found
