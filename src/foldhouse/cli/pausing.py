"""The commands that pause a table and resume it."""

from __future__ import annotations

from pathlib import Path

import click

from foldhouse.cli.lakes import known, lake_option, opened
from foldhouse.cli.output import harmless, json_option, print_rows
from foldhouse.values.moment_text import utc_text


@click.command()
@click.argument("name")
@click.option("--reason", help="Why; every refresh that is held back says it.")
@click.option("--by", help="Who; by default the user of this process.")
@lake_option
@json_option
def pause(name: str, reason: str | None, by: str | None, folder: Path, as_json: bool) -> None:
    """Keep a table from being refreshed by anything, until it is resumed.

    follow, schedules, sensors, backfills and refreshes leave it as it is and say so; tables downstream stay behind. A
    refresh that is running may still commit once. rollback, rebuild and publish work as before, because a person runs
    them.
    """
    with opened(folder) as lake:
        held = lake.pause(known(lake, name), reason=reason, by=by)
    if as_json:
        said = {"table": name, "since": utc_text(held.since), "by": held.by, "reason": held.reason}
        print_rows([], [said], as_json=True)
    else:
        click.echo(harmless(f"{name} is {held}"))


@click.command()
@click.argument("name")
@lake_option
@json_option
def resume(name: str, folder: Path, as_json: bool) -> None:
    """Let a paused table be refreshed again.

    The next refresh folds everything that came meanwhile.
    """
    with opened(folder) as lake:
        was_paused = lake.resume(known(lake, name))
    if as_json:
        print_rows([], [{"table": name, "was_paused": was_paused}], as_json=True)
    else:
        click.echo(f"{name} is no longer paused" if was_paused else f"{name} is not paused")
