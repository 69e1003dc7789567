"""Opens the lake of a command, and finds a table in it.

What reads and writes lakes takes a second to import. It is imported when a lake is opened, and not for `--help`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
from click.core import ParameterSource

import foldhouse as fh
from foldhouse.cli.output import stderr
from foldhouse.errors import ConfigurationError, UnknownLake, UnknownTable
from foldhouse.garbage import importing

Command = Callable[..., Any]
_CATALOG = "foldhouse.catalog"
"""The key of the catalog's name in click's context."""


def lake_option(command: Command) -> Command:
    """Give a command the options `--lake` and `--catalog`, of which it takes one."""
    named = click.option(
        "--catalog",
        envvar="FOLDHOUSE_CATALOG",
        metavar="NAME",
        expose_value=False,
        callback=_remember,
        show_default="$FOLDHOUSE_CATALOG",
        help="A catalog of pyiceberg's configuration, instead of --lake.",
    )
    return click.option(
        "--lake",
        "folder",
        type=click.Path(path_type=Path),
        envvar="FOLDHOUSE_LAKE",
        default="lake",
        show_default="$FOLDHOUSE_LAKE, else ./lake",
        help="The folder of the lake.",
    )(named(command))


def _remember(ctx: click.Context, _option: click.Parameter, name: str | None) -> None:
    ctx.meta[_CATALOG] = name


def catalog_given() -> str | None:
    """Return the catalog that the running command was given; `None` for a local lake.

    An option overrides the other one's variable.

    Raises:
        ConfigurationError: both are given as options, or both as variables.
    """
    ctx = click.get_current_context(silent=True)
    name: str | None = None if ctx is None else ctx.meta.get(_CATALOG)
    if ctx is None or not name:
        return None
    catalog, folder = ctx.get_parameter_source("catalog"), ctx.get_parameter_source("folder")
    if catalog == folder:
        how = (
            "--lake and --catalog" if catalog == ParameterSource.COMMANDLINE else "FOLDHOUSE_LAKE and FOLDHOUSE_CATALOG"
        )
        raise ConfigurationError(f"{how} are both given, {ctx.params.get('folder')} and {name}; give one of them")
    return None if folder == ParameterSource.COMMANDLINE else name


@contextmanager
def opened(folder: Path) -> Iterator[fh.Lake]:
    """Open an existing lake, or the catalog that the command was given, for the duration of a block.

    Raises:
        FoldhouseError: there is none; nothing is created in a folder.
    """
    catalog = catalog_given()
    lake = _local(folder) if catalog is None else fh.Lake.open(catalog)
    try:
        yield lake
    finally:
        lake.close()


@contextmanager
def opened_or_new(folder: Path, rehearsed: Callable[[fh.Lake], object]) -> Iterator[fh.Lake]:
    """Open a lake as `opened` does, for the duration of a block; a folder without a lake gets a new one.

    Args:
        folder: of the lake.
        rehearsed: what the block will do. Before a lake is made, it is done to one in a temporary folder, because a
            call that is refused leaves no lake behind.
    """
    if catalog_given() is not None or (folder / "catalog.db").is_file():
        with opened(folder) as lake:
            yield lake
        return
    check_folder(folder)
    with TemporaryDirectory() as empty, closing(fh.Lake.local(Path(empty) / "lake")) as temporary:
        rehearsed(temporary)
    lake = fh.Lake.local(folder)  # refuses a folder whose catalog is lost
    stderr().print(f"made a new lake in {folder}", style="dim", markup=False)
    try:
        yield lake
    finally:
        lake.close()


def check_folder(folder: Path) -> None:
    """Refuse an address such as `s3://bucket/lake`; see `foldhouse.storage.configuration`."""
    with importing():
        from foldhouse.storage.configuration import check_is_folder

    check_is_folder(folder)


def _local(folder: Path) -> fh.Lake:
    check_folder(folder)
    if not (folder / "catalog.db").is_file():
        from foldhouse.storage.catalog import CATALOG_NAME
        from foldhouse.storage.lost import check_catalog

        # If the warehouse has tables, the catalog is lost, and this raises with the way to repair it.
        check_catalog(folder.resolve(), CATALOG_NAME)
        raise _no_lake(folder)
    return fh.Lake.local(folder)


def check_has_lake(folder: Path) -> None:
    """Refuse a folder with neither a catalog nor the tables of a lake whose catalog is lost."""
    with importing():
        from foldhouse.storage.warehouse import path_of, warehouse_of

    check_folder(folder)
    if not (folder / "catalog.db").exists() and not path_of(warehouse_of(folder.resolve())).is_dir():
        raise _no_lake(folder)


def _no_lake(folder: Path) -> UnknownLake:
    return UnknownLake(
        f"there is no lake in {folder} (no catalog.db); name another folder with --lake or FOLDHOUSE_LAKE, "
        "or make a lake: fh.Lake.local(...), or `foldhouse backfill JOB --from ... --to ...`"
    )


def known(lake: fh.Lake, name: str) -> str:
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
