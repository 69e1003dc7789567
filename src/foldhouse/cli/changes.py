"""The commands that compare the states of a table: what changed commit by commit, and between two moments."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.text import Text

from foldhouse.cli import changelog
from foldhouse.cli.lakes import known, lake_option, opened
from foldhouse.cli.output import Column, json_option, print_rows, stderr, stdout
from foldhouse.cli.reading import columns_of, id_text, rows_in
from foldhouse.values.change import COMMIT_SNAPSHOT_ID
from foldhouse.values.moment_text import utc_text

if TYPE_CHECKING:
    import pyarrow as pa

    from foldhouse.lake import Lake, SnapshotInfo


@click.command()
@click.argument("name")
@click.option("--after", help="The moment before, itself left out; 0 for the beginning. By default the last commit's.")
@click.option("--upto", help="The last moment, inclusive; by default now.")
@click.option("--net", is_flag=True, help="Only the difference between the two moments, not commit by commit.")
@lake_option
@json_option
def changes(name: str, after: str | None, upto: str | None, net: bool, folder: Path, as_json: bool) -> None:
    """Show what changed in a table between two moments.

    A moment is a snapshot id, a time such as 2024-03-18T09:00:00Z (UTC where no zone is given), a tag or a branch.
    """
    if upto is not None and after is None:
        raise click.UsageError("--upto needs --after: changes are those of (after, upto]")
    with opened(folder) as lake, stderr().status(f"comparing the states of {name}"):
        commits = {info.id: info for info in lake.history(known(lake, name))}
        # The second newest commit: by default, the changes of the newest are shown.
        last = next(itertools.islice(commits, 1, None), None)
        changed = lake.changes(name, after=(last or 0) if after is None else after, upto=upto, net=net)
        keys = _keys(lake, name)
    _print(changed, keys, commits, net=net, as_json=as_json)


@click.command()
@click.argument("name")
@click.argument("one")
@click.argument("other", required=False)
@lake_option
@json_option
def diff(name: str, one: str, other: str | None, folder: Path, as_json: bool) -> None:
    """Show the rows that differ between two moments of a table.

    A moment is a snapshot id, a time such as 2024-03-18T09:00:00Z (UTC where no zone is given), a tag or a branch.
    Without OTHER, ONE is compared with now. What happened in between does not count. It is the same as
    `foldhouse changes --net --after ONE --upto OTHER`.
    """
    with opened(folder) as lake, stderr().status(f"comparing the states of {name}"):
        changed = lake.changes(known(lake, name), after=one, upto=other, net=True)
        keys = _keys(lake, name)
    _print(changed, keys, {}, net=True, as_json=as_json)


def _keys(lake: Lake, name: str) -> list[str]:
    """Return the key columns of a table, in the order of its columns."""
    schema = lake.load(name).schema()
    return [field.name for field in schema.fields if field.name in schema.identifier_field_names()]


def _print(
    changed: pa.Table, keys: Sequence[str], commits: Mapping[int, SnapshotInfo], *, net: bool, as_json: bool
) -> None:
    if as_json or not stdout().is_terminal:
        own = [Column(one) for one in changelog.CHANGE_COLUMNS]
        columns = [*own, *(c for c in columns_of(changed.schema) if c.name not in changelog.CHANGE_COLUMNS)]
        rows = ({**row, COMMIT_SNAPSHOT_ID: id_text(row[COMMIT_SNAPSHOT_ID])} for row in rows_in(changed))
        print_rows(columns, rows, as_json=as_json)
        return
    columns = [c for c in columns_of(changed.schema) if c.name not in changelog.CHANGE_COLUMNS]
    for snapshot_id, group in itertools.groupby(rows_in(changed), key=lambda row: row[COMMIT_SNAPSHOT_ID]):
        title = f"net, up to snapshot {snapshot_id}" if net else _title(snapshot_id, commits.get(snapshot_id))
        stdout().print(Text(title, style="bold"))
        changelog.print_changelog(columns, list(group), keys)
        stdout().print()
    stdout().print(Text(changelog.counted(changed), style="dim"))


def _title(snapshot_id: int, commit: SnapshotInfo | None) -> str:
    return f"snapshot {snapshot_id}" + (f", {utc_text(commit.committed_at)}" if commit else "")
