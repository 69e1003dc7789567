"""Finds the declaration of a table, for commands that need one.

Declarations need Arrow, which is imported when one is looked for, and not for `--help`.
"""

from __future__ import annotations

import importlib
import sys
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click

import foldhouse as fh
from foldhouse.errors import CannotStart, DefinitionError, FoldhouseError, InvalidCall, UnknownTable
from foldhouse.garbage import importing
from foldhouse.values.given import shown

if TYPE_CHECKING:
    from foldhouse.calls.declared import Declared
    from foldhouse.values.definition import Source, Stream, Table

_COMPONENTS = ("defs.yaml", "component.yaml")  # the names that Dagster loads


def declared_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the option `--declared-in`."""
    return click.option(
        "--declared-in",
        "package",
        default=_declared_in,
        show_default="declared_in of [tool.foldhouse] in ./pyproject.toml, else assets",
        help="The package or module that declares it.",
    )(command)


def _declared_in() -> str:
    """Return the package of the project in the current folder.

    Raises:
        FoldhouseError: its `pyproject.toml` cannot be read.
    """
    try:
        with Path("pyproject.toml").open("rb") as file:
            said: Any = tomllib.load(file)
    except FileNotFoundError:
        return "assets"
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as failure:
        raise InvalidCall(f"./pyproject.toml cannot be read: {failure}") from failure
    for name in ("tool", "foldhouse"):
        said = said.get(name, {})
        if not isinstance(said, dict):
            raise InvalidCall(f"{name} in ./pyproject.toml is {shown(said)}; make it a table: [tool.foldhouse]")
    said = said.get("declared_in", "assets")
    if not isinstance(said, str) or not said:
        raise InvalidCall(f"declared_in of [tool.foldhouse] in ./pyproject.toml is {said!r}; name a package")
    return said


def declared(name: str, package: str) -> Table:
    """Find the declaration of a table among the modules of a package."""
    return _by_name(name, package, all_declared(package))


def declared_source(name: str, package: str) -> Source:
    """Find the declaration of a table, or of a stream that a table is folded from, among the modules of a package."""
    found = all_declared(package)
    streams = (source for table in found for source in table.sources if isinstance(source, fh.Stream))
    stream = next((one for one in streams if one.name == name), None)
    return stream if stream is not None else _by_name(name, package, found)


def declared_stream(name: str, package: str) -> Stream:
    """Find the declaration of a stream among the modules of a package, also of one that no table is folded from.

    Raises:
        InvalidCall: it is a table.
        UnknownTable: the package declares no stream of that name.
        DefinitionError: the package declares two different ones.
    """
    streams = _found_in(package, _streams_of)
    found = [stream for stream in streams if stream.name == name]
    if len(found) > 1 and any(one != found[0] for one in found):
        raise DefinitionError(f"{package} declares {name} more than once; give one of them another name")
    if found:
        return found[0]
    table = _named(name, all_declared(package))
    if table is not None:
        sources = ", ".join(source.name for source in table.sources)
        raise InvalidCall(f"{name} is a table; only a stream takes events. It is folded from {sources}")
    names = ", ".join(sorted({one.name for one in streams})) or "none"
    raise UnknownTable(f"{package} declares no stream {name}; it declares {names}")


def all_declared(package: str) -> list[Table]:
    """Return every table that the modules of a package declare, and the components in its folder `defs`.

    Raises:
        InvalidCall: there is no such package.
        DefinitionError: its code fails; the message has the line.
        CannotStart: it has components, and Dagster is not installed.
    """
    return _found_in(package, _tables_of)


def _tables_of(module: ModuleType) -> list[Table]:
    from foldhouse.calls.declared import tables_in

    return [*tables_in(module), *(one for one in _in_components(module) if isinstance(one, fh.Table))]


def _streams_of(module: ModuleType) -> list[Stream]:
    from foldhouse.calls.declared import streams_in

    found = _in_components(module)
    folded = [source for one in found if isinstance(one, fh.Table) for source in one.sources]
    return [*streams_in(module), *(one for one in (*found, *folded) if isinstance(one, fh.Stream))]


def _in_components(module: ModuleType) -> list[Source]:
    """Return what the components of a package declare; a package without any needs no Dagster."""
    folders = [Path(one) / "defs" for one in getattr(module, "__path__", ())]
    if not any(file.name in _COMPONENTS for folder in folders for file in folder.rglob("*.yaml")):
        return []
    try:
        from foldhouse.dagster.components_folder import declared_in_components
    except ImportError as missing:
        raise CannotStart(
            f"{folders[0]} has components, and loading them needs Dagster: pip install 'foldhouse[dagster]' ({missing})"
        ) from missing
    return declared_in_components(module)


def _found_in(package: str, looked_for: Callable[[ModuleType], list[Declared]]) -> list[Declared]:
    from foldhouse.calls.declared import failed_import
    from foldhouse.values.code_place import place_of

    if not all(word.isidentifier() for word in package.split(".")) or package.endswith(".py"):
        raise InvalidCall(
            f"{shown(package)} is no name of a package or module; write it as after `import`: tables for tables.py"
        )
    sys.path.insert(0, str(Path.cwd()))
    try:
        with importing():  # whoever declares assets imports Dagster
            return looked_for(importlib.import_module(package))
    except ModuleNotFoundError as missing:
        if f"{package}.".startswith(f"{missing.name}."):
            raise _no_package(package) from missing
        raise failed_import(package, missing) from missing
    except FoldhouseError as failure:
        raise type(failure)(f"{failure}{place_of(failure)}") from failure
    except (Exception, SystemExit) as failure:  # whatever the user's code raises
        raise failed_import(package, failure) from failure


def _no_package(package: str) -> InvalidCall:
    return InvalidCall(
        f"there is no package {package!r} in {Path.cwd()}, or among those that are installed. This command needs the "
        "declarations of your tables: run it in the folder of your project, or name their package or module with "
        "--declared-in (tables for tables.py). `foldhouse init NAME` makes a project"
    )


def in_order(names: Sequence[str], package: str) -> list[Table]:
    """Return declared tables, each after the tables that it is folded from.

    Args:
        names: which; all that the package declares if there are none.
        package: the package or module.
    """
    from foldhouse.calls.declared import after_sources

    found = all_declared(package)
    chosen = [_by_name(name, package, found) for name in names or sorted({one.name for one in found})]
    return after_sources(chosen)


def _named(name: str, tables: Sequence[Table]) -> Table | None:
    return next((one for one in tables if one.name == name), None)


def _by_name(name: str, package: str, found: Sequence[Table]) -> Table:
    if sum(one.name == name for one in found) > 1:
        raise DefinitionError(f"{package} declares {name} more than once; give one of them another name")
    table = _named(name, found)
    if table is None:
        names = sorted(one.name for one in found)
        folded = sorted({one.name for one in found if name in {source.name for source in one.sources}})
        if folded:  # a stream, or a table whose declaration is no variable of a module
            raise UnknownTable(
                f"{name} is a source, not a declared table of {package}; folded from it: {', '.join(folded)}"
            )
        raise UnknownTable(f"{package} declares no table {name}; it declares {', '.join(names) or 'none'}")
    return table
