"""Tables that a local catalog lost: found when a lake is opened, a table made or loaded, and refused by name.

A `catalog.db` that was deleted, emptied or restored from a backup knows less than the warehouse beside it. To go on
with it would begin new tables over old ones, without a word. `foldhouse register` mends it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping
from pathlib import Path

from foldhouse.errors import CorruptFile, LostTables
from foldhouse.storage.warehouse import TableFolder, folders, look_into, path_of, read, version_of, versions

CERTAIN = 2
"""Versions ahead of the catalog that no failed commit can leave: the second one was written on a first that landed."""
_NAMED = 5


def check_catalog(lake: Path, catalog_name: str) -> None:
    """Refuse a lake whose warehouse holds tables while its catalog knows none; nothing is written.

    Raises:
        LostTables: the catalog is missing or empty, and tables are there.
        CorruptFile: it is damaged or no database, and tables are there.
    """
    stored = list(folders(lake))  # before the catalog: a table that is being made is in it first
    known = known_tables(lake, catalog_name) if stored else None
    if known is None or known:
        return
    lost = [name for name, folder in stored if look_into(name, folder).has_snapshots]
    if lost:
        more = f" and {len(lost) - _NAMED} more" if len(lost) > _NAMED else ""
        was = "knows no table" if (lake / "catalog.db").is_file() else "is missing"
        raise LostTables(
            f"{lake / 'catalog.db'} {was}, and {lake / 'warehouse'} holds {', '.join(lost[:_NAMED])}{more}; "
            f"`foldhouse register --lake {lake}` has the catalog know them again, from the tables' own metadata"
        )


def known_tables(lake: Path, catalog_name: str) -> Mapping[str, str] | None:
    """Table -> metadata file, as `catalog.db` says; nothing if it is missing, `None` if it cannot be read at present.

    Raises:
        CorruptFile: it is damaged, or no SQLite database.
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
        return {} if "no such table" in str(failure) else None  # locked or unreadable: opening it says so
    except sqlite3.DatabaseError as failure:
        raise CorruptFile(
            f"{path} is damaged, or no SQLite database ({failure}); move it and its -wal and -shm files away, and run "
            f"`foldhouse register --lake {lake}`, which makes a new catalog from the tables' own metadata"
        ) from failure
    return {f"{namespace}.{name}": location or "" for namespace, name, location in rows}


def lost_table(name: str, folder: Path, known: Collection[str]) -> TableFolder | None:
    """What a folder holds of a table that no known metadata file is of, if that is anything.

    Args:
        name: of the table that is looked for.
        folder: where it would be.
        known: the metadata files that the catalog names, after the folder was looked into.
    """
    if not versions(folder) or any(path_of(one).parent.parent == folder for one in known):
        return None
    found = look_into(name, folder)
    return found if found.has_snapshots else None


def check_newest(name: str, metadata_location: str, uuid: str) -> None:
    """Refuse a table of which the catalog names an older metadata file than one that was committed.

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
                f"the catalog has {name} at metadata file {path.name}, and {one.name} is newer by {at - version} "
                f"commits: the catalog is of an older backup. `foldhouse register {name}` moves it forward; to stay "
                "at the older state, move the newer files away"
            )
