"""The command that adds Parquet files to a stream as they are."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from foldhouse.cli.declared import declared_option, declared_stream
from foldhouse.cli.lakes import lake_option, opened_or_new
from foldhouse.cli.output import count_text, json_option, print_rows, rows_text, stderr
from foldhouse.errors import InvalidCall
from foldhouse.values.results import Appended

if TYPE_CHECKING:
    from foldhouse.lake import Lake

_SUFFIX = ".parquet"
_OF_PATTERNS = "*?["


@click.command("add-files")
@click.argument("stream")
@click.argument("files", nargs=-1, required=True)
@declared_option
@lake_option
@json_option
def add_files(stream: str, files: tuple[str, ...], package: str, folder: Path, as_json: bool) -> None:
    """Add Parquet files to a stream as they are, without writing their rows again.

    FILES are paths, patterns such as 'history/*.parquet', folders, or addresses in the store of the catalog. Of a
    folder, all files that end with .parquet are added, also those in folders below it, without those whose name begins
    with _ or a dot. The files stay where they are: nobody may change, move or delete them. All are added in one commit,
    or none is, and each that does not fit the stream is named. A file that the stream has is not added again.
    """
    given = declared_stream(stream, package)
    paths = found(files)

    def added(lake: Lake) -> Appended:
        with stderr().status(f"reading {count_text(len(paths), 'file')}"):
            return lake.add_files(given, paths)

    with opened_or_new(folder, added) as lake:
        done = added(lake)
    if as_json:
        said = {"table": stream, "committed": done.committed, "snapshot_id": _id(done), "files": len(paths)}
        print_rows([], [{**said, "files_added": done.files_added, "rows_added": done.rows_added}], as_json=True)
    else:
        click.echo(_text(done, len(paths)))


def found(files: Sequence[str]) -> list[str]:
    """Return the files that paths, patterns, folders and addresses stand for; each once, in the order given.

    Raises:
        InvalidCall: one of them stands for no file.
    """
    return list(dict.fromkeys(path for one in files for path in _found(one)))


def _found(text: str) -> Iterator[str]:
    if "://" in text and not text.startswith("file://"):
        if text.endswith("/") or "*" in text:
            raise InvalidCall(f"{text} is a folder or a pattern in a store, which is not listed; name each file of it")
        yield text
        return
    path = Path(text.removeprefix("file://"))
    if not text:  # as a path it is the current folder
        raise InvalidCall("there is no file ''; nothing was added")
    if path.is_dir():
        inside = [
            one for one in sorted(path.rglob(f"*{_SUFFIX}")) if _is_meant(one.relative_to(path)) and one.is_file()
        ]
        if not inside:
            raise InvalidCall(
                f"there is no file that ends with {_SUFFIX} in the folder {path}; name the files one by one"
            )
        yield from map(str, inside)
    elif path.exists():
        yield str(path)
    elif any(one in str(path) for one in _OF_PATTERNS):
        matching = sorted(one for one in glob.glob(str(path), recursive=True) if Path(one).is_file())
        if not matching:
            raise InvalidCall(f"no file matches {path}; `ls` shows what is there")
        yield from matching
    else:
        raise InvalidCall(f"there is no file {path}; nothing was added")


def _is_meant(path: Path) -> bool:
    """Whether a file of a folder is data: Spark and Hive begin the names of all other files with `_` or a dot."""
    return not any(part.startswith(("_", ".")) for part in path.parts)


def _id(done: Appended) -> str | None:
    return None if done.snapshot_id is None else str(done.snapshot_id)


def _text(done: Appended, given: int) -> str:
    had = given - done.files_added
    if not done.committed:
        return f"{done.table}: nothing was added; it has {count_text(given, 'file')} already, or they are empty"
    left = f"; {count_text(had, 'file')} it had already, or {'is' if had == 1 else 'are'} empty" if had else ""
    return (
        f"{done.table}: {count_text(done.files_added, 'file')} with {rows_text(done.rows_added)} added, snapshot "
        f"{done.snapshot_id}{left}"
    )
