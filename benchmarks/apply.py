"""Changes applied to a table: every contender on the same batches, one after the other, for each size."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.contenders import CONTENDERS
from benchmarks.events import batches
from benchmarks.measure import Failed, figures_of
from benchmarks.peers import Missing

MANY_CHANGES = 5_000_000
SLOW_ROUNDS = 3


@dataclass(frozen=True)
class Case:
    """What is measured: D changes into N rows, which keys, which fold."""

    workload: str
    keys: str
    rows: int
    changes: int

    def __str__(self) -> str:
        fold = {
            "latest": "latest, with deletes and late events",
            "once": "latest, with deletes, late events and an event_id, which only foldhouse looks at",
            "totals": "total and count",
        }[self.workload]
        return f"{short(self.changes)} changes into {short(self.rows)} rows, {self.keys} keys, {fold}"


QUICK = [Case("latest", "uniform", 1_000_000, changes) for changes in (1_000, 100_000)]
WHOLE = [
    *(
        Case("latest", "uniform", rows, changes)
        for rows in (1_000_000, 5_000_000, 20_000_000)
        for changes in (1_000, 100_000, 1_000_000)
    ),
    *(
        Case("latest", "hot", rows, changes)
        for rows in (1_000_000, 5_000_000, 20_000_000)
        for changes in (1_000, 100_000)
    ),
    *(Case("totals", "uniform", 5_000_000, changes) for changes in (1_000, 100_000, 1_000_000)),
    Case("once", "uniform", 5_000_000, 100_000),
    *(Case(workload, "million", 5_000_000, 10_000_000) for workload in ("latest", "totals")),
]


def short(count: int) -> str:
    """1000 -> 1k, 5000000 -> 5M."""
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if count >= size and count % size == 0:
            return f"{count // size}{letter}"
    return f"{count:,}"


def measured(
    cases: Sequence[Case], contenders: Sequence[str], work: Path, rounds: int
) -> Iterator[tuple[Case, str, dict[str, Any]]]:
    """Measure one contender after the other, case by case.

    Args:
        cases: what to measure.
        contenders: names of `CONTENDERS`.
        work: the work folder.
        rounds: batches applied to a warm process, of which the median counts; fewer where it is slow.

    Yields:
        The case, the contender and its figures, or `skipped` and why.
    """
    for case in cases:
        many = case.changes >= MANY_CHANGES
        given = batches(work / "data", case.rows, case.changes, case.keys, 1 + (min(rounds, 2) if many else rounds))
        for name in contenders:
            entry = CONTENDERS[name]
            if case.workload not in entry.workloads or (entry.at_most and case.changes > entry.at_most):
                continue
            fewer = slice(0, 1 + min(rounds, SLOW_ROUNDS) if entry.slow else None)
            some = type(given)(given.base, given.changes[fewer])
            started, load_average = time.monotonic(), os.getloadavg()[0]
            try:
                found = figures_of(name, work, case.workload, some, changelog=case.changes == 100_000)
                found["load_average"] = round(load_average, 1)  # of the machine: whether others kept it busy
                found["rounds"] = len(some.changes) - 1
                found["took_seconds"] = round(time.monotonic() - started, 1)
            except (Missing, Failed) as failure:
                found = {"skipped": str(failure)}
            yield case, name, {**asdict(case), "contender": name, **found}


def disagreeing(figures: Sequence[dict[str, Any]]) -> list[str]:
    """The contenders whose table of one case differs from that of most, by the sums of its columns.

    Those that applied fewer batches are compared with nobody.
    """
    told = [f for f in figures if "sums" in f]
    most = max((f["rounds"] for f in told), default=0)
    same = [f for f in told if f["rounds"] == most]
    seen = [tuple(sorted((k, float(v)) for k, v in f["sums"].items())) for f in same]
    usual = max(seen, key=seen.count, default=())
    return [f["contender"] for f, sums in zip(same, seen, strict=True) if sums != usual]
