"""The commands that write: refresh tables, run a job in the foreground, roll a table back, fold a table again."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import click

from foldhouse.cli.codes import FINE, code_of
from foldhouse.cli.declared import declared, declared_option, in_order
from foldhouse.cli.lakes import catalog_given, check_folder, known, lake_option, opened
from foldhouse.cli.logged import logged
from foldhouse.cli.output import Column, folded_text, harmless, json_option, print_rows, rows_text, stderr
from foldhouse.cli.plan import rollback_text
from foldhouse.cli.progress import Progress, days_of, progress_of
from foldhouse.errors import (
    CannotStart,
    ChecksFailed,
    DaysNotCovered,
    DaysNotLanded,
    FoldhouseError,
    Paused,
    UnknownSnapshot,
)
from foldhouse.garbage import set_aside
from foldhouse.values.code_place import place_of
from foldhouse.values.metadata_names import RUN_ID
from foldhouse.values.results import Refreshed

if TYPE_CHECKING:
    from foldhouse.lake import Lake

_DAY = click.DateTime(["%Y-%m-%d"])


@click.command()
@click.argument("job")
@click.option("--from", "first", type=_DAY, required=True, metavar="DATE", help="The first day.")
@click.option("--to", "last", type=_DAY, required=True, metavar="DATE", help="The last day, inclusive.")
@lake_option
@json_option
def backfill(job: str, first: datetime, last: datetime, folder: Path, as_json: bool) -> None:
    """Run a Dagster job on a range of days, here and now.

    It is the job of the code location in the current folder (workspace.yaml). The Dagster page shows the run if there
    is a place for Dagster's records: $DAGSTER_HOME, or a dagster.yaml in that folder. Doing it twice changes nothing; a
    run that was killed is repaired by running it again. A file that cannot land holds back its own day alone; the
    command then ends as failed and names the day.
    """
    catalog = catalog_given()
    if catalog is None:
        check_folder(folder)
        os.environ["FOLDHOUSE_LAKE"] = str(folder.resolve())
        os.environ.pop("FOLDHOUSE_CATALOG", None)  # an option overrides the other one's variable
    else:
        os.environ["FOLDHOUSE_CATALOG"] = catalog
        os.environ.pop("FOLDHOUSE_LAKE", None)
    run_id = str(uuid4())
    started = time.monotonic()
    progress, failure = _run(job, first.date(), last.date(), run_id)
    # Without a catalog, no day landed in a lake that is still to be made.
    if catalog is not None or (folder / "catalog.db").is_file():
        _print_summary(folder, progress, run_id, as_json=as_json)
    stderr().print(f"{time.monotonic() - started:.1f} s", style="dim")
    if failure:
        raise failure


def _run(job: str, first: date, last: date, run_id: str) -> tuple[Progress, FoldhouseError | None]:
    try:
        from foldhouse.dagster import run_in_foreground, terminal
    except ModuleNotFoundError as missing:
        raise CannotStart(f"running a job needs Dagster: pip install 'foldhouse[dagster]' ({missing})") from missing
    with terminal() as screen, progress_of(screen) as progress:

        def start(plan: Mapping[str, int]) -> None:
            set_aside()  # Dagster and the declarations are imported
            progress.start(plan)

        try:
            run_in_foreground(job, first, last, on_start=start, on_partition=progress.committed, run_id=run_id)
        # Returned, so that the caller prints the summary of the other days and tables before it raises.
        except (DaysNotLanded, DaysNotCovered, ChecksFailed) as failure:
            return progress, failure
        except (FoldhouseError, KeyboardInterrupt, SystemExit):
            raise
        except Exception as failure:
            reason = next(iter(str(failure).splitlines()), "no message")
            raise FoldhouseError(
                f"the run failed with {type(failure).__name__}: {reason}{place_of(failure)}; what is committed stays, "
                "and running it again goes on from there. The whole story is on the Dagster page, and in "
                "foreground.log of its home"
            ) from failure
        except BaseException as stopped:  # what Dagster makes of Ctrl-C
            raise KeyboardInterrupt from stopped
    return progress, None


def _print_summary(folder: Path, progress: Progress, run_id: str, *, as_json: bool) -> None:
    with opened(folder) as lake:
        rows = [
            {
                "table": name,
                "folded": days_of(progress.days[name]),
                "days": None if None in progress.days[name] else len(progress.days[name]),
                "commits": sum(info.summary.get(RUN_ID) == run_id for info in lake.history(name)),
                "rows": lake.count(name),
            }
            for name in [*progress.done, *(name for name in progress.days if name not in progress.done)]
        ]
    columns = [Column("table"), Column("folded"), Column("commits", is_number=True), Column("rows", is_number=True)]
    print_rows(columns, rows, as_json=as_json)


@click.command()
@click.option(
    "--port", "-p", type=click.IntRange(1, 65_535), default=3000, show_default=True, help="The port of the page."
)
@click.option("--allow-host", "hosts", multiple=True, metavar="NAME", help="A further name of this server.")
@json_option
def dev(port: int, hosts: tuple[str, ...], as_json: bool) -> None:
    """Serve the Dagster page of the code location, and run its schedules and sensors.

    It runs `dagster dev` on 127.0.0.1, behind a guard: the page has no log-in, and without the guard any web page in
    your browser could run and delete things. --allow-host names this server as a proxy in front of it does. --json
    prints the address before the page is served.
    """
    try:
        from foldhouse.dagster.dev import serve
    except ModuleNotFoundError as missing:
        raise CannotStart(f"the page needs Dagster: pip install 'foldhouse[dagster]' ({missing})") from missing
    if as_json:
        print_rows([], [{"address": f"http://127.0.0.1:{port}", "allowed_hosts": list(hosts)}], as_json=True)
    serve(port, allow_hosts=hosts)


@click.command()
@click.argument("name")
@click.option(
    "--to", "target", required=True, help="A snapshot id, a time, a tag or a branch; `foldhouse history` lists."
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@lake_option
@json_option
def rollback(name: str, target: str, yes: bool, folder: Path, as_json: bool) -> None:
    """Make an older snapshot of a table its head again.

    Rows, position and coverage go back together. The next refresh of the table folds again what it forgot; the tables
    folded from it retract, at their next refresh, what went away.
    """
    with opened(folder) as lake:
        head = lake.head(known(lake, name))
        if not yes:
            planned = _planned(lake, name, target)  # first, because a wrong target matters more than who is there
            if not sys.stdin.isatty():
                raise click.UsageError(f"{planned} Nobody is there to be asked; --yes rolls back without asking")
            click.confirm(f"{planned} Roll it back?", abort=True, err=True)
        snapshot_id = lake.rollback(name, to=target)
        rows = lake.count(name)
    has_moved = head is None or head.id != snapshot_id
    if as_json:
        said = {"table": name, "snapshot_id": str(snapshot_id), "has_moved": has_moved, "rows": rows}
        print_rows([], [said], as_json=True)
    elif not has_moved:
        click.echo(f"{name} stays at snapshot {snapshot_id}: it is the head")
    else:
        click.echo(f"{name} is at snapshot {snapshot_id} again: {rows_text(rows)}")


def _planned(lake: Lake, name: str, target: str) -> str:
    try:
        with stderr().status(f"comparing {name} with {target}"):
            return rollback_text(lake.plan_rollback(name, to=target))
    except UnknownSnapshot:
        raise
    except FoldhouseError as failure:  # rolling back is what repairs a table that cannot be compared
        return f"What it would change in {name} cannot be computed ({failure})."


@click.command()
@click.argument("names", nargs=-1)
@declared_option
@lake_option
@json_option
@click.pass_context
def refresh(ctx: click.Context, names: tuple[str, ...], package: str, folder: Path, as_json: bool) -> None:
    """Fold what is new in the sources of tables, each after the tables that it is folded from.

    Without names, all declared tables. A table that cannot be refreshed does not stop the others, except those that are
    folded from it. The command then ends with the exit code of the first error. A paused table is left as it is; it is
    an error only if it is named.
    """
    tables = in_order(names, package)
    failed: set[str] = set()
    code = FINE
    with opened(folder) as lake:
        for table in tables:
            waits_for = [source.name for source in table.sources if source.name in failed]
            said: dict[str, object]
            try:
                if waits_for:
                    raise FoldhouseError(f"{table.name} was not refreshed, because {waits_for[0]} was not")
                with stderr().status(f"refreshing {table.name}"):
                    done = lake.refresh(table)
                said = {"table": table.name, "committed": done.committed, "snapshot_id": str(done.snapshot_id)}
                said |= {"rows": done.rows, "rows_read": done.rows_read, "paused": None, "error": None}
                said |= {"restored_id": None if done.restored_id is None else str(done.restored_id)}
                text = _refreshed_text(done)
            except Paused as held:
                text, said = f"{table.name}: {held.pause}", {"table": table.name, "committed": False}
                said |= {"snapshot_id": None, "rows": None, "rows_read": None, "paused": str(held.pause), "error": None}
                said |= {"restored_id": None}
                if table.name in names:  # asked for by its name, so that it is an error
                    failed.add(table.name)
                    code, text = code or code_of(held), f"error: {held}"
                    said |= {"error": str(held)}
            except FoldhouseError as error:
                failed.add(table.name)
                logged("refresh", error, table=table.name)
                code = code or code_of(error)
                text, said = f"error: {error}", {"table": table.name, "committed": False, "snapshot_id": None}
                said |= {"rows": None, "rows_read": None, "paused": None, "error": str(error), "restored_id": None}
            if as_json:
                print_rows([], [said], as_json=True)
            else:
                click.echo(harmless(text), err=table.name in failed)
    ctx.exit(code)


def _refreshed_text(done: Refreshed) -> str:
    if not done.committed:
        return f"{done.table}: nothing new, {rows_text(done.rows)}"
    warned = [one for one in done.checks if not one.passed]
    checks = "".join(f"; the check {one.name} fails: {one.said}" for one in warned)
    return f"{done.table}: {folded_text(done)}{checks}"


@click.command()
@click.argument("name")
@declared_option
@click.option("--no-publish", is_flag=True, help="Leave it in the branch foldhouse-rebuild, to look at first.")
@lake_option
@json_option
def rebuild(name: str, package: str, no_publish: bool, folder: Path, as_json: bool) -> None:
    """Fold a table again from the beginning, as it is declared now.

    Use it after a definition changed, a source was replaced, or another writer changed rows. Readers see the old table
    until the new one is published in one step; history and coverage stay. With --no-publish, `foldhouse publish` does
    that step later, and `foldhouse show NAME --as-of foldhouse-rebuild` shows the new table before.
    """
    table = declared(name, package)
    with opened(folder) as lake, stderr().status(f"folding {name} again"):
        rebuilt = lake.rebuild(table, publish=not no_publish)
    if as_json:
        said = {"table": name, "snapshot_id": str(rebuilt.snapshot_id), "is_published": not no_publish}
        print_rows([], [{**said, "rows": rebuilt.rows, "rows_read": rebuilt.rows_read}], as_json=True)
        return
    click.echo(
        f"{name} was folded again from {rows_text(rebuilt.rows_read)}: "
        f"{rows_text(rebuilt.rows)}, snapshot {rebuilt.snapshot_id}{' in foldhouse-rebuild' if no_publish else ''}"
    )
