"""Checks the kind of a stored table before every write: stream, table, or neither.

A fold is never written over events, and events are never written into a fold, even if a declaration uses the same name.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table as IcebergTable

from foldhouse.errors import DefinitionError
from foldhouse.heads.head import last_head
from foldhouse.storage.schema import FOREIGN, kind_of
from foldhouse.values.definition import Source, Table
from foldhouse.values.metadata_names import KIND

_MADE_AS = {"stream": "a stream of events", "table": "a table that foldhouse folds", FOREIGN: "a table of another tool"}


def check_stream(iceberg: IcebergTable) -> IcebergTable:
    """Return a table that events may be written into.

    Raises:
        DefinitionError: its kind is `table`, or another tool created it; nothing was written.
    """
    kind, name = kind_of(iceberg), _name(iceberg)
    if kind == "table":
        raise DefinitionError(
            f"{name} is declared as a stream, but the lake's {name} is {_MADE_AS[kind]}: its rows come only from its "
            "sources. Give the stream another name, or write to a source of the table"
        )
    if kind != "stream":
        raise DefinitionError(
            f"{name} was not created by foldhouse (it has no property {KIND}), so foldhouse only reads it. Give the "
            f"stream another name, or set the table's property {KIND} to 'stream' to let foldhouse write to it"
        )
    return iceberg


def check_table(iceberg: IcebergTable) -> IcebergTable:
    """Return a table that a fold may be written into.

    Raises:
        DefinitionError: it is a stream, or another tool created it; nothing was written.
    """
    kind, name = kind_of(iceberg), _name(iceberg)
    if kind != "table":
        raise DefinitionError(
            f"{name} is declared as a table, but the lake's {name} is {_MADE_AS[kind]}: folding into it would replace "
            "its rows. Give the declared table another name"
        )
    return iceberg


def check_folded(iceberg: IcebergTable) -> IcebergTable:
    """Return a table that is folded, of which a call gave the name and no declaration.

    Raises:
        DefinitionError: it is a stream, or another tool created it; nothing was written.
    """
    kind, name = kind_of(iceberg), _name(iceberg)
    if kind != "table":
        raise DefinitionError(
            f"{name} is {_MADE_AS[kind]}; only tables that foldhouse folds can be refreshed, paused, resumed and "
            "published. Give the name of such a table; `foldhouse tables` lists the kind of each"
        )
    return iceberg


def check_source(table: Table, source: Source, iceberg: IcebergTable) -> None:
    """Refuse a source that is declared as a table but stored as something else.

    A stream may be declared over any stored table: those of other tools, and those of other declarations.

    Raises:
        DefinitionError: the kind of the stored table is not `table`.
    """
    kind = kind_of(iceberg)
    if isinstance(source, Table) and kind != "table":
        raise DefinitionError(
            f"{table.name} is folded from the table {source.name}, but the lake's {source.name} is {_MADE_AS[kind]}; "
            "declare it as a stream, or give the source another name"
        )


def check_chain(catalog: Catalog, target: IcebergTable, sources: Iterable[IcebergTable]) -> None:
    """Refuse a table that is one of its own sources, directly or through other tables of the lake.

    Tables are identified by their uuids, so it does not matter how a catalog spells names.

    Raises:
        DefinitionError: the sources form a circle; nothing was written.
    """
    wanted, seen = target.metadata.table_uuid, set()
    path = [(one, _name(one)) for one in sources]
    while path:
        iceberg, way = path.pop()
        if iceberg.metadata.table_uuid == wanted:
            raise DefinitionError(
                f"{_name(target)} would be folded from itself (by way of {way}); give it another name, or other sources"
            )
        if iceberg.metadata.table_uuid in seen or kind_of(iceberg) != "table":
            continue
        seen.add(iceberg.metadata.table_uuid)
        for name, position in last_head(iceberg).positions.items():
            try:
                below = catalog.load_table(name)
            except NoSuchTableError:
                continue
            if str(below.metadata.table_uuid) == position.uuid:  # else it was created again under that name
                path.append((below, f"{way} <- {name}"))


def _name(iceberg: IcebergTable) -> str:
    return ".".join(iceberg.name())
