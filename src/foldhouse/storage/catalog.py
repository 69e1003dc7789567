"""The catalog of a local lake: SQLite, safe for several processes; and what a catalog holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.typedef import Identifier
from sqlalchemy import event

CATALOG_NAME = "foldhouse"
_BUSY_SECONDS = 30


def open_local_catalog(lake: Path) -> SqlCatalog:
    """Open, or create, the catalog `catalog.db` of a lake folder, with its warehouse beside it.

    SQLite waits up to 30 s for another writer and writes ahead, so that readers do not block.

    Args:
        lake: the lake's folder; created where missing.
    """
    lake = lake.resolve()
    (lake / "warehouse").mkdir(parents=True, exist_ok=True)
    catalog = SqlCatalog(
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
