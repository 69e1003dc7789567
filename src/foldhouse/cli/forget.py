"""The command that forgets a subject, and the report of it for the person who signs."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from foldhouse.cli.declared import all_declared, declared_option
from foldhouse.cli.lakes import known, lake_option, opened
from foldhouse.cli.output import harmless, json_option, print_rows, stderr
from foldhouse.values.forgotten import Forgotten, ForgottenTable
from foldhouse.values.moment_text import utc_text

if TYPE_CHECKING:
    from foldhouse.lake import Lake


@click.command()
@click.argument("stream")
@click.argument("key", nargs=-1, required=True, metavar="COLUMN=VALUE...")
@click.option("--reason", required=True, help="Stored with the commits; the number of a request, not the key itself.")
@click.option("--yes", is_flag=True, help="Do it. Without this it only says what it would do.")
@click.option(
    "--alone",
    is_flag=True,
    help="Nobody else writes to the lake: delete unreferenced files at once, also those of a commit that is running.",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Append the plan, and after it what was done, to this file, with every file, snapshot, tag and branch.",
)
@declared_option
@lake_option
@json_option
def forget(
    stream: str,
    key: tuple[str, ...],
    reason: str,
    yes: bool,
    alone: bool,
    report: Path | None,
    package: str,
    folder: Path,
    as_json: bool,
) -> None:
    """Remove a subject's events from a stream, the tables downstream, their history and files.

    The subject's events are those with all of the values. Without --yes it prints the plan and changes nothing.

    The stream's files are rewritten without the subject, and every table downstream is folded again. Then the history
    of all of them is removed, with tags, branches and files, at once: time travel begins here afterwards. A reader or a
    refresh that still uses an older snapshot fails. If it is interrupted, run it again to finish. It ends with 1 if
    anything of the subject is left.
    """
    with opened(folder) as lake:
        name = known(lake, stream)
        given: dict[str, Any] = {
            "key": _key(lake, name, key),
            "reason": reason,
            "tables": all_declared(package) if any(lake.kind(one) == "table" for one in lake.tables()) else [],
        }
        with stderr().status(f"looking at {name}"):
            found = lake.forget(name, **given)
        _append(report, found)
        if yes:
            with stderr().status(f"forgetting from {name}"):
                found = lake.forget(name, alone=alone, dry_run=False, **given)
            _append(report, found)
    if as_json:
        print_rows([], [plain_of(found)], as_json=True)
    else:
        for line in report_of(found, whole=False):
            click.echo(harmless(line))
    if not yes:
        click.echo("nothing was changed; --yes does it", err=True)
    elif not found.is_done:
        click.echo("it is not done: see what is left, and run it again", err=True)
        sys.exit(1)


def _key(lake: Lake, name: str, given: tuple[str, ...]) -> dict[str, Any]:
    """Return column -> value, with the types of the columns."""
    import pyarrow as pa

    schema = lake.schema(name)
    assert schema is not None
    found: dict[str, Any] = {}
    for one in given:
        column, is_pair, text = one.partition("=")
        if not is_pair or column not in schema.names:
            raise click.UsageError(
                f"{column!r} is no column of {name}; give COLUMN=VALUE, with {', '.join(schema.names)}"
            )
        if column in found:
            raise click.UsageError(f"{column} is given twice; the events of one subject have one value")
        kind = schema.field(column).type
        try:
            found[column] = pa.array([text]).cast(kind)[0].as_py()
        except pa.ArrowException as failure:
            raise click.UsageError(f"the value of {column} does not fit {name}.{column}, which is {kind}") from failure
    return found


def _append(report: Path | None, found: Forgotten) -> None:
    if report is not None:
        with report.open("a", encoding="utf-8") as file:
            file.writelines(f"{harmless(line)}\n" for line in (*report_of(found, whole=True), ""))


def report_of(found: Forgotten, *, whole: bool) -> Iterator[str]:
    """Yield the lines of a report.

    Args:
        found: the result or the plan.
        whole: whether every file is listed, instead of their number.
    """
    state = "a plan, nothing is changed" if found.is_plan else "done" if found.is_done else "NOT DONE"
    yield f"Forget from {found.stream} by {', '.join(found.columns)}: {state}"
    yield f"  reason: {found.reason}"
    yield f"  begun: {utc_text(found.at)}, id {found.forget_id}"
    yield f"  events of the subject: {found.rows:,} in the head, {found.rows_in_history:,} in other files"
    if not found.tables:
        yield "  neither the stream nor its history has an event of the subject; no table needs a change"
    for one in found.tables:
        yield from _of_table(one, whole=whole, is_plan=found.is_plan)
    if found.is_plan and found.tables:
        yield "  after it, these tables have no history: time travel, tags and branches begin at the forget"
    for text in found.remaining:
        yield f"  LEFT: {text}"
    yield "  not reached:"
    for text in found.outside:
        yield f"    {text}"


def _of_table(one: ForgottenTable, *, whole: bool, is_plan: bool) -> Iterator[str]:
    if one.kind == "stream":
        what = "1 event leaves" if one.rows == 1 else f"{one.rows:,} events leave"
    else:
        what = f"{one.rows:,} row{'' if one.rows == 1 else 's'}, folded again"
    kept = "" if one.snapshot_id is None else f"; its history begins at snapshot {one.snapshot_id}"
    is_gone, are_gone = ("would go", "would go") if is_plan else ("is gone", "are gone")
    yield f"  {one.kind} {one.table}: {what}{kept}"
    numbers = [str(number) for number in one.snapshots]
    yield from _listed(f"snapshot {is_gone}", f"snapshots {are_gone}", numbers, whole=whole)
    yield from _listed(f"tag or branch {is_gone}", f"tags and branches {are_gone}", one.refs, whole=True)
    yield from _listed(f"file {is_gone}", f"files {are_gone}", one.files, whole=whole)
    yield from _listed("file written", "files written", one.files_written, whole=whole)


def _listed(one: str, many: str, names: Sequence[str], *, whole: bool) -> Iterator[str]:
    if not names:
        return
    yield f"    {len(names):,} {one if len(names) == 1 else many}"
    if whole:
        yield from (f"      {name}" for name in names)


def plain_of(found: Forgotten) -> dict[str, Any]:
    """Return a result for JSON."""
    tables = [
        {
            **vars(one),
            "snapshot_id": None if one.snapshot_id is None else str(one.snapshot_id),
            "snapshots": [str(number) for number in one.snapshots],
            "refs": list(one.refs),
            "files": list(one.files),
            "files_written": list(one.files_written),
        }
        for one in found.tables
    ]
    texts = {name: list(getattr(found, name)) for name in ("columns", "outside", "remaining")}
    return {**vars(found), **texts, "at": utc_text(found.at), "tables": tables}
