"""What only a history shows: a thousand small refreshes, and a year in one backfill or day by day and corrected.

Each runs in a process of its own: `python -m benchmarks.histories NAME FOLDER SIZES`.
"""

from __future__ import annotations

import importlib
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.events import batches
from benchmarks.watch import watched

ROOT = Path(__file__).parent.parent
TITLES = {
    "small": "{refreshes:,} refreshes of {changes:,} changes into {rows:,} rows",
    "year": "A year of {days} days, {per_day:,} sales a day, two tables",
}
_FEW = 20


def run(name: str, work: Path, **sizes: int) -> dict[str, Any]:
    """Run one in its own process, and give its figures with the peak of its memory."""
    with tempfile.TemporaryDirectory(prefix="foldhouse-bench-") as folder:
        told = Path(folder) / "figures.json"
        command = [sys.executable, "-m", "benchmarks.histories", name, str(work), folder, json.dumps(sizes), str(told)]
        seen = watched(command, {"PYTHONPATH": str(ROOT)}, ROOT)
        return {**sizes, **json.loads(told.read_text()), "peak_bytes": seen.peak_bytes}


def timed(action: Callable[[], object]) -> float:
    """Seconds that an action takes."""
    started = time.monotonic()
    action()
    return time.monotonic() - started


def small(work: Path, folder: Path, rows: int, refreshes: int, changes: int) -> dict[str, Any]:
    """Many small commits: what the first and the last cost, and what a reader finds afterwards.

    A commit is all from the finished files to the moved head: manifests, metadata, the catalog. Planning is
    pyiceberg's, a full read is into Arrow. The table beside it is folded anew from the same stream, in one commit.
    """
    import foldhouse as fh
    from benchmarks.contenders.foldhouse_refresh import TABLES, events

    engine = importlib.import_module("foldhouse.refresh.refresh")
    commit, commits = engine.commit, []

    def timed_commit(*arguments: Any, **options: Any) -> Any:
        started = time.monotonic()
        try:
            return commit(*arguments, **options)
        finally:
            commits.append(time.monotonic() - started)

    engine.commit = timed_commit
    import pyarrow.parquet as pq

    given = batches(work / "data", rows, changes, "uniform", refreshes)
    table, lake = TABLES["latest"], fh.Lake.local(folder / "lake")
    for part in sorted(given.base.glob("*.parquet")):
        lake.append(events, pq.read_table(part))
    lake.refresh(table)
    commits.clear()
    appends, refreshed = [], []
    for batch in given.changes:
        new = pq.read_table(batch)
        appends.append(timed(lambda new=new: lake.append(events, new)))
        refreshed.append(timed(lambda: lake.refresh(table)))
    fresh = fh.table("bench.fresh", source=events, buckets=table.buckets, fold=table.fold)
    lake.refresh(fresh)
    found: dict[str, Any] = {"all_seconds": sum(appends) + sum(refreshed)}
    for name, taken in (("append", appends), ("refresh", refreshed), ("commit", commits[: len(refreshed)])):
        warm = taken[5:] if len(taken) > 2 * _FEW else taken
        found[f"{name}_first_seconds"] = statistics.median(warm[:_FEW])
        found[f"{name}_last_seconds"] = statistics.median(warm[-_FEW:])
        found[f"{name}_slowest_seconds"] = max(warm)
    found |= _reading(lake, table, "after") | _reading(lake, fresh, "fresh")
    found["compact_seconds"] = timed(lambda: lake.compact(table))
    found |= _reading(lake, table, "compacted")
    assert lake.count(table) == lake.count(fresh)
    lake.close()
    return found


def _reading(lake: Any, table: Any, when: str) -> dict[str, Any]:
    def planned() -> list[Any]:
        return list(lake.load(table).scan().plan_files())

    planned()
    return {
        f"files_{when}": len(planned()),
        f"plan_{when}_seconds": statistics.median(timed(planned) for _ in range(5)),
        f"read_{when}_seconds": statistics.median(timed(lambda: lake.to_arrow(table)) for _ in range(5)),
    }


def year(work: Path, folder: Path, days: int, per_day: int) -> dict[str, Any]:
    """A year of sales: landed, folded in one backfill, folded day by day, and one day of it corrected."""
    from benchmarks import sales

    return sales.measure(folder, days, per_day)


def main() -> None:
    """Run what the first argument names."""
    name, work, folder, sizes, told = sys.argv[1:6]
    found = {"small": small, "year": year}[name](Path(work), Path(folder), **json.loads(sizes))
    Path(told).write_text(json.dumps(found))
    for path in Path(folder).glob("lake*"):
        shutil.rmtree(path, ignore_errors=True)


if __name__ == "__main__":
    main()
