"""`make bench`: run the benchmarks, show tables, write JSON.

python -m benchmarks --quick                           under ten minutes
python -m benchmarks --only apply --rows 5M --changes 1k,100k --contenders foldhouse,deltalake
python -m benchmarks --only small --refreshes 100         a suite at another size
python -m benchmarks --only joins --rows 20M --contenders duckdb   only some of the peers
python -m benchmarks --only worst --rows 300k --definitions distinct,hashed --kinds all,rollback
python -m benchmarks --only plot --plot bench.svg         draws the figures that are there
"""

from __future__ import annotations

import argparse
import itertools
import os
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import apply, connectors, histories, retail, stores, worst
from benchmarks.contenders import CONTENDERS
from benchmarks.contenders.sql import COLUMNS
from benchmarks.events import KEYS
from benchmarks.peers import WORK
from benchmarks.plot import plot
from benchmarks.report import remember, show, show_first_loads, show_history
from foldhouse.logic.kept import FOLDER

ROOT = Path(__file__).parent.parent
QUICK_CONTENDERS = ("foldhouse", "deltalake", "duckdb", "polars", "spark-naive")
console = Console(width=120)


SUITES = ("retail", "apply", "worst", *histories.HISTORIES)
QUICK_SUITES = ("apply", "recompute", "correction", "small", "memory", "retail")


def main() -> None:
    """Measure what the command line asks for, all by default."""
    asked = _parser().parse_args()
    os.environ[FOLDER] = ""  # no process finds what one of an earlier run compiled
    failed = []
    for name in asked.only or (QUICK_SUITES if asked.quick else SUITES):
        if name == "plot":
            continue
        try:
            {"retail": _retail, "apply": _apply, "worst": _worst}.get(name, partial(_history, name))(asked)
        except RuntimeError as failure:
            console.print(f"{name} failed: {failure}", style="bold red", markup=False, highlight=False)
            failed.append(name)
    if asked.plot and not plot(asked.json, asked.plot):
        console.print("there are no figures of 5M rows, latest, uniform keys to draw", style="yellow")
    console.print(f"figures: {asked.json}", highlight=False)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def _parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    counts = lambda text: [_count(word) for word in text.split(",")]  # noqa: E731
    option = options.add_argument
    option("--quick", action="store_true", help="small sizes, peers that need no jars: under ten minutes")
    option("--only", type=_among((*SUITES, "plot")), help=f"of: {', '.join(SUITES)}, plot")
    option("--contenders", type=_among(tuple(CONTENDERS)), help=f"of: {', '.join(CONTENDERS)}")
    option("--rows", type=counts, help="N, such as 1M,5M,20M")
    option("--changes", type=counts, help="D, such as 1k,100k,1M")
    option("--keys", type=_among(KEYS), default=["uniform"], help=f"of: {', '.join(KEYS)}")
    option("--workloads", type=_among(tuple(COLUMNS)), default=["latest"], help=f"of: {', '.join(COLUMNS)}")
    option("--rounds", "--repeats", type=int, default=5, help="measurements, of which the median counts")
    option("--refreshes", type=_count, help="small, long: how many")
    option("--expire-every", type=_count, help="long: maintenance after so many refreshes; 0 for never")
    option("--compact-every", type=_count, help="small: compact both table and stream after so many; 0 for never")
    option("--copy-on-write", type=int, help="small: 1 for a table in which no deleted rows are left")
    option("--days", type=_count, help="year, correction: how many")
    option("--per-day", type=_count, help="year, correction: events a day; 150k is retail x 100")
    option("--near", type=int, help="recompute: 1 where the touched keys lie beside one another")
    option("--events", type=_count, help="memory: how many the table is rebuilt from")
    option("--seconds", type=int, help="follow: how long events arrive")
    option("--per-second", type=_count, help="follow: events a second")
    option("--kill-every", type=int, help="follow: seconds between kills")
    option("--definitions", type=_among(tuple(worst.DEFINITIONS)), help=f"worst, of: {', '.join(worst.DEFINITIONS)}")
    option("--kinds", type=_among(worst.CHANGES), help=f"worst, kinds of change, of: {', '.join(worst.CHANGES)}")
    option("--folder", type=Path, default=WORK, help="where data, tables and environments are kept")
    option("--json", type=Path, default=ROOT / "artifacts" / "bench.json", help="where the figures go")
    option("--plot", type=Path, help="where to draw the figures of 5M rows, as SVG")
    return options


def _among(known: Sequence[str]) -> Callable[[str], list[str]]:
    """Words with commas between them, all of them known: a mistyped one is no empty run."""

    def words(text: str) -> list[str]:
        found = text.split(",")
        for word in found:
            if word not in known:
                raise argparse.ArgumentTypeError(f"{word!r} is none of {', '.join(known)}")
        return found

    return words


def _count(text: str) -> int:
    scale = {"k": 1_000, "M": 1_000_000}.get(text[-1:], 1)
    return int(text.rstrip("kM")) * scale


def _apply(asked: argparse.Namespace) -> None:
    if asked.rows or asked.changes:
        sizes = itertools.product(asked.workloads, asked.keys, asked.rows or [5_000_000], asked.changes or [100_000])
        cases = [apply.Case(*size) for size in sizes]
    else:
        cases = apply.QUICK if asked.quick else apply.WHOLE
    contenders = asked.contenders or (QUICK_CONTENDERS if asked.quick else tuple(CONTENDERS))
    rounds = min(asked.rounds, 3) if asked.quick else asked.rounds
    identity = ("workload", "keys", "rows", "changes", "contender")
    everything = []
    for case in cases:
        figures = []
        for _, name, one in apply.measured([case], contenders, asked.folder, rounds):
            console.print(f"{name}: {one.get('all_seconds', one.get('skipped'))}", style="dim", highlight=False)
            figures.append(one)
            remember(asked.json, "apply", [one], identity)
        show(str(case), figures, console)
        for name in apply.disagreeing(figures):
            console.print(f"{name} holds other rows than the others", style="bold red")
        everything += figures
    show_first_loads(everything, console)


def _history(name: str, asked: argparse.Namespace) -> None:
    history = histories.HISTORIES[name]
    needs = {"stores": stores.missing, "connectors": connectors.missing}.get(name)
    if needs is not None and (missing := needs()):
        console.print(f"{name} is left out: {missing}", style="yellow", markup=False)
        return
    for sizes in sizes_of(history, asked):
        failed: histories.StageFailed | None = None
        try:
            figures = histories.run(name, asked.folder, sizes, asked.contenders or ())
        except histories.StageFailed as failure:
            failed, figures = failure, failure.figures
        remember(asked.json, name, [figures], tuple(sizes))
        show_history(history.title.format(**sizes), figures, console)
        if failed is not None:
            raise failed


def _worst(asked: argparse.Namespace) -> None:
    """Each kind of definition, change and size, refreshed and recomputed by Spark; a process for each size."""
    figures: list[dict[str, Any]] = []
    for rows in asked.rows or (worst.QUICK_SIZES if asked.quick else worst.SIZES):
        sizes = {
            "rows": rows,
            "rounds": min(asked.rounds, 1 if asked.quick else 3),
            "definitions": asked.definitions or list(worst.DEFINITIONS),
            "kinds": asked.kinds or list(worst.CHANGES),
        }
        found = histories.staged("worst", "measured", asked.folder, sizes)["cases"]
        remember(asked.json, "worst", found, ("definition", "rows", "change"))
        figures += found
    worst.show(figures, console)


def sizes_of(history: histories.History, asked: argparse.Namespace) -> list[dict[str, int]]:
    """The sizes that a history is run at: those that the command line names in place of its own."""
    said = {name: getattr(asked, name) for name in history.sizes if name != "rounds"}
    named = {name: one[0] if isinstance(one, list) else one for name, one in said.items() if one is not None}
    sizes = dict(history.quick if asked.quick else history.sizes) | named
    if "rounds" in sizes:
        sizes["rounds"] = min(sizes["rounds"], asked.rounds)
    once = asked.quick or any(name in named for name in history.also)
    return [sizes, *([] if once else [{**sizes, name: value} for name, value in history.also.items()])]


def _retail(asked: argparse.Namespace) -> None:
    """The real year of invoices, where it is."""
    source = Path(os.environ.get("FOLDHOUSE_RETAIL", ROOT.parent / "shared" / "data" / "online-retail"))
    if not source.is_dir():
        console.print(f"the year of invoices is not at {source}; set FOLDHOUSE_RETAIL to its folder", style="yellow")
        return
    with tempfile.TemporaryDirectory(prefix="foldhouse-bench-") as folder:
        figures = retail.measure(source, Path(folder), min(asked.rounds, 3) if asked.quick else asked.rounds)
    remember(asked.json, "retail", [figures], ())
    show_history("The retail year: 305 files, 541,909 lines, five tables", figures, console)


if __name__ == "__main__":
    main()
