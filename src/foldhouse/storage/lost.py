"""Finds tables that a local catalog lost, when a lake is opened or a table is created or loaded.

A `catalog.db` that was deleted, emptied or restored from a backup knows fewer tables or older states than the warehouse
beside it. Using it would silently create new tables over old ones. `foldhouse register` repairs the catalog.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping
from pathlib import Path

from foldhouse.errors import CorruptCatalog, LostTables
from foldhouse.storage.warehouse import TableFolder, folders, look_into, path_of, read, version_of, versions

CERTAIN = 2
"""A file this many versions ahead of the catalog proves a lost commit: its predecessor must have landed."""
_NAMED = 5


def check_catalog(lake: Path, catalog_name: str) -> None:
    """Refuse a lake whose warehouse contains tables although its catalog knows none; nothing is written.

    Raises:
        LostTables: the catalog is missing or empty, but the warehouse contains tables.
        CorruptCatalog: the catalog is damaged or not a database, and the warehouse contains tables.
    """
    stored = list(folders(lake))  # listed before the catalog is read, so that a table created in between is no loss
    known = known_tables(lake, catalog_name) if stored else None
    if known is None or known:
        return
    lost = [name for name, folder in stored if look_into(name, folder).has_snapshots]
    if lost:
        more = f" and {len(lost) - _NAMED} more" if len(lost) > _NAMED else ""
        was = "knows no table" if (lake / "catalog.db").is_file() else "is missing"
        raise LostTables(
            f"{lake / 'catalog.db'} {was}, but {lake / 'warehouse'} contains {', '.join(lost[:_NAMED])}{more}; "
            f"run `foldhouse register --lake {lake}` to register them again from the tables' own metadata"
        )


def known_tables(lake: Path, catalog_name: str) -> Mapping[str, str] | None:
    """Return table -> metadata file from `catalog.db`; empty if it is missing, `None` if it cannot be read now.

    Raises:
        CorruptCatalog: `catalog.db` is damaged, or not a SQLite database.
    """
    path = lake / "catalog.db"
    if not path.is_file():
        return {}
    query = "SELECT table_namespace, table_name, metadata_location FROM iceberg_tables WHERE catalog_name = ?"
    try:
        connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=30)
        try:
            rows = connection.execute(query, (catalog_name,)).fetchall()
        finally:
            connection.close()
    except sqlite3.OperationalError as failure:
        return {} if "no such table" in str(failure) else None  # locked or unreadable: opening it raises
    except sqlite3.DatabaseError as failure:
        raise CorruptCatalog(
            f"{path} is damaged, or not a SQLite database ({failure}); move it and its -wal and -shm files away, and "
            f"run `foldhouse register --lake {lake}`, which creates a new catalog from the tables' own metadata"
        ) from failure
    return {f"{namespace}.{name}": location or "" for namespace, name, location in rows}


def lost_table(name: str, folder: Path, known: Collection[str]) -> TableFolder | None:
    """Return the contents of a table folder that no known metadata file belongs to, if it has snapshots.

    Args:
        name: of the table.
        folder: where the table's files would be.
        known: the metadata files that the catalog references, read after the folder was found.
    """
    if not versions(folder) or any(path_of(one).parent.parent == folder for one in known):
        return None
    found = look_into(name, folder)
    return found if found.has_snapshots else None


def check_newest(name: str, metadata_location: str, uuid: str) -> None:
    """Refuse a table if the catalog references an older metadata file than the newest committed one.

    Raises:
        LostTables: newer commits are on disk; the catalog was restored from a backup.
    """
    path = path_of(metadata_location)
    version = version_of(path)
    if version is None:
        return
    ahead = {one: at for one, at in versions(path.parent.parent).items() if at >= version + CERTAIN}
    for one, at in sorted(ahead.items(), key=lambda item: -item[1]):
        found = read(one, at)
        if not isinstance(found, str) and str(found.metadata.table_uuid) == uuid:
            raise LostTables(
                f"the catalog has {name} at metadata file {path.name}, but {one.name} is newer by {at - version} "
                f"commits: the catalog is from an older backup. Run `foldhouse register {name}` to move it forward; to "
                "stay at the older state, move the newer files away"
            )
