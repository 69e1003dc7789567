"""The catalog of a local lake: SQLite, safe for several processes; and what a catalog holds."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog, SqlCatalogBaseTable
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import Identifier
from sqlalchemy import Connection, create_engine, inspect
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from foldhouse.storage.metadata import SealedCatalog, check_home
from foldhouse.storage.sqlite import address, check_is_database, failure_of_catalog, is_read_only

CATALOG_NAME = "foldhouse"
_BUSY_SECONDS = 30
_AGAIN_SECONDS = 0.01
_TABLES = set(SqlCatalogBaseTable.metadata.tables)
_MOST_KNOWN = 64


class _LocalCatalog(SealedCatalog):
    """Parses a metadata file once: it never changes, and with a long history that is most of loading a table."""

    @cached_property
    def _known(self) -> dict[str, TableMetadata]:
        return {}

    @cached_property
    def _lock(self) -> threading.Lock:
        return threading.Lock()

    def _remember(self, location: str, metadata: TableMetadata) -> None:
        with self._lock:
            if len(self._known) >= _MOST_KNOWN:
                self._known.pop(next(iter(self._known)))
            self._known[location] = metadata

    def _convert_orm_to_iceberg(self, orm_table: IcebergTables) -> Table:
        location = orm_table.metadata_location or ""
        check_home(self.properties.get("warehouse", ""), location)
        metadata = self._known.get(location)
        if metadata is None:
            loaded = super()._convert_orm_to_iceberg(orm_table)
            self._remember(location, loaded.metadata)
            return loaded
        name = (*Catalog.identifier_to_tuple(orm_table.table_namespace), orm_table.table_name)
        return Table(name, metadata, location, self._load_file_io(location=location), self)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        response = super().commit_table(table, requirements, updates)
        self._remember(response.metadata_location, response.metadata)
        return response


def open_local_catalog(lake: Path) -> SqlCatalog:
    """Open, or create, the catalog `catalog.db` of a lake folder, with its warehouse beside it.

    SQLite waits up to 30 s for another writer and writes ahead, so that readers do not block.

    Args:
        lake: the lake's folder; created where missing. One that is read-only can be read.

    Raises:
        CorruptFile: `catalog.db` is no database.
        StorageError: it cannot be read, or the folder cannot be made.
    """
    lake = lake.resolve()
    file = lake / "catalog.db"
    check_is_database(file)
    if is_read_only(file):
        return _LocalCatalog(
            CATALOG_NAME,
            uri=address(file, _BUSY_SECONDS),
            warehouse=(lake / "warehouse").as_uri(),
            init_catalog_tables="false",
        )
    (lake / "warehouse").mkdir(parents=True, exist_ok=True)
    uri = address(file, _BUSY_SECONDS)
    _prepare(uri)
    return _LocalCatalog(CATALOG_NAME, uri=uri, warehouse=(lake / "warehouse").as_uri())


def _prepare(uri: str) -> None:
    """Make the file and its tables, or find them made: several processes may open a new lake at once.

    pyiceberg looks for its tables and then creates them, which two processes may both do, so that happens here, as the
    only writer.
    """
    engine = create_engine(uri)
    try:
        with engine.connect() as connection:
            _write_ahead(connection)
            if not set(inspect(connection).get_table_names()) >= _TABLES:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
                SqlCatalogBaseTable.metadata.create_all(connection)
                connection.commit()
    except SQLAlchemyError as failure:
        raise failure_of_catalog(uri.removeprefix("sqlite:///").partition("?")[0], failure) from failure
    finally:
        engine.dispose()


def _write_ahead(connection: Connection) -> None:
    """Have the file written ahead, which it remembers. SQLite fails at once where another does the same, so we wait."""
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
    """The names of all tables of a catalog, those in namespaces within namespaces among them, sorted."""
    found = {table for namespace in _namespaces(catalog, ()) for table in catalog.list_tables(namespace)}
    return sorted(".".join(name) for name in found)


def _namespaces(catalog: Catalog, within: Identifier) -> Iterator[Identifier]:
    for namespace in catalog.list_namespaces(within):
        yield namespace
        yield from _namespaces(catalog, namespace)
