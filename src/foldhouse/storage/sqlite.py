"""How a SQLite file is opened: for writing, or where its folder is read-only, for reading."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from urllib.parse import quote

from foldhouse.errors import CorruptFile, StorageError

_MAGIC = b"SQLite format 3\x00"


def is_read_only(file: Path) -> bool:
    """Whether a file is there and cannot be written: by its permissions, or because its disk is mounted so."""
    return file.exists() and not (os.access(file, os.W_OK) and os.access(file.parent, os.W_OK))


def check_is_database(file: Path) -> None:
    """Refuse a file that is no SQLite database, and one that was emptied; a missing one is made by who opens it.

    Raises:
        CorruptFile: it holds something else.
        StorageError: it cannot be read.
    """
    try:
        with file.open("rb") as source:
            found = source.read(len(_MAGIC))
    except FileNotFoundError:
        return
    except OSError as failure:
        raise StorageError(f"{file} cannot be read: {failure.strerror or failure}") from failure
    if not found and not any((file.parent / "warehouse").glob("*")):
        return  # a lake that another process is making
    if found != _MAGIC:
        held = "is empty" if not found else f"begins with {found!r}"
        raise CorruptFile(
            f"{file} is no SQLite database: it {held}. Nothing was changed; restore the file from a backup. The tables "
            "below `warehouse` are whole without it, and can be registered again"
        )


def address(file: Path, busy_seconds: int) -> str:
    """The address of a database for SQLAlchemy.

    Args:
        file: the database.
        busy_seconds: how long to wait for another writer.

    Raises:
        StorageError: it is read-only, and holds commits that cannot be read without writing.
    """
    if not is_read_only(file):
        return f"sqlite:///{file}?timeout={busy_seconds}"
    plain = f"file:{quote(str(file))}?mode=ro"
    if not _can_be_read(plain):
        if (log := file.with_name(f"{file.name}-wal")).exists() and log.stat().st_size:
            raise StorageError(
                f"{file} is read-only, and its newest commits are still in {log.name}, which SQLite cannot read "
                "without writing: open the lake once where it is writable, and copy it again"
            )
        plain += "&immutable=1"
    return f"sqlite:///{plain}&uri=true&timeout={busy_seconds}"


def _can_be_read(uri: str) -> bool:
    try:
        connection = sqlite3.connect(uri, uri=True)
    except sqlite3.Error:
        return False
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error:
        return False
    finally:
        connection.close()
    return True
