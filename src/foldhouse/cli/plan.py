"""The command that says what another one would do, and the one that folds days again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import click

from foldhouse.cli.declared import declared, declared_option
from foldhouse.cli.lakes import known, lake_option, opened
from foldhouse.cli.output import json_option, print_rows, rows_text, stderr
from foldhouse.errors import InvalidCall
from foldhouse.values.plans import Planned, PlannedRestate, PlannedRollback


@click.command()
@click.argument("name")
@click.option("--backfill", "days", metavar="DATE..DATE", help="Plan a backfill of these days, both included.")
@click.option("--restate", "again", metavar="DATE..DATE", help="Plan to fold these covered days again.")
@click.option("--rollback-to", "target", help="Plan a rollback to a snapshot id, a time, a tag or a branch.")
@declared_option
@lake_option
@json_option
def plan(
    name: str, days: str | None, again: str | None, target: str | None, package: str, folder: Path, as_json: bool
) -> None:
    """Say what a refresh, a backfill, a restatement or a rollback would do, and do nothing.

    Without options, it is a refresh. Rows and bytes are those of the files that would be read; keys that cannot be
    merged may need more.
    """
    if sum(one is not None for one in (days, again, target)) > 1:
        raise click.UsageError("--backfill, --restate and --rollback-to are several plans; ask for one")
    if target is not None:
        with opened(folder) as lake, stderr().status(f"comparing {name} with {target}"):
            undone = lake.plan_rollback(known(lake, name), to=target)
        _print(undone, rollback_text(undone), as_json=as_json)
        return
    table = declared(name, package)
    if again is not None:
        restated = _days("--restate", again)
        with opened(folder) as lake, stderr().status(f"planning {name}"):
            planned_days = lake.plan_restate(table, restated)
        _print(planned_days, restate_text(planned_days), as_json=as_json)
        return
    asked = [] if days is None else _days("--backfill", days)
    if asked and table.partition_by is None:
        raise InvalidCall(
            f"{name} has no `partition_by`, so no days can be added to it; a refresh folds all that is new"
        )
    with opened(folder) as lake, stderr().status(f"planning {name}"):
        planned = lake.plan(table, asked)
    _print(planned, refresh_text(planned), as_json=as_json)


@click.command()
@click.argument("name")
@click.argument("days", metavar="DATE..DATE")
@declared_option
@lake_option
@json_option
def restate(name: str, days: str, package: str, folder: Path, as_json: bool) -> None:
    """Fold days of a table again that it covers already, because somebody changed their rows.

    The table is partitioned by these days. They are folded from the sources as they were at the table's position, and
    replaced in one commit; all other days, the position and the history stay. `foldhouse plan NAME --restate` says
    before what it would read and replace. Late events need no such thing: a refresh folds them.
    """
    table = declared(name, package)
    asked = _days("DATE..DATE", days)
    with opened(folder) as lake, stderr().status(f"folding {name} again"):
        done = lake.restate(table, asked)
    if as_json:
        said = {"table": name, "snapshot_id": str(done.snapshot_id), "days": [str(day) for day in asked]}
        print_rows([], [{**said, "rows": done.rows, "rows_read": done.rows_read}], as_json=True)
        return
    were = f"{len(asked):,} day{' was' if len(asked) == 1 else 's were'}"
    click.echo(
        f"{name}: {were} folded again from {rows_text(done.rows_read)}, {rows_text(done.rows)} now, snapshot "
        f"{done.snapshot_id}"
    )


def _print(planned: Planned | PlannedRestate | PlannedRollback, text: str, *, as_json: bool) -> None:
    if not as_json:
        click.echo(text)
        return
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in vars(planned).items()}
    if isinstance(planned, PlannedRestate):
        plain["days"] = [str(day) for day in planned.days]
    for name in ("snapshot_id", "restores_id"):
        if plain.get(name) is not None:
            plain[name] = str(plain[name])
    print_rows([], [plain], as_json=True)


def _days(option: str, text: str) -> list[date]:
    first, dots, last = text.partition("..")
    try:
        one = date.fromisoformat(first)
        other = date.fromisoformat(last) if dots else one
    except ValueError:
        raise click.UsageError(f"{option} is {text!r}; give days such as 2024-03-04..2024-03-10") from None
    if other < one:
        raise click.UsageError(f"{option} is {text!r}, which ends before it begins")
    return [one + timedelta(days=number) for number in range((other - one).days + 1)]


def refresh_text(planned: Planned) -> str:
    """Return a plan of a refresh in words."""
    if planned.paused is not None:
        once = refresh_text(replace(planned, paused=None)).removeprefix(f"{planned.table}: ")
        return f"{planned.table} is {planned.paused}; once it is resumed, it {once.removeprefix(f'{planned.table} ')}"
    if not planned.has_news:
        return f"{planned.table} has nothing to fold; it has {rows_text(planned.rows)}"
    if planned.restores_id is not None:
        again = f"would restore its snapshot {planned.restores_id}, because its sources are at its positions again"
        read = f"; further days are folded from {_sources(planned.rows_read)}" if planned.rows_read else ""
        return f"{planned.table}: {again}{read or '; no row is read'}{_consumers(planned.consumers)}"
    sources = _sources(planned.rows_read)
    size = _size(planned.files_read, planned.bytes_read)
    first = "fold it for the first time from" if planned.is_new else "fold"
    how = "compute it again from" if planned.full_recompute else first
    days = f"; {len(planned.days_added)} days are added" if planned.days_added else ""
    return f"{planned.table}: would {how} {sources} ({size}) {planned.runs}{days}{_consumers(planned.consumers)}"


def restate_text(planned: PlannedRestate) -> str:
    """Return a plan to fold days again in words."""
    keys = f"{planned.keys:,} key{'' if planned.keys == 1 else 's'}"
    days = f"{len(planned.days):,} day{'' if len(planned.days) == 1 else 's'}"
    stored = _size(planned.files_replaced, planned.bytes_replaced)
    read = _size(planned.files_read, planned.bytes_read)
    foreign = "; another tool changed its head" if planned.is_foreign else ""
    paused = f"; it is {planned.paused}" if planned.paused is not None else ""
    return (
        f"{planned.table}: would replace {keys} of {days} ({stored}) by what {_sources(planned.rows_read)} ({read}) "
        f"give, {planned.runs}{foreign}{paused}{_consumers(planned.consumers)}"
    )


def rollback_text(planned: PlannedRollback) -> str:
    """Return a plan of a rollback in words."""
    changes = f"{planned.deleted:,} go, {planned.inserted:,} come back, {planned.updated:,} have other values"
    commits = f"{planned.commits:,} commit{'' if planned.commits == 1 else 's'}"
    expired = (
        f" Its position in {' and '.join(planned.expired)} has expired there: every refresh is then refused until "
        f"`foldhouse rebuild {planned.table}`."
        if planned.expired
        else ""
    )
    return (
        f"{planned.table} holds {rows_text(planned.rows)}, and would hold {planned.rows_then:,} at snapshot "
        f"{planned.snapshot_id}: {commits} undone, {changes}{_consumers(planned.consumers)}.{expired}"
    )


def _sources(rows_read: Mapping[str, int]) -> str:
    return ", ".join(f"{rows_text(rows)} of {name}" for name, rows in rows_read.items())


def _size(files: int, size_bytes: int) -> str:
    return f"{files:,} file{'' if files == 1 else 's'}, {size_bytes / 2**20:.1f} MiB"


def _consumers(names: tuple[str, ...]) -> str:
    return f"; downstream: {', '.join(names)}" if names else ""
