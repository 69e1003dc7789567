"""Whether the catalog has an older state of a table that a process is about to change for the first time.

A server's catalog that was restored from an older backup has its tables, and nothing in them says so. The store does:

- The log of a table's metadata has a limit. Once it is full, each commit deletes the oldest metadata file in it. So if
  the oldest file of the current log is missing, a later commit was there.
- A table whose log is not full yet has few files. They are listed.

So this costs one request to the store for each table that a process changes. A missing file alone proves nothing,
because a forget deletes old metadata too. Then the files are listed, and those of later commits are the proof.
"""

from __future__ import annotations

import contextlib
import time

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table as IcebergTable

from foldhouse.errors import LostTables
from foldhouse.storage import went_back
from foldhouse.storage.catalog import is_local
from foldhouse.storage.occupied import check_is_newest, names_in
from foldhouse.storage.places import is_its_own

_FOUND_NEWEST = "_foldhouse_found_newest"
_DELETES = "write.metadata.delete-after-commit.enabled"
_LIMIT = "write.metadata.previous-versions-max"


def check_is_not_behind(iceberg: IcebergTable) -> None:
    """Before the first change of a table in this process, refuse it if the store has later commits of it.

    A store that refuses the question is no reason to refuse the change.

    Raises:
        LostTables: the catalog is from a backup that is two or more commits older. Nothing was written.
    """
    catalog, io = iceberg.catalog, iceberg.io
    seen: set[tuple[str, ...]] = vars(catalog).setdefault(_FOUND_NEWEST, set())
    key = *iceberg.name(), str(iceberg.metadata.table_uuid)
    if key in seen or is_local(catalog) or not isinstance(io, PyArrowFileIO):
        return
    folder = iceberg.metadata_location.rpartition("/")[0]
    names: list[str] = []
    with contextlib.suppress(OSError, ValueError):  # refused, or of a scheme that Arrow cannot list
        if iceberg.metadata.snapshots and _may_be_behind(iceberg):
            names = names_in(io, folder)
    if names:
        with contextlib.suppress(NoSuchTableError):  # another process dropped it; the commit says so
            _check_names(iceberg, [f"{folder}/{one}" for one in names])
    seen.add(key)


def _check_names(iceberg: IcebergTable, paths: list[str]) -> None:
    """Compare the files with the table, loaded after they were listed: another writer may commit meanwhile.

    As in `went_back`, a server may answer from a copy that is a moment old.
    """
    *first, last = went_back.WAITS_SECONDS
    for seconds in first:
        time.sleep(seconds)
        with contextlib.suppress(LostTables):
            return check_is_newest(iceberg.catalog.load_table(iceberg.name()), paths, "committed")
    time.sleep(last)
    return check_is_newest(iceberg.catalog.load_table(iceberg.name()), paths, "committed")


def _may_be_behind(iceberg: IcebergTable) -> bool:
    """Whether the files have to be listed: the log is not full, or its oldest file is gone."""
    log, given = iceberg.metadata.metadata_log, iceberg.properties
    limit = given.get(_LIMIT, "100")
    if not log or not limit.isdecimal() or len(log) < int(limit):
        return True
    if given.get(_DELETES, "false").lower() != "true":
        return False  # then no file is ever deleted, and there may be any number of them
    oldest = log[0].metadata_file
    return not is_its_own(iceberg, oldest) or not iceberg.io.new_input(oldest).exists()
