"""Says which folder and which disk it is when Dagster's records cannot be written, and what to do.

SQLite says "database or disk is full" or "disk I/O error", and names no file. The records are in `$DAGSTER_HOME`,
which is often on another disk than the lake.
"""

import errno
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_tb

from sqlalchemy.exc import SQLAlchemyError

from foldhouse.errors import StorageError

ALMOST_FULL_BYTES = 16 * 2**20
_MIB = 2**20
_WAY_OUT = "Make room on it, or set DAGSTER_HOME to a folder on another disk"
_OF_THE_DISK = ("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_CANTOPEN")
_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}
_STORAGES = ("dagster._core.storage.", "foldhouse.dagster.event_log")


@contextmanager
def naming_the_disk(folder: Path) -> Iterator[None]:
    """Translate an error of a disk about Dagster's records; any other error passes.

    Args:
        folder: where the records are.

    Raises:
        StorageError: the disk of the folder is full, read-only or damaged.
    """
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error, OSError) as failure:
        said = explained(folder, failure)
        if said is None:
            raise
        raise StorageError(said) from failure


def explained(folder: Path, failure: BaseException) -> str | None:
    """Return what to tell a person of an error, if it is one of the disk of Dagster's records."""
    if isinstance(failure, StorageError):
        return str(failure)
    return _message(folder, failure) if _is_of_disk(failure) and _is_of_records(failure) else None


def almost_full(folder: Path) -> str | None:
    """Return a sentence about the disk of a folder if Dagster's records will soon not fit on it."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return None
    if free >= ALMOST_FULL_BYTES:
        return None
    return f"the disk of Dagster's records, {folder}, is almost full: {_disk_of(folder)}. {_WAY_OUT}"


def _message(folder: Path, failure: BaseException) -> str:
    said = " ".join(str(getattr(failure, "orig", None) or failure).split())
    return (
        f"Dagster's records in {folder} cannot be written: {said}; {_disk_of(folder)}. {_WAY_OUT}. What is "
        "committed to the lake stays: run it again"
    )


def _disk_of(folder: Path) -> str:
    there = folder.absolute()
    while not there.exists() or not os.path.ismount(there):
        if there == there.parent:
            break
        there = there.parent
    try:
        usage = shutil.disk_usage(there)
    except OSError as failure:
        return f"the disk at {there} cannot be asked how full it is: {failure.strerror}"
    return f"{usage.free / _MIB:,.1f} of {usage.total / _MIB:,.0f} MiB are free on the disk at {there}"


def _is_of_disk(failure: BaseException) -> bool:
    if isinstance(failure, OSError):
        return failure.errno in _ERRNOS
    cause = getattr(failure, "orig", None) or failure
    return str(getattr(cause, "sqlite_errorname", "")).startswith(_OF_THE_DISK)


def _is_of_records(failure: BaseException) -> bool:
    """Whether an error was raised by a storage of Dagster, and not by the code of an asset."""
    frames = walk_tb(failure.__traceback__)
    return any(str(frame.f_globals.get("__name__", "")).startswith(_STORAGES) for frame, _ in frames)
