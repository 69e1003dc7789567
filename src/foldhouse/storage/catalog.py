"""The SQLite catalog of a local lake, safe for several processes, and the table names of any catalog."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog, SqlCatalogBaseTable
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier
from sqlalchemy import Connection, create_engine, inspect, select
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from sqlalchemy.orm import Session

from foldhouse.errors import LostTables
from foldhouse.storage.known import KnowingCatalog
from foldhouse.storage.lost import check_catalog, check_newest, lost_table
from foldhouse.storage.sqlite import address, check_is_database, failure_of_catalog, is_read_only
from foldhouse.storage.warehouse import TableFolder, path_of, warehouse_of

CATALOG_NAME = "foldhouse"
_BUSY_SECONDS = 30
_AGAIN_SECONDS = 0.01
_TABLES = set(SqlCatalogBaseTable.metadata.tables)


class _LocalCatalog(KnowingCatalog):
    """A local catalog that parses each metadata file once and refuses tables that it lost."""

    def load_table(self, identifier: str | Identifier) -> Table:
        table = super().load_table(identifier)
        self._check_newest(table)
        return table

    def _check_newest(self, table: Table) -> None:
        """Refuse a table if the catalog references an old state of it.

        One check per table and process is enough: afterwards the catalog can only have moved forward.
        """
        uuid, name = str(table.metadata.table_uuid), ".".join(table.name())
        if uuid in self._newest:
            return
        try:
            check_newest(name, table.metadata_location, uuid)
        except LostTables:
            if super().load_table(table.name()).metadata_location == table.metadata_location:
                raise  # no other process committed between the two reads
            return
        self._newest.add(uuid)

    @cached_property
    def _newest(self) -> set[str]:
        return set()

    def create_table(
        self, identifier: str | Identifier, schema: Any, location: str | None = None, *others: Any, **options: Any
    ) -> Table:
        name = ".".join(Catalog.identifier_to_tuple(identifier))
        found = None if location is not None else self.lost_table(name)
        if found is not None and not self.table_exists(identifier):
            raise LostTables(
                f"the catalog knows no table {name}, but {found.folder} contains one; run `foldhouse register {name}` "
                "to register it again. To create a new table instead, move that folder away"
            )
        return super().create_table(identifier, schema, location, *others, **options)

    def lost_table(self, name: str) -> TableFolder | None:
        """Return the warehouse folder of a table that the catalog does not know, if there is one with snapshots."""
        namespace, _, table = name.rpartition(".")
        folder = path_of(self.properties["warehouse"]) / namespace / table
        if not folder.is_dir():
            return None
        with Session(self.engine) as session:
            known = session.scalars(select(IcebergTables.metadata_location)).all()
        return lost_table(name, folder, [one for one in known if one])


def open_local_catalog(lake: Path, *, is_checked: bool = True) -> SqlCatalog:
    """Open or create the catalog `catalog.db` of a lake folder, with its warehouse beside it.

    SQLite waits up to 30 s for another writer. It uses a write-ahead log, so that readers do not block.

    Args:
        lake: the lake's folder; created if it is missing. A read-only lake can be opened for reading.
        is_checked: whether a catalog that lost its tables is refused.

    Raises:
        LostTables: the warehouse contains tables, but the catalog knows none; nothing was written.
        CorruptFile: `catalog.db` is not a database.
        StorageError: `catalog.db` cannot be read, or the folder cannot be created.
    """
    lake = lake.resolve()
    file, warehouse = lake / "catalog.db", warehouse_of(lake)
    if is_checked:
        check_catalog(lake, CATALOG_NAME)
    check_is_database(file)
    if is_read_only(file):
        return _LocalCatalog(
            CATALOG_NAME,
            uri=address(file, _BUSY_SECONDS),
            warehouse=warehouse,
            # By default, pyiceberg creates missing tables, and a read-only file refuses that.
            init_catalog_tables="false",
        )
    (lake / "warehouse").mkdir(parents=True, exist_ok=True)
    uri = address(file, _BUSY_SECONDS)
    _prepare(uri, file)
    return _LocalCatalog(CATALOG_NAME, uri=uri, warehouse=warehouse)


def _prepare(uri: str, file: Path) -> None:
    """Create the file and its tables if they are missing, even while other processes open the same new lake.

    pyiceberg checks for its tables and then creates them, so two processes may both try. Here they are created within
    a transaction that allows only one writer.
    """
    engine = create_engine(uri)
    try:
        with engine.connect() as connection:
            _write_ahead(connection)
            # Checked first, so that opening an existing lake waits for no writer.
            if not set(inspect(connection).get_table_names()) >= _TABLES:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
                SqlCatalogBaseTable.metadata.create_all(connection)
                connection.commit()
    except SQLAlchemyError as failure:
        raise failure_of_catalog(str(file), failure) from failure
    finally:
        engine.dispose()


def _write_ahead(connection: Connection) -> None:
    """Switch the file to a write-ahead log, which is stored in the file.

    SQLite fails at once if another process does the same, so this function retries.
    """
    patience = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            connection.exec_driver_sql("PRAGMA journal_mode=WAL")
            return
        except OperationalError as error:
            if "locked" not in str(error.orig) or time.monotonic() > patience:
                raise
            time.sleep(_AGAIN_SECONDS)


def table_names(catalog: Catalog) -> list[str]:
    """Return the names of all tables of a catalog, sorted, including those in nested namespaces."""
    found = {table for namespace in _namespaces(catalog, ()) for table in catalog.list_tables(namespace)}
    return sorted(".".join(name) for name in found)


def all_tables(catalog: Catalog, known: Mapping[str, Table] | None = None) -> dict[str, Table]:
    """Load all tables of a catalog, each once, except those that are known already.

    A table that is dropped meanwhile is left out. If a table cannot be read, the error is raised.
    """
    found = {} if known is None else dict(known)
    for name in table_names(catalog):
        if name not in found:
            with contextlib.suppress(NoSuchTableError):  # dropped meanwhile
                found[name] = catalog.load_table(name)
    return found


def _namespaces(catalog: Catalog, within: Identifier) -> Iterator[Identifier]:
    for namespace in catalog.list_namespaces(within):
        yield namespace
        yield from _namespaces(catalog, namespace)


def is_local(catalog: Catalog) -> bool:
    """Whether a catalog is the one of a lake in a folder."""
    return isinstance(catalog, _LocalCatalog)


def is_in_warehouse(catalog: Catalog, name: str) -> bool:
    """Whether the warehouse of a local catalog contains a table of this name that the catalog does not know."""
    return isinstance(catalog, _LocalCatalog) and catalog.lost_table(name) is not None
