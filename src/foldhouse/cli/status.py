"""The command that says how every table is, once or again and again."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from foldhouse.cli.codes import FOUND_WRONG
from foldhouse.cli.lakes import known, lake_option, opened
from foldhouse.cli.numbers import FiniteRange
from foldhouse.cli.output import Column, fits, harmless, json_option, print_rows, stderr, stdout
from foldhouse.values.moment_text import utc_text
from foldhouse.values.proofs import SourceLag, in_short
from foldhouse.values.status import FINE, TableStatus

if TYPE_CHECKING:
    from foldhouse.lake import Lake

_EVERY_SECONDS = 2.0
_UP_TO_DATE = "up to date"
_COLUMNS = (
    Column("table"),
    Column("health"),
    Column("rows", is_number=True),
    Column("age", is_number=True),
    Column("lag", is_folded=True),
    Column("checks"),
    Column("upkeep", is_folded=True),
    Column("snapshot_id"),
    Column("coverage", is_folded=True),
    Column("run_id", is_folded=True),
)
_ON_A_TERMINAL = ("table", "health", "rows", "age", "lag", "checks", "upkeep")


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--watch",
    "every",
    is_flag=False,
    flag_value=_EVERY_SECONDS,
    type=FiniteRange(0.1, 3600),
    metavar="[SECONDS]",
    help="Say it again every so many seconds, by default 2, until Ctrl-C.",
)
@lake_option
@json_option
@click.pass_context
def status(ctx: click.Context, names: tuple[str, ...], every: float | None, folder: Path, as_json: bool) -> None:
    """Say how every table is, and what to do about those that are not fine.

    Without names, all tables and streams. Only metadata is read, so it is quick, and a damaged table does not hide the
    others. The command ends with 1 if a table is unreadable, failed its checks, or has a commit of another tool; to be
    behind is not wrong.
    """
    with opened(folder) as lake:
        for name in names:
            known(lake, name)
        while True:
            found = _looked_at(lake, names, is_quiet=every is not None)
            _say(found, as_json=as_json, is_redrawn=every is not None and stdout().is_terminal and not as_json)
            if every is None:
                break
            time.sleep(every)
            if not (as_json or stdout().is_terminal):
                click.echo()
            names = _still_there(lake, names)
    if any(one.is_wrong for one in found):
        ctx.exit(FOUND_WRONG)


def _looked_at(lake: Lake, names: tuple[str, ...], *, is_quiet: bool) -> tuple[TableStatus, ...]:
    if is_quiet:  # a table that is drawn again needs no sign of life
        return lake.status(names)
    with stderr().status("reading metadata"):
        return lake.status(names)


def _still_there(lake: Lake, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the watched tables that were not dropped meanwhile; those that are left, if all were."""
    if not names:
        return names
    there = set(lake.tables())
    return tuple(name for name in names if name in there) or (known(lake, names[0]),)


def _say(found: Sequence[TableStatus], *, as_json: bool, is_redrawn: bool) -> None:
    if as_json:
        print_rows([], map(_plain, found), as_json=True)
        return
    if is_redrawn:
        click.clear()
    rows = [_row(one) for one in found]
    if stdout().is_terminal:
        columns = [one for one in _COLUMNS if one.name in _ON_A_TERMINAL]
        wrong = {one.table for one in found if one.is_wrong}
        rows = shortened(columns, rows, "lag")
        print_rows(columns, rows, as_json=False, style=lambda row: "red" if row["table"] in wrong else "")
    else:
        print_rows(_COLUMNS, rows, as_json=False)
    for one in found:
        if one.to_do:
            click.echo(harmless(f"{one.table}: {one.to_do}"), err=True)
    if not found:
        click.echo("the lake has no tables yet", err=True)
    if stdout().is_terminal and found:
        fine = sum(one.health == FINE for one in found)
        stdout().print(Text(f"{fine} of {len(found)} fine", style="dim"))


def _row(one: TableStatus) -> dict[str, Any]:
    lag = one.sources if one.kind == "table" else ()
    return {
        "table": one.table,
        "health": one.health,
        "rows": one.rows,
        "age": None if one.age_seconds is None else age_text(one.age_seconds),
        "lag": in_short(lag),
        "checks": one.checks,
        "upkeep": _upkeep(one),
        "snapshot_id": one.snapshot_id,
        "coverage": one.coverage,
        "run_id": one.run_id,
        "is_behind": one.is_behind,
    }


def shortened(columns: Sequence[Column], rows: list[dict[str, Any]], lag: str) -> list[dict[str, Any]]:
    """Return rows that do not name the sources of tables that are up to date, if a terminal is too narrow for that.

    Args:
        columns: what is shown.
        rows: cells by column name.
        lag: the column of the lag; `is_behind` of a row says whether there is one.
    """
    if not stdout().is_terminal or fits(columns, rows):
        return rows
    return [row if row["is_behind"] or not row[lag] else {**row, lag: _UP_TO_DATE} for row in rows]


def _upkeep(one: TableStatus) -> str:
    due = [
        f"{number:,} {what}"
        for number, what in (
            (one.files_to_compact, "files to compact"),
            (one.snapshots_to_expire, "snapshots to expire"),
        )
        if number
    ]
    return ", ".join(due)


def age_text(seconds: float) -> str:
    """Return a time in its largest unit: `12 s`, `7 min`, `3 h`, `2 d`."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def _plain(one: TableStatus) -> Mapping[str, Any]:
    return {
        "table": one.table,
        "kind": one.kind or None,
        "health": one.health,
        "is_wrong": one.is_wrong,
        "to_do": one.to_do or None,
        "snapshot_id": None if one.snapshot_id is None else str(one.snapshot_id),
        "committed_at": None if one.committed_at is None else utc_text(one.committed_at),
        "age_seconds": one.age_seconds,
        "rows": one.rows,
        "coverage": one.coverage,
        "run_id": one.run_id,
        "is_behind": one.is_behind if one.kind == "table" else None,
        "sources": [plain_lag(source) for source in one.sources],
        "checks": one.checks,
        "files_to_compact": one.files_to_compact,
        "snapshots_to_expire": one.snapshots_to_expire,
        "snapshots": one.snapshots,
        "data_files": one.data_files,
        "delete_files": one.delete_files,
        "bytes": one.bytes,
        "rows_read": one.rows_read,
        "refresh_seconds": one.refresh_seconds,
    }


def plain_lag(one: SourceLag) -> dict[str, Any]:
    """Return how far a table is behind a source, for JSON."""
    return {
        "name": one.name,
        "position": None if one.position is None else str(one.position),
        "commits_behind": one.commits_behind,
        "rows_behind": one.rows_behind,
        "seconds_behind": one.seconds_behind,
        "sources": [plain_lag(source) for source in one.sources],
    }
