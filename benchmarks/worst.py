"""Refreshing against recomputing: each kind of definition, change and size, in seconds of both.

A case is a table of `DEFINITIONS`, a number of events and one of `CHANGES`. foldhouse refreshes the table after the
change. Then Spark computes the same table from the same streams, in the same session, and writes it as Parquet. It has
done so once before the first load: else the one that comes first would wait for the compiler for both. What a new
process costs is measured apart (`process`): each side loads the table in a process and a session of its own. Events
have a key of about four events, and are stored in a file for each of ten days.

The claim that is measured: no refresh takes more than 1.1 times as long as recomputing the table with Spark.
"""

from __future__ import annotations

import contextlib
import shutil
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table as Shown

import foldhouse as fh
from benchmarks.agreement import check_same_rows
from benchmarks.histories import Steps, staged
from benchmarks.worst_definitions import DEFINITIONS, Definition, item_events, items, readings, versions

FIRST, DAYS, PER_KEY = date(2024, 1, 1), 10, 4
PROCESS = "process"
CHANGES = (PROCESS, "first", "few", "all", "delete", "rollback")
"""The first load in a new process; in one that is warm; 100 more events; an event for each key; the events of a day
removed; as many events as there were appended, refreshed and rolled back."""
SIZES, QUICK_SIZES = (100, 10_000, 300_000, 2_000_000), (100, 300_000)
_FEW = 100
_FOLDER = "folder"


@dataclass
class _Case:
    """One definition at one size, on a lake of its own, and the number of the next batch of events."""

    lake: fh.Lake
    definition: Definition
    rows: int
    batch: int = 0

    @property
    def stream(self) -> fh.Stream:
        """The stream that the changes are made to."""
        return versions if self.definition.is_ordered else readings

    def append(self, keys: np.ndarray, day: int | None = None) -> None:
        """Append an event for each of some keys, spread over the days or on one day."""
        self.batch += 1
        days = np.arange(len(keys)) * DAYS // max(1, len(keys)) if day is None else np.full(len(keys), day)
        self.lake.append(self.stream, _events(keys, days, self.batch))

    def append_items(self, keys: np.ndarray) -> None:
        """Append a new version of some items, and refresh the table of items."""
        self.batch += 1
        columns = {"item": keys, "version": np.full(len(keys), self.batch), "category": (keys * 7 + self.batch) % 50}
        self.lake.append(item_events, pa.table(columns))
        self.lake.refresh(items)

    def append_versions(self, keys: np.ndarray, tables: Sequence[fh.Table]) -> None:
        """Append a new version of some keys, and refresh the tables that are folds of them."""
        self.batch += 1
        self.lake.append(versions, _events(keys, np.zeros(len(keys), dtype=int), self.batch))
        for table in tables:
            self.lake.refresh(table)

    def append_dimensions(self) -> None:
        """Append a new version of each key to the other sources of a join."""
        every = np.arange(self.keys)
        if self.definition.is_joined:
            self.append_items(every)
        if tables := self.definition.tables_of_versions:
            self.append_versions(every, tables)

    @property
    def keys(self) -> int:
        """The number of keys."""
        return max(1, self.rows // PER_KEY)


def _events(keys: np.ndarray, days: np.ndarray, batch: int) -> pa.Table:
    mixed = (keys * 2_654_435_761 + (np.arange(len(keys)) + 1) * 40_503 + batch * 97) % 1_000_003
    cents = pa.array(mixed).cast(pa.decimal128(20, 0))
    labels, regions = (
        pa.array([f"{name} {n}" for n in range(size)]) for name, size in (("label", 1000), ("region", 7))
    )
    columns = {
        "day": pa.array(np.datetime64(FIRST, "D") + days),
        "key": keys,
        "region": regions.take(pa.array(keys % 7)),
        "moment": pa.array(mixed).cast(pa.timestamp("s")).cast(pa.timestamp("us", "UTC")),
        "sequence": np.arange(len(keys)) + batch * 100_000_000,
        "item": keys // 2,
        "units": mixed,
        "amount": mixed / 7,
        "price": pc.multiply(cents, pa.scalar(Decimal("0.01"))).cast(pa.decimal128(12, 2)),
        "label": labels.take(pa.array(mixed % 1000)),
    }
    return pa.table(columns)


def measured(
    work: Path, folder: Path, steps: Steps, rows: int, rounds: int, definitions: list[str], kinds: list[str]
) -> dict[str, Any]:
    """Measure definitions at one size, one after another; the first of them twice, because it warms up the JVM."""
    cases = []
    for number, name in enumerate([definitions[0], *definitions]):
        place = folder / f"{rows}-{number}"
        found = list(_measured(place, DEFINITIONS[name], rows, rounds, kinds))
        if number and PROCESS in kinds:
            found.append(_of_processes(work, place / PROCESS, DEFINITIONS[name], rows, rounds))
        cases += found if number else []
        shutil.rmtree(place)
    return {"cases": cases}


def _measured(
    place: Path, definition: Definition, rows: int, rounds: int, kinds: list[str]
) -> Iterator[dict[str, Any]]:
    """Make each change some times, refresh, and recompute with Spark; yield the medians of each kind of change.

    Each first load is into a lake of its own, which compiles the declaration. The last one gets the other changes.
    """
    with contextlib.ExitStack() as lakes:
        for change in (one for one in CHANGES if one != PROCESS):
            if change != "first" and change not in kinds:
                continue
            times, runs = [], []
            for number in range(rounds if change in kinds else 1):
                if change == "first":
                    lake = lakes.enter_context(contextlib.closing(fh.Lake.local(place / f"lake-{number}")))
                    case = _Case(lake, definition, rows)
                _make(case, change)
                if change == "first" and number == 0:
                    _recompute(case, place / "spark")
                started = time.monotonic()
                runs.append(case.lake.refresh(definition.table))
                refreshed = time.monotonic()
                _recompute(case, place / "spark")
                times.append((refreshed - started, time.monotonic() - refreshed))
            if change in kinds:
                yield _figures(definition, rows, change, times, all(run.full_recompute for run in runs))
        _check(case, place)


def _figures(
    definition: Definition, rows: int, change: str, times: list[tuple[float, float]], full_recompute: bool
) -> dict[str, Any]:
    ours, theirs = (statistics.median(taken) for taken in zip(*times, strict=True))
    return {
        "definition": definition.name,
        "rows": rows,
        "change": change,
        "seconds": ours,
        "longest_seconds": max(taken for taken, _ in times),
        "spark_seconds": theirs,
        "ratio": ours / theirs,
        "full_recompute": full_recompute,
    }


def _of_processes(work: Path, place: Path, definition: Definition, rows: int, rounds: int) -> dict[str, Any]:
    """Load a table some times in new processes, one after another of foldhouse and of Spark, and compare the rows."""
    times = []
    for number in range(rounds):
        lake = place / f"lake-{number}"
        with contextlib.closing(fh.Lake.local(lake)) as opened:
            _make(_Case(opened, definition, rows), "first")
        sizes = {"lake": str(lake), "definition": definition.name, "rows": rows}
        ours, theirs = (staged("worst", stage, work, sizes)["load_seconds"] for stage in ("refreshed", "recomputed"))
        times.append((ours, theirs))
        with contextlib.closing(fh.Lake.local(lake)) as opened:
            _check(_Case(opened, definition, rows), place)
    return _figures(definition, rows, PROCESS, times, full_recompute=False)


def refreshed(work: Path, folder: Path, steps: Steps, lake: str, definition: str, rows: int) -> dict[str, Any]:
    """Load a table in this process."""
    with contextlib.closing(fh.Lake.local(lake)) as opened, steps("load"):
        opened.refresh(DEFINITIONS[definition].table)
    return {}


def recomputed(work: Path, folder: Path, steps: Steps, lake: str, definition: str, rows: int) -> dict[str, Any]:
    """Have Spark compute a table in this process."""
    with contextlib.closing(fh.Lake.local(lake)) as opened, steps("load"):
        _recompute(_Case(opened, DEFINITIONS[definition], rows), Path(lake).parent / "spark")
    return {}


def _make(case: _Case, change: str) -> None:
    """Change the stream; all sides of a join change with each key."""
    every = np.arange(case.keys)
    if change == "first":
        case.append_dimensions()
        for day in range(DAYS):
            share = np.arange(day * case.rows // DAYS, (day + 1) * case.rows // DAYS)
            case.append(share * 7_919 % case.keys, day)
    elif change == "few":
        case.append(every[:: max(1, case.keys // _FEW)][:_FEW], DAYS - 1)
    elif change == "all":
        case.append_dimensions()
        case.append(every)
    elif change == "delete":
        day = FIRST + timedelta(days=case.batch % DAYS)
        case.append(every[: max(1, case.keys // 3)], (day - FIRST).days)  # a day is deleted once a round
        case.lake.refresh(case.definition.table)
        none = _events(every[:0], every[:0], 0)
        case.lake.replace(case.stream, none, partitions=[day])
    else:
        before = case.lake.head(case.stream)
        assert before is not None
        case.append(np.arange(case.rows) % case.keys)
        case.lake.refresh(case.definition.table)
        case.lake.rollback(case.stream, to=before.id)


def _recompute(case: _Case, to: Path) -> None:
    """Compute the table from all its events with Spark, as Parquet: a file for each day, if the table has days."""
    definition = case.definition
    rows = definition.recomputed([case.lake.read(source) for source in definition.table.sources])
    if definition.table.partition_by is None:
        rows.write.mode("overwrite").parquet(str(to))
        return
    divided = rows.withColumn(_FOLDER, F.col(definition.table.partition_by)).repartition(_FOLDER)
    divided.write.mode("overwrite").partitionBy(_FOLDER).parquet(str(to))


def _check(case: _Case, place: Path) -> None:
    """Compare the exact columns of both tables."""
    names = [*case.definition.table.keys, *case.definition.exact]
    ours = case.lake.to_arrow(case.definition.table).select(names)
    pq.write_table(ours, place / "ours.parquet")
    theirs = pq.read_table(place / "spark").select(names)
    pq.write_table(theirs.cast(ours.schema), place / "theirs.parquet")
    check_same_rows(place / "ours.parquet", place / "theirs.parquet", names)


def show(figures: list[dict[str, Any]], console: Console) -> None:
    """Print a line for each definition and size: seconds of both for each change, and their ratio."""
    table = Shown(title="refresh s / Spark again s = ratio; * where foldhouse recomputes", title_justify="left")
    table.add_column("definition")
    table.add_column("events", justify="right")
    for change in CHANGES:
        table.add_column(change, justify="right")
    lines: dict[tuple[str, int], dict[str, str]] = {}
    for one in figures:
        cell = f"{one['seconds']:.2f}/{one['spark_seconds']:.2f}\n= {one['ratio']:.2f}{'*' * one['full_recompute']}"
        lines.setdefault((one["definition"], one["rows"]), {})[one["change"]] = cell
    for (name, rows), cells in lines.items():
        table.add_row(name, f"{rows:,}", *(cells.get(change, "") for change in CHANGES))
    console.print(table)
    over = [one for one in figures if one["ratio"] > 1.1]
    console.print(f"{len(over)} of {len(figures)} cases above 1.1")
    for one in figures:  # a median hides a round of three that takes much longer
        if one["longest_seconds"] > 1.1 * one["spark_seconds"] and one not in over:
            case = f"{one['definition']}, {one['rows']:,} events, {one['change']}"
            console.print(f"{case}: a round took {one['longest_seconds']:.2f} s, Spark {one['spark_seconds']:.2f} s")
