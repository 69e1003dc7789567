"""What one batch does not show: histories, each of some stages, each stage in a process of its own on the same folder.

    python -m benchmarks.histories MODULE STAGE JOB      runs one stage, as `run` starts it

A stage is a function of the history's module with the name of the stage; it is given the work folder, the history's
folder, the `Steps` that it times what it does with, and the sizes. What it returns is kept beside its steps' figures.
"""

from __future__ import annotations

import importlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.watch import Watched, watched

ROOT = Path(__file__).parent.parent
LONGEST = "_longest_seconds"
"""After the name of a step: the longest time it took. A median hides one round of three that takes ten times it."""


@dataclass(frozen=True)
class History:
    """One history.

    Args:
        module: below `benchmarks`.
        title: for people, with the sizes in braces.
        stages: in order; one that is named more than once is measured so often, and the median counts.
        sizes: name -> how large it is.
        quick: the same for `--quick`.
        ratios: figure -> the two it is the quotient of.
        also: sizes that have a second value in a whole run, each beside the others as they are.
    """

    module: str
    title: str
    stages: tuple[str, ...]
    sizes: Mapping[str, int]
    quick: Mapping[str, int]
    ratios: Mapping[str, tuple[str, str]]
    also: Mapping[str, int] = field(default_factory=dict)


HISTORIES = {
    "small": History(
        "small",
        "{refreshes:,} refreshes of {changes:,} changes into {rows:,} rows, 4 buckets; "
        "compacted every {compact_every}, copy-on-write: {copy_on_write}",
        ("refresh", "plan", "plan", "plan", "read"),
        {"rows": 1_000_000, "refreshes": 1_000, "changes": 1_000, "compact_every": 0, "copy_on_write": 0},
        {"rows": 200_000, "refreshes": 40, "changes": 1_000, "compact_every": 0, "copy_on_write": 0},
        {
            "commit_last_vs_first": ("commit_last_seconds", "commit_first_seconds"),
            "refresh_last_vs_first": ("refresh_last_seconds", "refresh_first_seconds"),
            "plan_vs_fresh": ("plan_after_seconds", "plan_fresh_seconds"),
            "read_arrow_vs_fresh": ("read_arrow_after_seconds", "read_arrow_fresh_seconds"),
            "read_spark_vs_fresh": ("read_spark_after_seconds", "read_spark_fresh_seconds"),
        },
        also={"compact_every": 100, "copy_on_write": 1},
    ),
    "long": History(
        "long",
        "{refreshes:,} refreshes of an event, five simulated seconds apart; compacted and expired every {expire_every}",
        ("refresh",),
        {"refreshes": 10_000, "expire_every": 720},
        {"refreshes": 100, "expire_every": 50},
        {"commit_last_vs_first": ("commit_last_seconds", "commit_first_seconds")},
        also={"expire_every": 0},
    ),
    "year": History(
        "sales",
        "A year of {days} days, {per_day:,} sales a day, two tables: in one run, and in {days}",
        ("one_run", "day_by_day", "duckdb"),
        {"days": 365, "per_day": 1_500, "rounds": 3},
        {"days": 20, "per_day": 1_500, "rounds": 1},
        {
            "one_run_vs_duckdb": ("one_run_seconds", "duckdb_seconds"),
            "daily_runs_vs_one_run": ("daily_runs_seconds", "one_run_seconds"),
        },
    ),
    "correction": History(
        "sales",
        "One day corrected in a year of {days} days, {per_day:,} sales a day, two tables",
        ("corrected", "duckdb", "spark"),
        {"days": 365, "per_day": 150_000, "rounds": 5},
        {"days": 60, "per_day": 15_000, "rounds": 3},
        {
            "correction_vs_duckdb": ("correction_seconds", "duckdb_seconds"),
            "correction_vs_spark": ("correction_seconds", "spark_overwrite_seconds"),
        },
    ),
    "recompute": History(
        "recompute",
        "The last event of 1 % of {rows:,} keys restated (near: {near}): maximum, minimum, latest cannot subtract",
        ("load", "restated", "duckdb"),
        {"rows": 5_000_000, "near": 0, "rounds": 5},
        {"rows": 300_000, "near": 0, "rounds": 3},
        {"restated_vs_duckdb": ("restated_seconds", "duckdb_seconds")},
        also={"near": 1},
    ),
    "joins": History(
        "joins",
        "{changes:,} payments and half as many orders change under joins of {rows:,} orders and payments",
        ("load", "changed", "spark", "duckdb", "flink"),
        {"rows": 2_000_000, "changes": 1_000, "rounds": 5},
        {"rows": 200_000, "changes": 1_000, "rounds": 3},
        {
            "by_order_vs_spark": ("by_order_seconds", "spark_by_order_seconds"),
            "by_order_vs_duckdb": ("by_order_seconds", "duckdb_by_order_seconds"),
            "by_customer_vs_spark": ("by_customer_seconds", "spark_by_customer_seconds"),
            "by_customer_vs_duckdb": ("by_customer_seconds", "duckdb_by_customer_seconds"),
            "by_order_vs_flink": ("by_order_seconds", "flink_by_order_seconds"),
            "by_customer_vs_flink": ("by_customer_seconds", "flink_by_customer_seconds"),
        },
        also={"changes": 100_000},
    ),
    "tpch": History(
        "tpch",
        "TPC-H Q3, Q5 and Q10 over {rows:,} orders, where {changes:,} orders and four times as many lines change",
        ("load", "changed", "spark", "duckdb"),
        {"rows": 1_500_000, "changes": 1_500, "rounds": 3},
        {"rows": 150_000, "changes": 150, "rounds": 3},
        {
            f"{query}_vs_{peer}": (f"{query}_seconds", f"{peer}_{query}_seconds")
            for query in ("q3", "q5", "q10")
            for peer in ("spark", "duckdb")
        },
        also={"changes": 15_000},
    ),
    "files": History(
        "files",
        "One old day corrected among {days:,} days, a file each",
        ("load", "corrected", "planned", "committed", "read", "deltalake", "iceberg"),
        {"days": 10_000, "rounds": 5},
        {"days": 365, "rounds": 3},
        {
            "refresh_vs_deltalake": ("refresh_seconds", "deltalake_merge_seconds"),
            "refresh_vs_iceberg": ("refresh_seconds", "jvm_merge_seconds"),
            "first_fold_vs_deltalake": ("first_fold_seconds", "deltalake_load_seconds"),
            "read_vs_pyarrow": ("read_seconds", "pyarrow_read_seconds"),
            "read_vs_deltalake": ("read_seconds", "deltalake_read_seconds"),
        },
        also={"days": 365},
    ),
    "follow": History(
        "follow",
        "{per_second:,} events a second for {seconds:,} s through a chain of three tables, `follow` killed each "
        "{kill_every} s",
        ("follow",),
        {"seconds": 1_800, "per_second": 1_000, "kill_every": 60},
        {"seconds": 60, "per_second": 1_000, "kill_every": 20},
        {},
    ),
    "stores": History(
        "stores",
        "{changes:,} changes into {rows:,} rows, 4 buckets: a folder, and REST with S3, servers on this machine",
        ("refresh",),
        {"rows": 1_000_000, "changes": 1_000, "rounds": 7},
        {"rows": 200_000, "changes": 1_000, "rounds": 3},
        {"served_vs_local": ("served_refresh_seconds", "local_refresh_seconds")},
        also={"changes": 100_000},
    ),
    "connectors": History(
        "connectors",
        "{changes:,} changes into {rows:,} rows at S3 on this machine: Spark's tasks read with Arrow, and with s3a",
        ("turns",),
        {"rows": 1_000_000, "changes": 100_000, "rounds": 5},
        {"rows": 200_000, "changes": 1_000, "rounds": 3},
        {
            "read_arrow_vs_s3a": ("arrow_read_seconds", "s3a_read_seconds"),
            "rebuild_arrow_vs_s3a": ("arrow_rebuild_seconds", "s3a_rebuild_seconds"),
            "refresh_arrow_vs_s3a": ("arrow_refresh_seconds", "s3a_refresh_seconds"),
        },
    ),
    "manyfiles": History(
        "files",
        "One old day corrected among {days:,} days, a file each, without peers",
        ("load", "corrected", "planned", "committed"),
        {"days": 100_000, "rounds": 5},
        {"days": 3_650, "rounds": 3},
        {},
        also={"days": 3_650},
    ),
    "reads": History(
        "reads",
        "Spark reads {rows:,} rows, then the same after two batches of {changes:,} changes",
        ("load", "clean", "clean_jvm", "clean", "clean_jvm", "wear", "worn", "worn_jvm", "worn", "worn_jvm"),
        {"rows": 5_000_000, "changes": 100_000, "rounds": 5},
        {"rows": 500_000, "changes": 10_000, "rounds": 3},
        {"clean_vs_jvm": ("clean_seconds", "clean_jvm_seconds"), "worn_vs_jvm": ("worn_seconds", "worn_jvm_seconds")},
    ),
    "memory": History(
        "memory",
        "Memory: {changes:,} changes into {rows:,} rows, and a rebuild from {events:,} events",
        ("load", "fold", "land", "rebuild", "duckdb"),
        {"rows": 20_000_000, "changes": 1_000_000, "events": 50_000_000},
        {"rows": 500_000, "changes": 100_000, "events": 1_200_000},
        {"rebuild_vs_duckdb": ("rebuild_seconds", "duckdb_seconds")},
    ),
}


class Steps:
    """Times what a stage does: `with steps("fold"): ...`. A step that is done more than once counts by its median."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, float, float]] = []

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        yield
        self.taken.append((name, started, time.monotonic()))

    def of(self, name: str) -> list[float]:
        """The seconds of a step, each time it was done."""
        return [ended - started for one, started, ended in self.taken if one == name]


PEERS = {
    "spark": "spark-recompute",
    "duckdb": "duckdb",
    "flink": "flink",
    "deltalake": "deltalake",
    "iceberg": "iceberg-mor",
}
"""The name of a stage that is a peer's alone -> the contender that it is; one that nobody asked for is left out."""


class StageFailed(RuntimeError):
    """A stage failed; the figures of those before it are kept.

    Args:
        failure: what the stage said.
        figures: as `run` returns them.
    """

    def __init__(self, failure: RuntimeError, figures: dict[str, Any]) -> None:
        super().__init__(str(failure))
        self.figures = figures


def run(name: str, work: Path, sizes: Mapping[str, int], contenders: Sequence[str] = ()) -> dict[str, Any]:
    """Run the stages of a history.

    Args:
        name: of `HISTORIES`.
        work: the work folder.
        sizes: how large.
        contenders: the peers to measure; by default all.

    Returns:
        The sizes, what the stages tell, `<step>_seconds`, `<step>_longest_seconds` and `<step>_peak_bytes` (of all
        processes) of their steps, and the ratios.

    Raises:
        StageFailed: a stage failed; those after it are not run.
    """
    history = HISTORIES[name]
    load_average = os.getloadavg()[0]
    found: dict[str, list[Any]] = {}
    failed: RuntimeError | None = None
    work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="history-", dir=work) as folder:
        for stage in history.stages:
            if contenders and stage in PEERS and PEERS[stage] not in contenders:
                continue
            try:
                told = _stage(history.module, stage, work, Path(folder), sizes)
            except RuntimeError as failure:
                failed = failure
                break
            for figure, value in told.items():
                found.setdefault(figure, []).append(value)
    figures = {figure: _together(figure, values) for figure, values in found.items()}
    for figure, (one, other) in history.ratios.items():
        if one in figures and other in figures:  # a peer that could not be had has none
            figures[figure] = figures[one] / figures[other]
    figures = {**sizes, "load_average": round(load_average, 1), **figures}
    if failed is not None:
        raise StageFailed(failed, figures) from failed
    return figures


def _together(figure: str, values: list[float]) -> float:
    """The figure of a stage that was done more than once: the median, and the longest of the longest."""
    return max(values) if figure.endswith(LONGEST) else statistics.median(values)


def staged(module: str, stage: str, work: Path, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Run one stage of a module that is no history, in a process and a folder of its own; return its figures.

    Raises:
        RuntimeError: it failed.
    """
    work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{module}-", dir=work) as folder:
        return _stage(module, stage, work, Path(folder), sizes)


def _stage(module: str, stage: str, work: Path, folder: Path, sizes: Mapping[str, Any]) -> dict[str, Any]:
    told = folder / f"{stage}.json"
    job = {"work": str(work), "folder": str(folder), "sizes": dict(sizes), "told": str(told)}
    command = [sys.executable, "-m", "benchmarks.histories", module, stage, json.dumps(job)]
    # A later stage finds what an earlier one compiled, but not what another history did.
    variables = {"PYTHONPATH": str(ROOT), "TZ": "UTC", "FOLDHOUSE_COMPILED": str(folder / "compiled")}
    os.sync()  # what an earlier stage wrote is on the disk, so that this one does not wait for it
    seen = watched(command, variables, ROOT)
    said = json.loads(told.read_text())
    return {**said["figures"], **_of_steps(said["steps"], seen)}


def _of_steps(taken: list[tuple[str, float, float]], seen: Watched) -> dict[str, float]:
    """Seconds (the median, and the longest of several) and peak of all processes (the greatest) of each step."""
    found: dict[str, float] = {}
    for name in dict.fromkeys(name for name, _, _ in taken):
        spans = [(started, ended) for one, started, ended in taken if one == name]
        times = [ended - started for started, ended in spans]
        found[f"{name}_seconds"] = statistics.median(times)
        if len(times) > 1:
            found[f"{name}{LONGEST}"] = max(times)
        found[f"{name}_peak_bytes"] = max(seen.peak_between(*span) for span in spans)
    return found


def main() -> None:
    """Run the stage that is named."""
    module, stage, job = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    steps = Steps()
    function = getattr(importlib.import_module(f"benchmarks.{module}"), stage)
    figures = function(Path(job["work"]), Path(job["folder"]), steps, **job["sizes"])
    Path(job["told"]).write_text(json.dumps({"figures": figures, "steps": steps.taken}))


if __name__ == "__main__":
    main()
