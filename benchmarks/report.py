"""What was measured, as a table on the screen and as JSON on disk."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

MIB, GIB = 2**20, 2**30


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    names = ["pyspark", "pyiceberg", "polars", "duckdb", "pyarrow"]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(memory / GIB),
        "python": platform.python_version(),
        **{name: version(name) for name in names},
    }


def remember(path: Path, section: str, figures: Sequence[dict[str, Any]], identity: Sequence[str]) -> None:
    """Write figures into a JSON file; those of the same case and contender that it held are replaced.

    Args:
        path: the file.
        section: which part of it.
        figures: one each.
        identity: the names that say which figure is of the same thing.
    """
    held = json.loads(path.read_text()) if path.exists() else {}
    known = {_identity(one, identity): one for one in held.get(section, [])}
    known |= {_identity(one, identity): one for one in figures}
    held |= {"machine": machine(), section: list(known.values())}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(held, indent=1) + "\n")


def _identity(one: dict[str, Any], names: Sequence[str]) -> tuple[Any, ...]:
    return tuple(one.get(name) for name in names)


def show(title: str, figures: Sequence[dict[str, Any]], console: Console) -> None:
    """One case: a row for each contender."""
    table = Table(title=title, title_justify="left", show_edge=False)
    table.add_column("contender")
    for column in ("warm s", "x foldhouse", "cold s", "peak MiB", "files", "MiB", "read before s", "after s"):
        table.add_column(column, justify="right")
    ours = next((f["seconds"] for f in figures if f["contender"] == "foldhouse" and "seconds" in f), None)
    skipped = []
    for one in figures:
        if "skipped" in one:
            skipped.append(f"{one['contender']} was left out: {one['skipped'].strip().splitlines()[-1]}")
            continue
        table.add_row(
            one["contender"],
            f"{one['seconds']:.2f}",
            f"{one['seconds'] / ours:.2f}" if ours else "",
            f"{one['cold_seconds']:.1f}",
            f"{one['peak_bytes'] / MIB:,.0f}",
            f"{one['files']:,.0f}",
            f"{one['bytes'] / MIB:,.2f}",
            f"{one['read_before_seconds']:.2f}",
            f"{one['read_after_seconds']:.2f}",
        )
    console.print(table)
    for line in skipped:
        console.print(line, style="yellow", highlight=False)
    console.print()


def markdown(path: Path) -> str:
    """The figures of a file as the tables of `docs/performance.md`: seconds, ratios, memory, bytes, reading."""
    cases: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for one in json.loads(path.read_text()).get("apply", []):
        if "seconds" in one:
            cases.setdefault((one["workload"], one["keys"], one["rows"], one["changes"]), []).append(one)
    lines = []
    for (workload, keys, rows, changes), figures in sorted(cases.items()):
        lines += [f"\n{workload}, {keys} keys, N={rows:,}, D={changes:,}\n"]
        lines += [
            "| contender | s, warm | x foldhouse | s, cold | peak GiB | files | MB written | read before, after s |"
        ]
        lines += ["|---|---|---|---|---|---|---|---|"]
        ours = next((f["seconds"] for f in figures if f["contender"] == "foldhouse"), None)
        for one in figures:
            cells = [
                one["contender"],
                f"{one['seconds']:.2f}",
                f"{one['seconds'] / ours:.1f}" if ours else "",
                f"{one['cold_seconds']:.1f}",
                f"{one['peak_bytes'] / GIB:.1f}",
                f"{one['files']:.0f}",
                f"{one['bytes'] / 1e6:.1f}",
                f"{one['read_before_seconds']:.2f}, {one['read_after_seconds']:.2f}",
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(markdown(Path(sys.argv[1])))
