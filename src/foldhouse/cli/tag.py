"""The command that names snapshots."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from foldhouse.cli.lakes import known, lake_option, opened
from foldhouse.cli.output import Column, json_option, print_rows
from foldhouse.values.age import span_of
from foldhouse.values.moment_text import utc_text

if TYPE_CHECKING:
    from foldhouse.storage.tags import Tag


@click.command()
@click.argument("name")
@click.argument("tag", required=False)
@click.option("--at", help="A snapshot id, a time, a tag or a branch; by default the head.")
@click.option("--keep", metavar="DURATION", help="For how long expiry keeps it, such as 30d, 12h or 30m.")
@click.option("--move", is_flag=True, help="Move a tag that is at another snapshot.")
@click.option("--delete", is_flag=True, help="Drop the tag; its snapshot stays until it is expired.")
@lake_option
@json_option
def tag(
    name: str,
    tag: str | None,
    at: str | None,
    keep: str | None,
    move: bool,
    delete: bool,
    folder: Path,
    as_json: bool,
) -> None:
    """Name a snapshot of a table, list the names, move or delete one.

    Without TAG, the tags of the table are listed. Expiry keeps a tagged snapshot, and --as-of takes the tag instead of
    a snapshot id.
    """
    if tag is None and (at is not None or keep is not None or move or delete):
        raise click.UsageError("--at, --keep, --move and --delete are about a tag; give its name after the table's")
    if delete and (at is not None or keep is not None or move):
        raise click.UsageError("--delete takes neither --at nor --keep nor --move")
    with opened(folder) as lake:
        known(lake, name)
        if tag is None:
            rows = [_plain(name, one) for one in lake.tags(name)]
        elif delete:
            rows = [_plain(name, lake.untag(name, tag), is_deleted=True)]
        else:
            kept = None if keep is None else span_of(keep)
            rows = [_plain(name, lake.tag(name, tag, at=at, keep=kept, move=move))]
    if as_json or tag is None:
        columns = [Column("tag"), Column("snapshot_id"), Column("committed_at"), Column("kept_until")]
        print_rows(columns, rows, as_json=as_json)
    elif delete:
        click.echo(f"{name} has no tag {tag} any more; it was at snapshot {rows[0]['snapshot_id']}")
    else:
        until = f", kept until {rows[0]['kept_until']}" if rows[0]["kept_until"] else ""
        click.echo(f"{name} has tag {tag} at snapshot {rows[0]['snapshot_id']}{until}")


def _plain(table: str, one: Tag, *, is_deleted: bool = False) -> dict[str, Any]:
    return {
        "table": table,
        "tag": one.name,
        "snapshot_id": str(one.snapshot_id),
        "committed_at": None if one.committed_at is None else utc_text(one.committed_at),
        "kept_until": None if one.kept_until is None else utc_text(one.kept_until),
        "is_position": one.is_position,
        "is_deleted": is_deleted,
    }
