"""The commands that read: tables, rows, keys, history. None of them starts a JVM or creates anything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from foldhouse.cli.codes import FOUND_WRONG
from foldhouse.cli.declared import declared_option, declared_source
from foldhouse.cli.lakes import known, lake_option, opened
from foldhouse.cli.output import (
    Column,
    checked_text,
    fits,
    harmless,
    json_option,
    print_rows,
    rows_text,
    snapshots_plain,
    snapshots_text,
    stderr,
    stdout,
    text_of,
)
from foldhouse.cli.records import print_records
from foldhouse.cli.status import plain_lag, shortened
from foldhouse.errors import FoldhouseError, UnknownTable
from foldhouse.values.metadata_names import COVERAGE, RUN_ID
from foldhouse.values.moment_text import utc_text
from foldhouse.values.proofs import SourceLag, TracedChange, in_short
from foldhouse.values.status import UNREADABLE

if TYPE_CHECKING:
    import pyarrow as pa

    from foldhouse.lake import Lake, SnapshotInfo

ROWS_ON_A_TERMINAL = 20

_MOMENT = "A snapshot id, a past time such as 2024-03-18T09:00:00Z (UTC where no zone is given), a tag or a branch."


@click.command()
@lake_option
@json_option
@click.pass_context
def tables(ctx: click.Context, folder: Path, as_json: bool) -> None:
    """List the tables and streams of the lake.

    The last column says how many commits of each of its sources a table has not folded yet, and how far a source that
    is a table is behind its own sources, up to the streams. What a table needs done, such as an expiry that is overdue,
    is said below. A table that cannot be read does not hide the others; the command then ends with 1.
    """
    with opened(folder) as lake, stderr().status("reading metadata"):
        names = lake.tables()
        lags, unknown = _lags(lake, names)
        found = [_listed(lake, name, lags.get(name, ())) for name in names]
    listed = [row for row in found if row is not None]
    for row in listed:
        row["unreadable"] = row["unreadable"] or unknown.get(row["name"])
    if as_json:
        print_rows([], listed, as_json=True)
    else:
        columns = [Column("name"), Column("kind"), Column("rows", is_number=True), Column("last_commit")]
        columns.append(Column("position", is_folded=True))
        rows = [{**row, "position": in_short(lags.get(row["name"], ()))} for row in listed]
        print_rows(columns, shortened(columns, rows, "position"), as_json=False)
        for row in listed:
            for said in (*row["upkeep"], *([row["unreadable"]] if row["unreadable"] else [])):
                click.echo(harmless(f"{row['name']}: {said}"), err=True)
    if any(row["unreadable"] for row in listed):
        ctx.exit(FOUND_WRONG)


def _lags(lake: Lake, names: Sequence[str]) -> tuple[dict[str, tuple[SourceLag, ...]], dict[str, str]]:
    """Return the lag of each table, and why it is not known: it or one of its sources cannot be read."""
    try:
        return lake.lags(), {}
    except FoldhouseError:
        lags, unknown = {}, {}
        for name in names:
            try:
                lags[name] = lake.lag(name)
            except FoldhouseError as failure:
                unknown[name] = f"how far it is behind is not known: {failure}"
        return lags, unknown


def _listed(lake: Lake, name: str, sources: tuple[SourceLag, ...]) -> dict[str, Any] | None:
    """Describe a table, or say why it cannot be read; `None` if it was dropped since it was listed."""
    try:
        return {**_described(lake, name, sources), "unreadable": None}
    except UnknownTable:
        return None
    except FoldhouseError as failure:
        unknown = dict.fromkeys(("rows", "last_commit", "snapshot_id", "is_behind", "coverage"))
        lists: dict[str, Any] = {"sources": [], "upkeep": []}
        return {"name": name, "kind": UNREADABLE, **unknown, **lists, "unreadable": str(failure)}


def _described(lake: Lake, name: str, sources: tuple[SourceLag, ...]) -> dict[str, Any]:
    head = lake.head(name)
    return {
        "name": name,
        "kind": lake.kind(name),
        "rows": lake.count(name),
        "last_commit": utc_text(head.committed_at) if head else None,
        "snapshot_id": str(head.id) if head else None,
        "is_behind": any(one.is_behind for one in sources) if sources else None,
        "sources": [plain_lag(one) for one in sources],
        "coverage": head.summary.get(COVERAGE) if head else None,
        "upkeep": list(lake.upkeep(name)) if lake.kind(name) != "foreign" else [],
    }


@click.command()
@click.argument("name")
@click.option("--as-of", help=f"The table as it was believed then. {_MOMENT}")
@click.option(
    "--until",
    metavar="[COLUMN=]MOMENT",
    help="Only of the events up to this time, or to the end of this day; COLUMN is that of their time.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    help=f"How many rows at the most, 0 for all; by default {ROWS_ON_A_TERMINAL} on a terminal, else all.",
)
@declared_option
@lake_option
@json_option
def show(
    name: str, as_of: str | None, until: str | None, limit: int | None, package: str, folder: Path, as_json: bool
) -> None:
    """Show the rows of a table, now or as they were.

    Tables are shown in the order of their keys, streams as they are stored. --as-of is the table as it was believed at
    a commit. --until is the table of the events up to a moment of event time: it needs the declaration, and folds these
    events again, in a temporary folder. Both together are what was believed then of the events up to that moment.

    If checks of the table read other tables, a line on standard error says at which snapshots they did.
    """
    with opened(folder) as lake, stderr().status(f"reading {name}"):
        if until is None:
            rows = lake.to_arrow(known(lake, name), as_of=as_of)
        else:
            column, _, moment = until.rpartition("=")
            rows = lake.until(declared_source(known(lake, name), package), moment, column=column or None, as_of=as_of)
        identifier = lake.load(name).schema().identifier_field_names()
        said = None if until is not None else _checked_text(lake, name, as_of)
    if keys := [column for column in rows.column_names if column in identifier]:
        rows = rows.sort_by([(key, "ascending") for key in keys])
    on_terminal = stdout().is_terminal and not as_json
    shown = ROWS_ON_A_TERMINAL if limit is None and on_terminal else limit
    first = min(shown or len(rows), len(rows))  # Arrow takes no number above 2**63
    _print_rows(columns_of(rows.schema), rows_in(rows.slice(0, first)), as_json=as_json)
    if on_terminal:
        cut = f"{shown:,} of " if shown and shown < len(rows) else ""
        stdout().print(Text(f"{cut}{rows_text(len(rows))}{'; --limit 0 shows all' if cut else ''}", style="dim"))
    if said:
        click.echo(f"{name}: {said}", err=True)


def _print_rows(columns: Sequence[Column], rows: Iterator[dict[str, Any]], *, as_json: bool) -> None:
    """Print the rows of a table; on a terminal that is too narrow, below each other."""
    if stdout().is_terminal and not as_json:
        given = list(rows)
        if columns and not fits(columns, given):
            print_records(columns, given)
            return
        rows = iter(given)
    print_rows(columns, rows, as_json=as_json)


def _checked_text(lake: Lake, name: str, as_of: str | None) -> str | None:
    """Say at which snapshots the checks of the shown commit read other tables; `None` if they read none."""
    from foldhouse.lake.as_of import snapshot_id_at

    at = snapshot_id_at(lake.load(name), as_of)
    against = {} if at is None else lake.checked_against(name, as_of=at)
    return checked_text(at, against) if at is not None and against else None


def rows_in(rows: pa.Table) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table as objects."""
    # In batches, because to_pylist of a whole table creates all its Python objects at once.
    for batch in rows.to_batches(max_chunksize=10_000):
        yield from batch.to_pylist()


def columns_of(schema: pa.Schema) -> list[Column]:
    """Return the columns of a schema, as they are printed."""
    return [Column(field.name, _is_number(field.type)) for field in schema]


def _is_number(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_floating(kind))


@click.command()
@click.argument("name")
@click.argument("key", nargs=-1, required=True)
@lake_option
@json_option
def trace(name: str, key: tuple[str, ...], folder: Path, as_json: bool) -> None:
    """Show the story of a key: every commit that changed its rows, from the streams to the tables downstream.

    KEY is `column=value`, several times for a key of several columns; the value alone will do if the table has a single
    key. Sources are followed by the columns of the key that they have, tables downstream by their own keys.
    """
    with opened(folder) as lake, stderr().status(f"following the rows of {name}"):
        found = lake.trace(known(lake, name), _key(lake, name, key))
    if as_json:
        print_rows([], (_plain_change(one) for one in found.changes), as_json=True)
    else:
        for change in found.changes:
            _print_change(change)
        if not found.changes:
            wanted = ", ".join(f"{column}={text_of(value)}" for column, value in found.key.items())
            click.echo(f"{name} never had a row with {wanted}")
    for other, reason in found.untraced.items():
        click.echo(f"{other} is not followed: {reason}", err=True)


def _key(lake: Lake, name: str, given: tuple[str, ...]) -> dict[str, Any]:
    """Return column -> value, with the types of the columns."""
    import pyarrow as pa

    schema = lake.schema(name)
    assert schema is not None
    keys = sorted(lake.load(name).schema().identifier_field_names())
    found: dict[str, Any] = {}
    for one in given:
        column, is_pair, text = one.partition("=")
        if not is_pair or column not in schema.names:
            if len(keys) != 1 or len(given) != 1:
                has = f"its key is {', '.join(keys)}" if keys else f"it has {', '.join(schema.names)}"
                unknown = f"{name} has no column {column}" if is_pair else f"{one!r} is not COLUMN=VALUE of {name}"
                raise click.UsageError(f"{unknown}; {has}")
            if is_pair and column.isidentifier():
                raise click.UsageError(
                    f"{name} has no column {column}; its key is {keys[0]}, as in {keys[0]}={text}, or {keys[0]}={one} "
                    "if that is the value"
                )
            column, text = keys[0], one
        if column in found:
            raise click.UsageError(f"{column} is given twice; a key has one value of each column")
        kind = schema.field(column).type
        try:
            found[column] = pa.array([text]).cast(kind)[0].as_py()
        except pa.ArrowException as failure:
            raise click.UsageError(f"{text!r} is not a value of {name}.{column}, which is a {kind}") from failure
    return found


def _plain_change(one: TracedChange) -> dict[str, Any]:
    return {
        "table": one.table,
        "snapshot_id": str(one.snapshot_id),
        "committed_at": utc_text(one.committed_at),
        "is_ours": one.is_ours,
        "run_id": one.run_id,
        "spans_expired": one.spans_expired,
        "before": list(one.before),
        "after": list(one.after),
    }


def _print_change(one: TracedChange) -> None:
    by = f"run {one.run_id}" if one.is_ours and one.run_id else "another tool" if not one.is_ours else "foldhouse"
    gap = ", and what expired commits before it did" if one.spans_expired else ""
    stdout().print(
        Text(f"{utc_text(one.committed_at)}  {one.table}  snapshot {one.snapshot_id} by {by}{gap}", style="bold"),
        soft_wrap=True,
    )
    for sign, style, rows in (("-", "red", one.before), ("+", "green", one.after)):
        for row in rows:
            text = "  ".join(f"{name}={'null' if value is None else text_of(value)}" for name, value in row.items())
            stdout().print(Text(f"  {sign} {text}", style=style), soft_wrap=True)


@click.command()
@click.argument("name")
@lake_option
@json_option
def history(name: str, folder: Path, as_json: bool) -> None:
    """List the commits of a table, newest first.

    Rows written and removed are those of files: unchanged rows that a rewritten file took along are among both. The
    last column has the snapshots of other tables that the checks of a commit read.
    """
    with opened(folder) as lake, stderr().status(f"reading the history of {name}"):
        found = lake.history(known(lake, name))
        tags: dict[int, list[str]] = {}
        for tag in lake.tags(name):
            tags.setdefault(tag.snapshot_id, []).append(tag.name)
    rows = {info.id: _rows_after(info) for info in found}
    commits = [_commit(info, rows, tags.get(info.id, [])) for info in found]
    columns = [
        Column("snapshot_id"),
        Column("committed_at"),
        Column("operation"),
        Column("written", is_number=True),
        Column("removed", is_number=True),
        Column("rows", is_number=True),
        Column("position"),
        Column("tags", is_shown_empty=False),
        Column("checked_against", is_shown_empty=False),
    ]
    if not as_json:
        commits = [
            {**commit, "tags": ", ".join(commit["tags"])}
            | {name: snapshots_text(commit[name]) for name in ("position", "checked_against")}
            for commit in commits
        ]
    print_rows(columns, commits, as_json=as_json, headed=3)


def _counted(info: SnapshotInfo, name: str) -> int:
    return int(info.summary.get(name, "0"))


def _rows_after(info: SnapshotInfo) -> int:
    from foldhouse.heads.row_count import rows_said

    said = rows_said(info.summary)
    return _counted(info, "total-records") - _counted(info, "total-position-deletes") if said is None else said


def _removed(info: SnapshotInfo, rows: Mapping[int, int]) -> int:
    # A tool that expires a parent may also remove the child's link to it.
    lost_link = info.parent_id is None and rows[info.id] > _counted(info, "added-records")
    if lost_link or (info.parent_id is not None and info.parent_id not in rows):  # the parent has expired
        deleted = _counted(info, "added-position-deletes") - _counted(info, "removed-position-deletes")
        return _counted(info, "deleted-records") + deleted
    before = 0 if info.parent_id is None else rows[info.parent_id]
    return before + _counted(info, "added-records") - rows[info.id]


def _commit(info: SnapshotInfo, rows: Mapping[int, int], tags: list[str]) -> dict[str, Any]:
    from foldhouse.lake import checked_against, position_of

    return {
        "snapshot_id": str(info.id),
        "parent_id": id_text(info.parent_id),
        "committed_at": utc_text(info.committed_at),
        "operation": info.operation,
        "written": _counted(info, "added-records"),
        "removed": _removed(info, rows),
        "rows": rows[info.id],
        "position": snapshots_plain(position_of(info)),
        "coverage": info.summary.get(COVERAGE),
        "run_id": info.summary.get(RUN_ID),
        "tags": tags,
        "checked_against": snapshots_plain(checked_against(info)),
        "summary": dict(info.summary),
    }


def id_text(snapshot_id: int | None) -> str | None:
    """A snapshot id as text: many readers of JSON count in doubles, which cannot hold it."""
    return None if snapshot_id is None else str(snapshot_id)
