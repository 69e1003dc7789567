"""Opens a SQLite file for writing, or, if its folder is read-only, for reading."""

from __future__ import annotations

import os
import sqlite3
import stat
from pathlib import Path
from urllib.parse import parse_qsl, quote

from sqlalchemy import URL, Connection
from sqlalchemy.exc import SQLAlchemyError

from foldhouse.errors import CorruptCatalog, FoldhouseError, StorageError

_SHOWN_BYTES = 16
# A lock and a missing table raise the same class, OperationalError, so the messages tell them apart.
_NOT_A_DATABASE = ("not a database", "malformed", "no such table", "no such column", "unsupported file format")


def is_read_only(file: Path) -> bool:
    """Whether a file exists and cannot be written, because of its permissions or a read-only disk."""
    # SQLite creates its -wal and -shm files in the folder, so the folder must be writable too.
    return file.exists() and not (os.access(file, os.W_OK) and os.access(file.parent, os.W_OK))


def check_is_database(file: Path) -> None:
    """Refuse a file that is not a SQLite database; a missing or empty file passes, because opening it creates one.

    Raises:
        CorruptCatalog: the file has other contents.
        StorageError: the file cannot be read.
    """
    try:
        is_file = stat.S_ISREG(file.stat().st_mode)
        if not is_file or not os.access(file, os.R_OK):
            raise StorageError(f"{file} cannot be read; check that it is a file, its permissions and its disk")
        if not _is_foreign(file):
            return
        with file.open("rb") as source:
            found = source.read(_SHOWN_BYTES)
    except FileNotFoundError:
        return
    except OSError as failure:
        raise StorageError(
            f"{file} cannot be read: {failure.strerror or failure}; check its permissions and its disk"
        ) from failure
    raise CorruptCatalog(
        f"{file} is not a SQLite database: it begins with {found!r}. Nothing was changed; restore the file from a "
        "backup, or move it away and run `foldhouse register`"
    )


def _is_foreign(file: Path) -> bool:
    """Whether SQLite finds another kind of file. Other failures are reported when the catalog is opened."""
    # Only SQLite may open a database: when this process closes a file, it loses all its locks on that file. Another
    # process would then delete the write-ahead log in use, and commits would be lost.
    try:
        connection = sqlite3.connect(f"file:{quote(str(file))}?mode=ro", uri=True)
        try:
            connection.execute("PRAGMA schema_version").fetchone()
        finally:
            connection.close()
    except sqlite3.Error as failure:
        return failure.sqlite_errorcode == sqlite3.SQLITE_NOTADB
    return False


def address(file: Path, busy_seconds: int) -> str:
    """Return the URL of a database for SQLAlchemy.

    Args:
        file: the database.
        busy_seconds: how long to wait for another writer.

    Raises:
        StorageError: the file is read-only, and has commits that cannot be read without writing.
    """
    if not is_read_only(file):
        return _rendered(str(file), timeout=busy_seconds)
    plain = f"file:{quote(str(file))}?mode=ro"
    if not _can_be_read(plain):
        # The way out, `immutable=1`, ignores the write-ahead log and would hide the commits in it.
        if (log := file.with_name(f"{file.name}-wal")).exists() and log.stat().st_size:
            raise StorageError(
                f"{file} is read-only, and its newest commits are still in {log.name}, which SQLite cannot read "
                "without writing; open the lake once where it is writable, and copy it again"
            )
        plain += "&immutable=1"
    named, _, options = plain.partition("?")
    return _rendered(named, **dict(parse_qsl(options)), uri="true", timeout=busy_seconds)


def _rendered(database: str, **query: object) -> str:
    """Return the URL of a database whose path may contain any character; a `?` in it does not begin options."""
    told = {name: str(value) for name, value in query.items()}
    return URL.create("sqlite", database=database, query=told).render_as_string()


def _can_be_read(uri: str) -> bool:
    try:
        connection = sqlite3.connect(uri, uri=True)
    except sqlite3.Error:
        return False
    try:
        # SQLite opens the file at the first query, not in `connect`.
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error:
        return False
    finally:
        connection.close()
    return True


def failure_of_catalog(name: str, failure: Exception) -> FoldhouseError:
    """Translate an error of SQLAlchemy or SQLite about a catalog into an error of foldhouse."""
    said = " ".join(str(getattr(failure, "orig", None) or failure).split())
    if not isinstance(getattr(failure, "orig", failure), sqlite3.Error | SQLAlchemyError | None):
        return StorageError(
            f"{name}: the catalog's database refused: {said}. Check that its server runs. A commit is whole or absent: "
            "run it again; a commit that landed is not repeated"
        )
    if any(text in said for text in _NOT_A_DATABASE):
        return CorruptCatalog(
            f"{name}: the catalog is damaged: {said}. Nothing was written; restore `catalog.db` from a backup, "
            "or move it away and run `foldhouse register`: the tables below `warehouse` do not depend on it"
        )
    if "locked" in said or "busy" in said:
        return StorageError(
            f"{name}: the catalog cannot be used: {said}. Another process has held it for 30 s; wait, and run it again"
        )
    if "readonly" in said:
        return StorageError(f"{name}: the catalog is read-only: {said}. Nothing was written; the lake can only be read")
    return StorageError(f"{name}: the catalog cannot be used: {said}; check the file and its disk")


def check_whole(connection: Connection, location: str, table: tuple[str, str]) -> None:
    """Before a table is created, refuse a damaged catalog, and a location that belongs to a registered table.

    A changed bit can hide a table, or change its name. A new, empty table would then replace it, and its rows would be
    lost.

    Args:
        connection: to the catalog.
        location: of the new table.
        table: its namespace and name. Another process may create the same table meanwhile, which is no error.

    Raises:
        CorruptCatalog: the catalog is damaged, or another table is at this location.
    """
    found = connection.exec_driver_sql("PRAGMA integrity_check").scalar()
    if found != "ok":
        raise CorruptCatalog(
            f"the catalog is damaged: {found}. Nothing was written; restore `catalog.db` from a backup"
        )
    # NOT INDEXED reads the rows of the table, and a damaged index cannot hide one.
    rows = connection.exec_driver_sql(
        "SELECT table_namespace, table_name, metadata_location FROM iceberg_tables NOT INDEXED"
    )
    for namespace, name, metadata in rows:
        if str(metadata).startswith(f"{location}/") and (namespace, name) != table:
            raise CorruptCatalog(
                f"{location} already contains the table {namespace}.{name}: it was renamed, or the catalog is damaged. "
                "Nothing was written; restore `catalog.db` from a backup, or choose another name for the new table"
            )
