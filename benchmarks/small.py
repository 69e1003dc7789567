"""A thousand small refreshes: what the first and the last cost, and what a reader finds afterwards.

A commit is all from the finished files to the moved head: manifests, metadata, the catalog. Planning is loading the
table and finding its live files, nothing of it cached. A full read is a sum over every column with Spark, and all of
it into Arrow, in a warm session. The table is compared with one that is folded anew from the same stream in one
commit, and has no history: both are read in turns in the same process.
"""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import foldhouse as fh
from benchmarks.contenders import sql
from benchmarks.contenders.foldhouse_refresh import TABLES, events
from benchmarks.events import batches
from benchmarks.histories import Steps
from foldhouse.storage import avro, live
from foldhouse.storage.live import live_slices

BUCKETS = 4
"""Of 250,000 rows, as the runbook advises; the other benchmarks have 16 of 300,000."""
TABLE = fh.table("bench.small", source=events, buckets=BUCKETS, fold=TABLES["latest"].fold)
FRESH = fh.table("bench.fresh", source=events, buckets=BUCKETS, fold=TABLE.fold)
_WARM_UP, _FEW, _READS, _PLANS = 5, 50, 9, 9
_WARM_READS = 12
"""Of each table, before any is timed: until the JVM has compiled its code, a read takes up to three times as long."""


def refresh(
    work: Path,
    folder: Path,
    steps: Steps,
    rows: int,
    refreshes: int,
    changes: int,
    compact_every: int,
    copy_on_write: int,
) -> dict[str, Any]:
    """All refreshes; then the table that it is compared with."""
    given = batches(work / "data", rows, changes, "uniform", refreshes)
    lake = fh.Lake.local(folder / "lake")
    for part in sorted(given.base.glob("*.parquet")):
        lake.append(events, pq.read_table(part))
    lake.refresh(TABLE)
    if copy_on_write:
        with lake.load(TABLE).transaction() as transaction:
            transaction.set_properties({"write.merge.mode": "copy-on-write"})
    with _timed_commits() as commits:
        for number, batch in enumerate(given.changes, start=1):
            new = pq.read_table(batch)
            with steps("append"):
                lake.append(events, new)
            with steps("refresh"):
                lake.refresh(TABLE)
            if compact_every and number % compact_every == 0:
                with steps("compact_both"):
                    lake.compact(TABLE)
                    lake.compact(events)
    found: dict[str, Any] = {"refreshes_seconds": sum(steps.of("append")) + sum(steps.of("refresh"))}
    found["compactions_seconds"] = sum(steps.of("compact_both"))
    for name, taken in (("append", steps.of("append")), ("refresh", steps.of("refresh")), ("commit", commits)):
        found |= _first_and_last(name, taken)
    found |= {f"{name}_after": count for name, count in _size(lake, TABLE).items()}
    lake.refresh(FRESH)
    found |= {f"{name}_fresh": count for name, count in _size(lake, FRESH).items()}
    lake.close()
    return found


@contextmanager
def _timed_commits() -> Iterator[list[float]]:
    """The seconds of every commit of a refresh meanwhile are added to the list."""
    engine = importlib.import_module("foldhouse.refresh.refresh")
    commit, taken = engine.commit, []

    def timed(*arguments: Any, **options: Any) -> Any:
        started = time.monotonic()
        try:
            return commit(*arguments, **options)
        finally:
            taken.append(time.monotonic() - started)

    engine.commit = timed
    try:
        yield taken
    finally:
        engine.commit = commit


def _first_and_last(name: str, taken: list[float]) -> dict[str, float]:
    """Medians of the first and last fifty, or fewer where there are few; those that warm up the process left out."""
    warm = taken[_WARM_UP:] or taken
    few = max(1, min(_FEW, len(warm) // 2))
    return {
        f"{name}_first_seconds": statistics.median(warm[:few]),
        f"{name}_last_seconds": statistics.median(warm[-few:]),
        f"{name}_slowest_seconds": max(warm),
    }


def _size(lake: fh.Lake, table: fh.Table) -> dict[str, int]:
    """Files of the head, and the bytes that say which these are."""
    iceberg = lake.load(table)
    snapshot = iceberg.current_snapshot()
    assert snapshot is not None
    slices = live_slices(iceberg, snapshot.snapshot_id).values()
    manifests = snapshot.manifests(iceberg.io)
    length = sum(len(iceberg.io.new_input(path)) for path in (iceberg.metadata_location, snapshot.manifest_list))
    return {
        "data_files": len(slices),
        "delete_files": len({path for one in slices for path in one.deletes}),
        "data_bytes": sum(one.file.size_bytes for one in slices),
        "metadata_bytes": length + sum(manifest.manifest_length for manifest in manifests),
        "manifests": len(manifests),
        "snapshots": len(iceberg.metadata.snapshots),
    }


def plan(work: Path, folder: Path, steps: Steps, **sizes: int) -> dict[str, Any]:
    """Find the live files of both tables in turns, as a new process would: nothing of either was read before."""
    for number in range(_PLANS + 1):
        for name, table in (("plan_after", TABLE), ("plan_fresh", FRESH)):
            live.forget()
            avro._Records._readers.clear()
            lake = fh.Lake.local(folder / "lake")
            lake.tables()  # the connection to the catalog
            with steps(name) if number else nullcontext():  # the first time warms up the process
                iceberg = lake.load(table)
                live_slices(iceberg, iceberg.metadata.current_snapshot_id)
            lake.close()
    return {}


def read(work: Path, folder: Path, steps: Steps, **sizes: int) -> dict[str, Any]:
    """Read both tables in turns, which have to hold the same; and again after a compaction."""
    lake = fh.Lake.local(folder / "lake")
    tables = {"after": TABLE, "fresh": FRESH}
    sums = {_summed(lake, table) for table in tables.values()}
    assert len(sums) == 1, f"the table after many refreshes differs from the one folded anew: {sums}"
    for _ in range(_WARM_READS):
        for table in tables.values():
            _summed(lake, table)
            lake.to_arrow(table)
    for _ in range(_READS):
        _read(lake, steps, tables)
    with steps("compact"):
        lake.compact(TABLE)
    tables = {"compacted": TABLE, "beside_compacted": FRESH}
    for _ in range(_READS):
        _read(lake, steps, tables)
    found = {f"{name}_compacted": count for name, count in _size(lake, TABLE).items()}
    lake.close()
    return found


def _read(lake: fh.Lake, steps: Steps, tables: dict[str, fh.Table]) -> None:
    for when, table in tables.items():
        with steps(f"read_spark_{when}"):
            _summed(lake, table)
        with steps(f"read_arrow_{when}"):
            lake.to_arrow(table)


def _summed(lake: fh.Lake, table: fh.Table) -> tuple[Any, ...]:
    frame = lake.read(table)
    found = frame.selectExpr("count(*)", *(sql.summed(name) for name in frame.columns)).first()
    assert found is not None
    return tuple(found)
