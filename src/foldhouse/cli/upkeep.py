"""The commands that keep a lake in order: compact, expire, mend-clock, publish, register. Twice is the same as once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

import foldhouse as fh
from foldhouse.cli.lakes import catalog_given, check_has_lake, known, lake_option, opened
from foldhouse.cli.output import Column, count_text, json_option, print_rows, stderr
from foldhouse.errors import ConfigurationError, FoldhouseError
from foldhouse.values.keep import DEFAULT as DEFAULT_KEEP
from foldhouse.values.moment_text import utc_text
from foldhouse.values.tuning import DEFAULT as DEFAULT_TUNING

if TYPE_CHECKING:
    from foldhouse.lake import Lake
    from foldhouse.storage.register import Registered

Done = TypeVar("Done")

_MIB = 1024 * 1024


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--target-mib",
    type=click.IntRange(min=1),
    help="The size of file aimed at, compressed; by default what the table says, or 128.",
)
@click.option(
    "--min-files",
    type=click.IntRange(min=1),
    default=DEFAULT_TUNING.compacted_files,
    show_default=True,
    help="With fewer files, a partition is not rewritten for their number alone.",
)
@lake_option
@json_option
def compact(names: Sequence[str], target_mib: int | None, min_files: int, folder: Path, as_json: bool) -> None:
    """Rewrite small files and files with many deleted rows.

    Without names, it compacts all tables. No row changes, and no table folded from another sees a change. The old
    files are deleted once `foldhouse expire` finds that no kept snapshot references them.
    """

    def compacted(lake: Lake, name: str) -> dict[str, Any]:
        target_bytes = None if target_mib is None else target_mib * _MIB
        done = lake.compact(name, target_bytes=target_bytes, min_files=min_files)
        return {
            "table": name,
            "committed": done.committed,
            "snapshot_id": None if done.snapshot_id is None else str(done.snapshot_id),
            "partitions": done.partitions,
            "files_removed": done.files_removed,
            "files_added": done.files_added,
            "bytes_removed": done.bytes_removed,
            "bytes_added": done.bytes_added,
            "rows_written": done.rows_written,
        }

    rows, failure = _of_each(folder, names, "compacting", compacted)
    if rows or failure is None:
        _print(rows, "partitions", "files_removed", "files_added", "bytes_removed", "bytes_added", as_json=as_json)
    if failure is not None:
        raise failure


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--older-than",
    help="An age such as 7d, 12h or 30m, or a time such as 2024-03-18T09:00:00Z: all snapshots go that stopped being "
    "the head before. By default the table's properties say what goes. With --orphans: files written before; 1d.",
)
@click.option("--keep-last", type=click.IntRange(min=1), help="So many of the newest commits stay, however old.")
@click.option("--keep", help=f"What history to keep instead of what the table says: {DEFAULT_KEEP}.")
@click.option("--orphans", is_flag=True, help="List files that nothing names, such as those of killed runs, instead.")
@click.option("--delete", is_flag=True, help="With --orphans: delete them.")
@lake_option
@json_option
def expire(
    names: Sequence[str],
    older_than: str | None,
    keep_last: int | None,
    keep: str | None,
    orphans: bool,
    delete: bool,
    folder: Path,
    as_json: bool,
) -> None:
    """Remove old snapshots, and delete the files that only they reference.

    Without names, it expires snapshots of all tables. The table's properties foldhouse.history.keep and Iceberg's
    history.expire.* say what stays. The head, every tag and branch, and the snapshots that the tables folded from it
    need stay however old they are. Time travel to a removed snapshot is not possible afterwards.
    """
    if orphans:
        if keep_last is not None or keep is not None:
            raise click.UsageError("--keep-last and --keep say which snapshots stay; --orphans looks for files")
        _orphans(names, older_than, delete, folder, as_json=as_json)
        return
    if delete:
        raise click.UsageError("--delete is for --orphans; the files of expired snapshots are always deleted")

    def expired(lake: Lake, name: str) -> dict[str, Any]:
        done = lake.expire(name, older_than=older_than, keep_last=keep_last, keep=keep)
        return {
            "table": name,
            "committed": done.committed,
            "snapshots_removed": done.snapshots_removed,
            "snapshots_left": done.snapshots_left,
            "files_deleted": done.files_deleted,
            "bytes_freed": done.bytes_freed,
            "files_outside": done.files_outside,
            "held": {tag: str(snapshot_id) for tag, snapshot_id in done.held.items()},
            "tags_dropped": list(done.tags_dropped),
        }

    rows, failure = _of_each(folder, names, "expiring", expired)
    if rows or failure is None:
        _print(rows, "snapshots_removed", "snapshots_left", "files_deleted", "bytes_freed", as_json=as_json)
    for row in rows:
        if row["files_outside"]:
            click.echo(f"{row['table']}: files outside its location, which stay: {row['files_outside']}", err=True)
    if failure is not None:
        raise failure


def _orphans(names: Sequence[str], older_than: str | None, delete: bool, folder: Path, *, as_json: bool) -> None:
    found, failure = _of_each(
        folder,
        names,
        "listing files of",
        lambda lake, name: lake.orphans(name, older_than=older_than, delete=delete),
    )
    if failure is not None and not found:
        raise failure
    rows = [
        {"table": one.table, "path": file.path, "bytes": file.bytes, "written_at": utc_text(file.written_at)}
        for one in found
        for file in one.files
    ]
    columns = [Column("table"), Column("path"), Column("bytes", is_number=True), Column("written_at")]
    print_rows(columns, rows, as_json=as_json)
    if not as_json:
        size, deleted = sum(one.bytes for one in found), sum(one.deleted for one in found)
        done = f"{deleted:,} of them deleted" if delete else "nothing is deleted without --delete"
        click.echo(f"{count_text(len(rows), 'orphan')}, {size:,} bytes; {done}", err=True)
    if failure is not None:
        raise failure


@click.command("mend-clock")
@click.argument("name")
@lake_option
@json_option
def mend_clock(name: str, folder: Path, as_json: bool) -> None:
    """Move commit times of a table that lie ahead of this machine's clock back to now.

    The way out after a commit by a machine whose clock was wrong. See to it that the clock of this machine is right.
    No row and no snapshot changes. Time travel to the time since the last right commit is refused, because nobody knows
    what was the head then.
    """
    with opened(folder) as lake:
        ahead = lake.mend_clock(known(lake, name))
    if as_json:
        print_rows([], [{"table": name, "ahead_seconds": ahead.total_seconds()}], as_json=True)
        return
    click.echo(f"{name} was {ahead} ahead of this clock; its times are mended" if ahead else f"{name} is not ahead")


@click.command()
@click.argument("name")
@lake_option
@json_option
def publish(name: str, folder: Path, as_json: bool) -> None:
    """Make what `foldhouse rebuild --no-publish` folded the head of its table.

    Refused where anybody committed to the table since: rebuild it again then.
    """
    with opened(folder) as lake:
        head = lake.head(known(lake, name))
        snapshot_id = lake.publish(name)
    moved = head is None or head.id != snapshot_id
    if as_json:
        print_rows([], [{"table": name, "snapshot_id": str(snapshot_id), "has_moved": moved}], as_json=True)
        return
    click.echo(f"{name} is at snapshot {snapshot_id}" if moved else f"{name} stays at snapshot {snapshot_id}")


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--metadata", "metadata_file", help="The metadata file to take, of the one table that is named.")
@click.option("--yes", is_flag=True, help="Do it, without asking.")
@lake_option
@json_option
def register(names: Sequence[str], metadata_file: str | None, yes: bool, folder: Path, as_json: bool) -> None:
    """Have the catalog know the tables of the warehouse again.

    For a catalog.db that was lost, damaged or restored from an older backup. Each table is found by its folder and
    taken at its newest metadata file; files that are empty or torn are named and passed over. Without --yes it says
    what it would do, and asks if somebody is there. Nothing but catalog.db is written.
    """
    if (catalog := catalog_given()) is not None:
        raise ConfigurationError(
            f"register repairs the catalog.db of a local lake, and {catalog} is a configured catalog; "
            "register a table there with pyiceberg: catalog.register_table(name, metadata_location)"
        )
    from foldhouse.storage.register import DUE

    check_has_lake(folder)
    with stderr().status("looking into the warehouse"):
        planned = fh.Lake.register(folder, *names, metadata_file=metadata_file)
    due = [one for one in planned if one.action in DUE]
    if due and not yes and sys.stdin.isatty():
        _print_registered(planned, as_json=as_json)
        click.confirm("Do it?", abort=True, err=True)
        fh.Lake.register(folder, *names, metadata_file=metadata_file, dry_run=False)
        return
    if due and yes:
        planned = fh.Lake.register(folder, *names, metadata_file=metadata_file, dry_run=False)
    _print_registered(planned, as_json=as_json)
    if due and not yes:
        click.echo("nothing was changed; --yes does it", err=True)


def _print_registered(planned: Sequence[Registered], *, as_json: bool) -> None:
    rows = [
        {
            "table": one.table,
            "action": one.action,
            "metadata_file": one.metadata_file,
            "snapshot_id": None if one.snapshot_id is None else str(one.snapshot_id),
            "last_commit": None if one.last_commit_ms is None else utc_text(_moment(one.last_commit_ms)),
            "notes": list(one.notes) if as_json else "; ".join(one.notes),
        }
        for one in planned
    ]
    columns = [Column("table"), Column("action"), Column("metadata_file"), Column("last_commit")]
    print_rows([*columns, Column("notes", is_folded=True)], rows, as_json=as_json)


def _moment(since_1970_ms: int) -> datetime:
    return datetime.fromtimestamp(since_1970_ms / 1000, UTC)


def _of_each(
    folder: Path, names: Sequence[str], doing: str, done: Callable[[Lake, str], Done]
) -> tuple[list[Done], FoldhouseError | None]:
    """Do something to each table; one that fails does not keep the others from their turn.

    Returns:
        The results of the other tables, and the first error, with the other ones as its notes.
    """
    found: list[Done] = []
    failures: list[FoldhouseError] = []
    with opened(folder) as lake:
        for name in _chosen(lake, names):
            try:
                with stderr().status(f"{doing} {name}"):
                    found.append(done(lake, name))
            except FoldhouseError as failure:
                failures.append(failure)
    for said in [one for one in dict.fromkeys(map(str, failures)) if one != str(failures[0])]:
        failures[0].add_note(said)
    return found, failures[0] if failures else None


def _chosen(lake: Lake, names: Sequence[str]) -> list[str]:
    """The named tables; without a name, all that foldhouse made, and those that cannot be read."""
    return [known(lake, name) for name in names] or [one for one in lake.tables() if _is_ours(lake, one)]


def _is_ours(lake: Lake, name: str) -> bool:
    try:
        return lake.kind(name) != "foreign"
    except FoldhouseError:  # its turn says so
        return True


def _print(rows: Sequence[dict[str, Any]], *numbers: str, as_json: bool) -> None:
    print_rows([Column("table"), *(Column(name, is_number=True) for name in numbers)], rows, as_json=as_json)
