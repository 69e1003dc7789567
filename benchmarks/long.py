"""A table refreshed every five seconds, by a simulated clock: what a commit and planning cost as its history grows.

Each refresh folds one event. With maintenance, table and stream are compacted and expired by their policy each
simulated hour; without it, all snapshots stay. A commit is all from the finished files to the moved head. Planning is
loading the table and finding its live files, as a new process would: nothing of either was read before.
"""

from __future__ import annotations

import statistics
import time
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pyarrow as pa

import foldhouse as fh
from benchmarks.histories import Steps
from benchmarks.small import _timed_commits
from foldhouse.storage import avro, live
from foldhouse.storage.live import live_slices

EVENTS = fh.stream("long.events", schema={"key": "long", "n": "long"}, keys="key", sequence_by="n")
TABLE = fh.table("long.newest", source=EVENTS, fold=fh.latest())
SECONDS = 5
_KEYS = 1_000
_AT = (100, 1_000, 10_000)
_FEW = 50
_PLANS = 5
_BEGIN = datetime(2050, 1, 1, tzinfo=UTC).timestamp()


def refresh(work: Path, folder: Path, steps: Steps, refreshes: int, expire_every: int) -> dict[str, Any]:
    """All refreshes, measured around the 100th, the 1,000th and the 10,000th."""
    del work
    lake = fh.Lake.local(folder / "lake")
    found: dict[str, Any] = {}
    clock = SimpleNamespace(time=lambda: _BEGIN + SECONDS * number)
    with patch("foldhouse.storage.clock.time", clock), _timed_commits() as commits:
        for number in range(1, refreshes + 1):
            lake.append(EVENTS, pa.table({"key": [number % _KEYS], "n": [number]}))
            lake.refresh(TABLE)
            if number in (*_AT, refreshes):
                found |= _measured(lake, folder, str(number) if number in _AT else "end", commits)
            if expire_every and number % expire_every == 0:
                for table in (EVENTS, TABLE):
                    with steps("maintenance"):
                        lake.compact(table)
                        lake.expire(table)
    found["commit_first_seconds"] = statistics.median(commits[5 : 5 + _FEW] or commits)
    found["commit_last_seconds"] = statistics.median(commits[-_FEW:])
    found["maintenance_seconds"] = sum(steps.of("maintenance"))
    assert lake.count(TABLE) == min(refreshes, _KEYS)
    lake.close()
    return found


def _measured(lake: fh.Lake, folder: Path, name: str, commits: list[float]) -> dict[str, Any]:
    plans = []
    for _ in range(_PLANS):
        live.forget()
        avro._Records._readers.clear()
        fresh = fh.Lake.local(folder / "lake")
        fresh.tables()  # the connection to the catalog
        started = time.monotonic()
        iceberg = fresh.load(TABLE)
        live_slices(iceberg, iceberg.metadata.current_snapshot_id)
        plans.append(time.monotonic() - started)
        fresh.close()
    iceberg = lake.load(TABLE)
    return {
        f"commit_at_{name}_seconds": statistics.median(commits[-_FEW:]),
        f"plan_at_{name}_seconds": statistics.median(plans),
        f"metadata_at_{name}_bytes": len(iceberg.io.new_input(iceberg.metadata_location)),
        f"snapshots_at_{name}": len(iceberg.snapshots()),
    }
