"""`make bench`: run the benchmarks, show tables, write JSON.

python -m benchmarks --quick                           under ten minutes
python -m benchmarks --only apply --rows 5M --changes 1k,100k --contenders foldhouse,deltalake
"""

from __future__ import annotations

import argparse
import itertools
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import apply, histories, retail
from benchmarks.contenders import CONTENDERS
from benchmarks.events import KEYS
from benchmarks.peers import WORK
from benchmarks.plot import plot
from benchmarks.report import remember, show

ROOT = Path(__file__).parent.parent
QUICK_CONTENDERS = ("foldhouse", "deltalake", "duckdb", "polars", "spark-naive")
console = Console(width=120)


def main() -> None:
    """Measure what the command line asks for, all by default."""
    asked = _parser().parse_args()
    suites: dict[str, Callable[[argparse.Namespace], None]] = {
        "retail": _retail,
        "apply": _apply,
        "small": _history("small", rows=1_000_000, refreshes=1_000, changes=1_000),
        "year": _history("year", days=365, per_day=asked.per_day),
    }
    chosen = asked.only or (["apply", "retail"] if asked.quick else list(suites))
    for name in chosen:
        suites[name](asked)
    console.print(f"figures: {asked.json}", highlight=False)


def _parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    words = lambda text: text.split(",")  # noqa: E731
    counts = lambda text: [_count(word) for word in text.split(",")]  # noqa: E731
    options.add_argument("--quick", action="store_true", help="1M rows, 1k and 100k changes, peers that need no jars")
    options.add_argument("--only", type=words, help="of: retail, apply, small, year")
    options.add_argument("--contenders", type=words, help=f"of: {', '.join(CONTENDERS)}")
    options.add_argument("--rows", type=counts, help="N, such as 1M,5M,20M")
    options.add_argument("--changes", type=counts, help="D, such as 1k,100k,1M")
    options.add_argument("--keys", type=words, default=["uniform"], help=f"of: {', '.join(KEYS)}")
    options.add_argument("--workloads", type=words, default=["latest"], help="of: latest, totals")
    options.add_argument("--rounds", "--repeats", type=int, default=5, help="measurements, of which the median counts")
    options.add_argument("--per-day", type=_count, default=1_500, help="events a day of the year; 150k is retail x 100")
    options.add_argument("--folder", type=Path, default=WORK, help="where data, tables and environments are kept")
    options.add_argument("--json", type=Path, default=ROOT / "artifacts" / "bench.json", help="where the figures go")
    options.add_argument("--plot", type=Path, help="where to draw the figures of 5M rows, as SVG")
    return options


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
    for case in cases:
        figures = []
        for _, name, one in apply.measured([case], contenders, asked.folder, rounds):
            console.print(f"{name}: {one.get('all_seconds', one.get('skipped'))}", style="dim", highlight=False)
            figures.append(one)
            remember(asked.json, "apply", [one], identity)
        show(str(case), figures, console)
        for name in apply.disagreeing(figures):
            console.print(f"{name} holds other rows than the others", style="bold red")
    if asked.plot:
        plot(asked.json, asked.plot)


def _history(name: str, **sizes: int) -> Callable[[argparse.Namespace], None]:
    def run(asked: argparse.Namespace) -> None:
        figures = histories.run(name, asked.folder, **sizes)
        remember(asked.json, name, [figures], tuple(sizes))
        _show_figures(histories.TITLES[name].format(**sizes), figures)

    return run


def _retail(asked: argparse.Namespace) -> None:
    """The real year of invoices, where it is."""
    source = Path(os.environ.get("FOLDHOUSE_RETAIL", ROOT.parent / "shared" / "data" / "online-retail"))
    if not source.is_dir():
        console.print(f"the year of invoices is not at {source}; set FOLDHOUSE_RETAIL to its folder", style="yellow")
        return
    with tempfile.TemporaryDirectory(prefix="foldhouse-bench-") as folder:
        figures = retail.measure(source, Path(folder), min(asked.rounds, 3) if asked.quick else asked.rounds)
    remember(asked.json, "retail", [figures], ())
    _show_figures("The retail year: 305 files, 541,909 lines, five tables", figures)


def _show_figures(title: str, figures: dict[str, Any]) -> None:
    shown = Table("figure", "value", title=title, title_justify="left", show_edge=False)
    for name, value in figures.items():
        number = f"{value:,.3f}".rstrip("0").rstrip(".")
        shown.add_row(name, f"{value / 2**30:,.2f} GiB" if name.endswith("_bytes") else number)
    console.print(shown)
    console.print()


if __name__ == "__main__":
    main()
