"""The only module that deletes files of a table: those below its location, and no others.

A table's metadata is data that others can write too, so a path in it may be anything. A path is checked before it is
deleted. It must lead below the table's location. Local symbolic links are resolved; `..` in other stores is refused.
"""

from __future__ import annotations

import os
import posixpath
from urllib.parse import unquote, urlsplit

from pyiceberg.io import FileIO
from pyiceberg.table import Table as IcebergTable

from foldhouse.storage.decoded import DECODED
from foldhouse.storage.places import ON_DISK, is_its_own


def delete(iceberg: IcebergTable, path: str) -> bool:
    """Delete a file of a table if it is below the table's location.

    Returns:
        Whether the file existed and was deleted. A file that cannot be deleted stays as an orphan.
    """
    if not is_its_own(iceberg, path):
        return False
    DECODED.forget(path)
    try:
        iceberg.io.delete(path)
    except OSError:
        return False
    return True


def size_of(io: FileIO, path: str) -> int:
    """Return the size of a file in bytes; 0 if it is not known."""
    try:
        return len(io.new_input(path))
    except OSError:
        return 0


def plain(path: str) -> str:
    """Normalise a path for comparison: `file:/x`, `file:///x` and `/x` become equal, and links are resolved."""
    if ON_DISK.match(path):
        folder, name = os.path.split(on_disk(path))
        whole = os.path.join(os.path.realpath(folder), name)
        return os.path.realpath(whole) if name in ("..", ".") or os.path.islink(whole) else whole
    parts = urlsplit(path)
    return f"{parts.scheme}://{parts.netloc}{posixpath.normpath('/' + parts.path.lstrip('/'))}"


def on_disk(path: str) -> str:
    """Return the local path of a `file:` path or of a path without a scheme."""
    return ON_DISK.sub("/", path)


def spellings(path: str) -> set[str]:
    """Return a path normalised for comparison, as it is and with its percent-encoding decoded."""
    return {plain(path), plain(unquote(path))}
