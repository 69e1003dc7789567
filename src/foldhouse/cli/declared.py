"""Finds the declaration of a table, for commands that need one."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from foldhouse.calls.declared import tables_in
from foldhouse.errors import DefinitionError, FoldhouseError, UnknownTable
from foldhouse.values.definition import Table


def declared_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the option `--declared-in`."""
    return click.option(
        "--declared-in", "package", default="assets", show_default=True, help="The package or module that declares it."
    )(command)


def declared(name: str, package: str) -> Table:
    """Find the declaration of a table among the modules of a package."""
    sys.path.insert(0, str(Path.cwd()))
    try:
        top = importlib.import_module(package)
    except ModuleNotFoundError as missing:
        raise FoldhouseError(
            f"{missing}; run this where {package!r} can be imported, or name it with --declared-in"
        ) from missing
    found = tables_in(top)
    tables = {one.name: one for one in found}
    if sum(one.name == name for one in found) > 1:
        raise DefinitionError(f"{package} declares {name} more than once; give one of them another name")
    if name not in tables:
        raise UnknownTable(f"{package} declares no table {name}; it declares {', '.join(sorted(tables)) or 'none'}")
    return tables[name]
