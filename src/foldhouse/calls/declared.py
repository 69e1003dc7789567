"""Finds the tables that a package declares, and puts tables in the order of their sources."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import TypeVar

from foldhouse.errors import DefinitionError
from foldhouse.values.code_place import place_of
from foldhouse.values.definition import Stream, Table

Declared = TypeVar("Declared", Stream, Table)


def tables_in(package: ModuleType) -> list[Table]:
    """Return the tables that a module, or the modules of a package, have as variables; each value once, by name."""
    return _values_in(package, Table)


def streams_in(package: ModuleType) -> list[Stream]:
    """Return the streams that a module or package has as variables, or folds tables from; each value once, by name."""
    folded = {id(one): one for table in tables_in(package) for one in table.sources if isinstance(one, Stream)}
    found = folded | {id(one): one for one in _values_in(package, Stream)}
    return sorted(found.values(), key=lambda stream: stream.name)


def check_names(package: ModuleType, further: Iterable[Table | Stream] = ()) -> None:
    """Refuse declarations of which two have one name, because both would be one table of the lake.

    Args:
        package: as for `tables_in`.
        further: what else is declared, such as by components.

    Raises:
        DefinitionError: two tables have one name, or two streams that differ, or a table and a stream.
    """
    found = {id(one): one for one in (*tables_in(package), *streams_in(package), *further)}
    by_name: dict[str, Table | Stream] = {}
    for one in found.values():
        other = by_name.setdefault(one.name, one)
        # Streams that are equal are one, such as one that each of two components declares.
        if other is not one and (isinstance(one, Table) or isinstance(other, Table) or one != other):
            raise DefinitionError(
                f"{package.__name__} declares {one.name} more than once; give one of them another name"
            )


def _values_in(package: ModuleType, kind: type[Declared]) -> list[Declared]:
    # As Dagster loads the assets of a package: with the packages in it.
    below = pkgutil.walk_packages(getattr(package, "__path__", []), f"{package.__name__}.", onerror=lambda name: None)
    inside: list[str] = [one.name for one in below]
    modules = [package, *(importlib.import_module(one) for one in inside)]
    values: list[object] = []
    for module in modules:
        for value in vars(module).values():
            # Only plain lists and tuples: classes derived from these may refuse to be iterated, as Dagster's do.
            values += value if type(value) in (list, tuple) else [value]
    found = {id(value): value for value in values if isinstance(value, kind)}
    return sorted(found.values(), key=lambda one: one.name)


def with_sources(tables: Iterable[Table]) -> dict[str, Table]:
    """Return name -> table, of some tables and of those that they are folded from, directly or through others."""
    found: dict[str, Table] = {}
    left = list(tables)
    for table in left:
        found.setdefault(table.name, table)
        left += [one for one in table.sources if isinstance(one, Table) and one.name not in found]
    return found


def after_sources(tables: Sequence[Table]) -> list[Table]:
    """Return tables so that each comes after those that it is folded from, directly or through others."""
    by_name = {table.name: table for table in tables}
    ordered: dict[str, Table] = {}

    def add(table: Table) -> None:
        for source in table.sources:
            if isinstance(source, Table):
                add(source)
        if table.name in by_name:
            ordered.setdefault(table.name, by_name[table.name])

    for table in tables:
        add(table)
    return list(ordered.values())


def failed_import(module: str, failure: BaseException) -> DefinitionError:
    """Return the error of a module of the user that cannot be imported, with the line at which it failed."""
    said = f"{type(failure).__name__}: {failure}".partition("\n")[0]
    return DefinitionError(
        f"{module} cannot be imported: {said}{place_of(failure)}. `python -c 'import {module}'` shows how it got there"
    )
