"""The command that says what another one would do."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import click

from foldhouse.cli.declared import declared, declared_option
from foldhouse.cli.lakes import known, lake_option, opened
from foldhouse.cli.output import json_option, print_rows, rows_text, stderr
from foldhouse.values.results import Planned, PlannedRollback


@click.command()
@click.argument("name")
@click.option("--backfill", "days", metavar="DATE..DATE", help="Plan a backfill of these days, both included.")
@click.option("--rollback-to", "target", help="Plan a rollback to a snapshot id, a time, a tag or a branch.")
@declared_option
@lake_option
@json_option
def plan(name: str, days: str | None, target: str | None, package: str, folder: Path, as_json: bool) -> None:
    """Say what a refresh, a backfill or a rollback would do, and do nothing.

    Without options, it is a refresh. Rows and bytes are those of the files that would be read; keys that cannot be
    merged may need more.
    """
    if days is not None and target is not None:
        raise click.UsageError("--backfill and --rollback-to are two plans; ask for one")
    if target is not None:
        with opened(folder) as lake, stderr().status(f"comparing {name} with {target}"):
            undone = lake.plan_rollback(known(lake, name), to=target)
        _print(undone, rollback_text(undone), as_json=as_json)
        return
    table = declared(name, package)
    asked = [] if days is None else _days(days)
    with opened(folder) as lake, stderr().status(f"planning {name}"):
        planned = lake.plan(table, asked)
    _print(planned, refresh_text(planned), as_json=as_json)


def _print(planned: Planned | PlannedRollback, text: str, *, as_json: bool) -> None:
    if not as_json:
        click.echo(text)
        return
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in vars(planned).items()}
    if isinstance(planned, PlannedRollback):
        plain["snapshot_id"] = str(planned.snapshot_id)
    print_rows([], [plain], as_json=True)


def _days(text: str) -> list[date]:
    first, _, last = text.partition("..")
    try:
        one, other = date.fromisoformat(first), date.fromisoformat(last or first)
    except ValueError:
        raise click.UsageError(f"--backfill is {text!r}; give days such as 2024-03-04..2024-03-10") from None
    if other < one:
        raise click.UsageError(f"--backfill is {text!r}, which ends before it begins")
    return [one + timedelta(days=number) for number in range((other - one).days + 1)]


def refresh_text(planned: Planned) -> str:
    """Return a plan of a refresh in words."""
    if planned.paused is not None:
        once = refresh_text(replace(planned, paused=None)).removeprefix(f"{planned.table}: ")
        return f"{planned.table} is {planned.paused}; once it is resumed, it {once.removeprefix(f'{planned.table} ')}"
    if not planned.has_news:
        return f"{planned.table} has nothing to fold; it has {rows_text(planned.rows)}"
    sources = ", ".join(f"{rows_text(rows)} of {name}" for name, rows in planned.rows_read.items())
    size = f"{planned.files_read:,} file{'' if planned.files_read == 1 else 's'}, {planned.bytes_read / 2**20:.1f} MiB"
    first = "fold it for the first time from" if planned.is_new else "fold"
    how = "compute it again from" if planned.full_recompute else first
    days = f"; {len(planned.days_added)} days are added" if planned.days_added else ""
    return f"{planned.table}: would {how} {sources} ({size}) {planned.runs}{days}{_consumers(planned.consumers)}"


def rollback_text(planned: PlannedRollback) -> str:
    """Return a plan of a rollback in words."""
    changes = f"{planned.deleted:,} go, {planned.inserted:,} come back, {planned.updated:,} have other values"
    commits = f"{planned.commits:,} commit{'' if planned.commits == 1 else 's'}"
    return (
        f"{planned.table} holds {rows_text(planned.rows)}, and would hold {planned.rows_then:,} at snapshot "
        f"{planned.snapshot_id}: {commits} undone, {changes}{_consumers(planned.consumers)}."
    )


def _consumers(names: tuple[str, ...]) -> str:
    return f"; downstream: {', '.join(names)}" if names else ""
