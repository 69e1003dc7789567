"""The one place where files of a table are deleted: those below its location, and none elsewhere.

A table's metadata is data that others write, too. A path in it may be anything, so it is looked at before it is
deleted: without its scheme, its `..` and, on this machine's disk, its symbolic links, it has to lie below the table's
location.
"""

from __future__ import annotations

import os
import posixpath
import re
from urllib.parse import unquote, urlsplit

from pyiceberg.io import FileIO
from pyiceberg.table import Table as IcebergTable

from foldhouse.storage.places import is_its_own

_ON_DISK = re.compile(r"^(file:)?/+")


def delete(iceberg: IcebergTable, path: str) -> bool:
    """Delete a file of a table, if it lies below the table's location.

    Returns:
        Whether it was there, and is gone now. One that cannot be deleted is left: nothing names it, so it is an orphan.
    """
    if not is_its_own(iceberg, path):
        return False
    try:
        iceberg.io.delete(path)
    except OSError:
        return False
    return True


def size_of(io: FileIO, path: str) -> int:
    """The bytes of a file; 0 where it cannot be told."""
    try:
        return len(io.new_input(path))
    except OSError:
        return 0


def plain(path: str) -> str:
    """A path that can be compared: `file:/x`, `file:///x` and `/x` are the same file, so is what a link points to."""
    if _ON_DISK.match(path):
        folder, name = os.path.split(on_disk(path))
        whole = os.path.join(os.path.realpath(folder), name)
        return os.path.realpath(whole) if name in ("..", ".") or os.path.islink(whole) else whole
    parts = urlsplit(path)
    return f"{parts.scheme}://{parts.netloc}{posixpath.normpath('/' + parts.path.lstrip('/'))}"


def on_disk(path: str) -> str:
    """The path on this machine's disk of a `file:` path or a bare one."""
    return _ON_DISK.sub("/", path)


def is_on_disk(path: str) -> bool:
    """Whether a path is one of this machine's disk."""
    return _ON_DISK.match(path) is not None


def spellings(path: str) -> set[str]:
    """A path as it can be compared, and the same with what is percent-encoded in it decoded."""
    return {plain(path), plain(unquote(path))}
