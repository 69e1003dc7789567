"""The catalog of a local lake: SQLite, safe for several processes; and what a catalog holds."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import Identifier
from sqlalchemy import event

CATALOG_NAME = "foldhouse"
_BUSY_SECONDS = 30
_MOST_KNOWN = 64


class _LocalCatalog(SqlCatalog):
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
        metadata = self._known.get(location)
        if metadata is None:
            loaded = super()._convert_orm_to_iceberg(orm_table)
            self._remember(location, loaded.metadata)
            return loaded
        name = (*Catalog.identifier_to_tuple(orm_table.table_namespace), orm_table.table_name)
        return Table(name, metadata, location, self._load_file_io(metadata.properties, location), self)

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
        lake: the lake's folder; created where missing.
    """
    lake = lake.resolve()
    (lake / "warehouse").mkdir(parents=True, exist_ok=True)
    catalog = _LocalCatalog(
        CATALOG_NAME,
        uri=f"sqlite:///{lake / 'catalog.db'}?timeout={_BUSY_SECONDS}",
        warehouse=(lake / "warehouse").as_uri(),
    )

    @event.listens_for(catalog.engine, "connect")
    def _write_ahead(connection, _record):  # type: ignore[no-untyped-def]
        connection.execute("PRAGMA journal_mode=WAL")

    catalog.engine.dispose()
    return catalog


def table_names(catalog: Catalog) -> list[str]:
    """The names of all tables of a catalog, those in namespaces within namespaces among them, sorted."""
    found = {table for namespace in _namespaces(catalog, ()) for table in catalog.list_tables(namespace)}
    return sorted(".".join(name) for name in found)


def _namespaces(catalog: Catalog, within: Identifier) -> Iterator[Identifier]:
    for namespace in catalog.list_namespaces(within):
        yield namespace
        yield from _namespaces(catalog, namespace)
