"""Opens the lake of a command, and finds a table in it."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from foldhouse.errors import UnknownLake, UnknownTable
from foldhouse.lake import Lake
from foldhouse.storage.catalog import CATALOG_NAME
from foldhouse.storage.lost import check_catalog

Command = Callable[..., Any]


def lake_option(command: Command) -> Command:
    """Give a command the option `--lake`."""
    return click.option(
        "--lake",
        "folder",
        type=click.Path(path_type=Path),
        envvar="FOLDHOUSE_LAKE",
        default="lake",
        show_default="$FOLDHOUSE_LAKE, else ./lake",
        help="The folder of the lake.",
    )(command)


@contextmanager
def opened(folder: Path) -> Iterator[Lake]:
    """Open an existing lake for the duration of a block.

    Raises:
        FoldhouseError: there is none; nothing is created.
    """
    if not (folder / "catalog.db").is_file():
        # If the warehouse has tables, the catalog is lost, and this raises with the way to repair it.
        check_catalog(folder.resolve(), CATALOG_NAME)
        raise UnknownLake(
            f"there is no lake in {folder} (no catalog.db); name another folder with --lake or FOLDHOUSE_LAKE, "
            "or make a lake: fh.Lake.local(...), or `foldhouse backfill JOB --from ... --to ...`"
        )
    lake = Lake.local(folder)
    try:
        yield lake
    finally:
        lake.close()


def known(lake: Lake, name: str) -> str:
    """Return the name of a table that is in the lake.

    Raises:
        UnknownTable: it does not; the message names the nearest.
    """
    names = lake.tables()
    if name in names:
        return name
    last = {one.rpartition(".")[2]: one for one in names}
    # By the whole name, or else by its last part: `order` is near `orders`, but not near `retail.orders`.
    near = difflib.get_close_matches(name, names, n=1) or [
        last[one] for one in difflib.get_close_matches(name.rpartition(".")[2], last, n=1)
    ]
    meant = f"did you mean {near[0]}? " if near else ""
    raise UnknownTable(f"there is no table {name} in the lake; {meant}`foldhouse tables` lists {len(names)}")
