"""What was measured, as a table on the screen and as JSON on disk."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.histories import HISTORIES, LONGEST

GIB = 2**30


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


Column = tuple[str, Callable[[dict[str, Any]], str]]


def show(title: str, figures: Sequence[dict[str, Any]], console: Console) -> None:
    """One case: a row for each contender, then what only some of them can tell."""
    measured = [one for one in figures if "skipped" not in one]
    _print(title, _columns(measured), measured, console)
    for line in _beside(measured):
        console.print(line, highlight=False)
    for one in figures:
        if "skipped" in one:
            said = f"{one['contender']} was left out: {one['skipped'].strip().splitlines()[-1]}"
            console.print(said, style="yellow", highlight=False)
    console.print()


def _columns(figures: Sequence[dict[str, Any]]) -> list[Column]:
    """Heading and cell of each column of a case: applying warm and cold, reading before and after."""
    ours = next((one["seconds"] for one in figures if one["contender"] == "foldhouse"), None)
    return [
        ("contender", lambda one: one["contender"]),
        ("warm s", lambda one: f"{one['seconds']:.2f}"),
        ("longest s", lambda one: f"{max(one.get('all_seconds', [one['seconds']])):.2f}"),
        ("x foldhouse", lambda one: f"{one['seconds'] / ours:.2f}" if ours else ""),
        ("cold s", lambda one: f"{one['cold_seconds']:.1f}"),
        ("peak GiB", lambda one: f"{one['peak_bytes'] / GIB:.2f}"),
        ("files", lambda one: f"{one['files']:,.0f}"),
        ("MB written", lambda one: f"{one['bytes'] / 1e6:,.2f}"),
        ("read before s", lambda one: f"{one['read_before_seconds']:.2f}"),
        ("after s", lambda one: f"{one['read_after_seconds']:.2f}"),
    ]


def show_first_loads(figures: Sequence[dict[str, Any]], console: Console) -> None:
    """The first load of each table that the cases began with."""
    for title, found in _first_loads(figures).items():
        _print(title, _load_columns(found), found, console)
        console.print()


def _first_loads(figures: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Title -> one figure of each contender; the cases of a table share its first load."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for one in figures:
        if "load" in one:
            title = f"First load of {one['rows']:,} rows, {one['workload']}"
            found.setdefault(title, {}).setdefault(one["contender"], one)
    return {title: list(ones.values()) for title, ones in found.items()}


def _load_columns(figures: Sequence[dict[str, Any]]) -> list[Column]:
    ours = next((one["load"]["seconds"] for one in figures if one["contender"] == "foldhouse"), None)
    return [
        ("contender", lambda one: one["contender"]),
        ("start s", lambda one: f"{one['load']['start_seconds']:.1f}"),
        ("load s", lambda one: f"{one['load']['seconds']:.2f}"),
        ("x foldhouse", lambda one: f"{one['load']['seconds'] / ours:.2f}" if ours else ""),
        ("again s", lambda one: f"{one['load']['again_seconds']:.2f}" if "again_seconds" in one["load"] else ""),
        ("peak GiB", lambda one: f"{one['load']['peak_bytes'] / GIB:.2f}"),
        ("files", lambda one: f"{one['load']['files']:,}"),
        ("MB written", lambda one: f"{one['load']['bytes'] / 1e6:,.1f}"),
        ("read s", lambda one: f"{one['load']['read_seconds']:.2f}"),
    ]


def _print(title: str, columns: Sequence[Column], figures: Sequence[dict[str, Any]], console: Console) -> None:
    table = Table(title=title, title_justify="left", show_edge=False)
    for place, (name, _) in enumerate(columns):
        table.add_column(name, justify="right" if place else "left")
    for one in figures:
        table.add_row(*(cell(one) for _, cell in columns))
    console.print(table)


def _beside(figures: Sequence[dict[str, Any]]) -> list[str]:
    """What only some contenders do: reading the changelog of the last batch, reading in a second way."""
    lines = []
    for one in figures:
        if "changelog_seconds" in one:
            lines.append(
                f"changelog of the last batch, {one['contender']}: {one['changelog_first_seconds']:.2f} s the first "
                f"time, {one['changelog_seconds']:.2f} s again, {one['changelog_rows']:,} rows"
            )
        if "read_arrow_after_seconds" in one:
            lines.append(
                f"read into Arrow, {one['contender']}: {one['read_arrow_before_seconds']:.2f} s before, "
                f"{one['read_arrow_after_seconds']:.2f} s after"
            )
        if "append" in one:
            lines.append(
                f"of the warm seconds, {one['contender']}: append {one['append']:.2f}, refresh {one['refresh']:.2f}; "
                f"{one['rows_written']:,.0f} rows written, {one['rows_carried']:,.0f} carried"
            )
    return lines


def show_history(title: str, figures: dict[str, Any], console: Console) -> None:
    """The figures of a history, one a line; a step's seconds, its longest time and its peak in one."""
    table = Table("figure", "value", "longest", "peak GiB", title=title, title_justify="left", show_edge=False)
    for row in _lines(figures):
        table.add_row(*row)
    console.print(table)
    console.print()


def _lines(figures: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """Figure, value, longest, peak; what a step took stands beside what it took at most and what it held."""
    lines = []
    for name, value in figures.items():
        step = name.removesuffix("_peak_bytes").removesuffix(LONGEST)
        if step != name and f"{step}_seconds" in figures:
            continue
        step = name.removesuffix("_seconds")
        longest, peak = (figures.get(f"{step}{more}") if step != name else None for more in (LONGEST, "_peak_bytes"))
        shown = "" if longest is None else _amount(LONGEST, longest)
        lines.append((name.replace("_", " "), _amount(name, value), shown, _gib(peak)))
    return lines


def _gib(size: float | None) -> str:
    return f"{size / GIB:.2f}" if size else ""


def _amount(name: str, value: float) -> str:
    if "_bytes" in name:
        return f"{value / GIB:,.2f} GiB" if value > GIB else f"{value / 1e6:,.2f} MB"
    if name.endswith("_seconds"):
        return f"{value:,.3f} s"
    if "_vs_" in name:
        return f"{value:,.2f} x"
    return f"{value:,.2f}".rstrip("0").rstrip(".")


def markdown(path: Path) -> str:
    """The figures of a file as the tables of `docs/performance-log.md`: seconds, ratios, memory, bytes, reading."""
    held = json.loads(path.read_text())
    cases: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for one in held.get("apply", []):
        if "seconds" in one:
            cases.setdefault((one["workload"], one["keys"], one["rows"], one["changes"]), []).append(one)
    lines = []
    for (workload, keys, rows, changes), figures in sorted(cases.items()):
        title = f"{workload}, {keys} keys, N={rows:,}, D={changes:,}"
        lines += [*_in_markdown(title, _columns(figures), figures), "", *(f"- {line}" for line in _beside(figures))]
    for title, figures in _first_loads(held.get("apply", [])).items():
        lines += _in_markdown(title, _load_columns(figures), figures)
    for name, history in HISTORIES.items():
        for one in held.get(name, []):
            sizes = {size: one[size] for size in history.sizes}
            lines += [
                f"\n{history.title.format(**sizes)}\n",
                "| figure | value | longest | peak GiB |",
                "|---|---|---|---|",
            ]
            lines += [f"| {' | '.join(row)} |" for row in _lines(one) if row[0] not in sizes]
    return "\n".join(lines)


def _in_markdown(title: str, columns: Sequence[Column], figures: Sequence[dict[str, Any]]) -> list[str]:
    head = [f"\n{title}\n", f"| {' | '.join(name for name, _ in columns)} |", "|---" * len(columns) + "|"]
    return head + [f"| {' | '.join(cell(one) for _, cell in columns)} |" for one in figures]


if __name__ == "__main__":
    print(markdown(Path(sys.argv[1])))
