"""Keeps what Spark has in the temporary directory from a cleaner: empty folders are made again, sockets stay new.

Between two refreshes most folders are empty. Spark does not look whether they still exist, so that every later refresh
of the process would fail. Its sockets are as old as its session, and a cleaner may remove what is old.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import SparkSession

from foldhouse.spark.process import folder_of_spark

_SOCKETS = ".*.sock"
"""The names of the sockets by which Java and Python reach one another."""
_BLOCKS = "blockmgr-"
_PARTS = 64
"""The default of `spark.diskStore.subDirectories`."""
_DEPTH = 2
_SEEN: dict[Path, set[Path]] = {}


def make_folders_again(session: SparkSession) -> None:
    """Make what is missing of the folders that Spark had when this was called before, and set the times of its sockets.

    Args:
        session: of foldhouse; nothing is done for another one.
    """
    context = getattr(session, "sparkContext", None) if hasattr(session, "_jsparkSession") else None
    folder = folder_of_spark()
    if context is None or not str(getattr(context, "_temp_dir", "")).startswith(f"{folder}{os.sep}"):
        return
    seen = _SEEN.setdefault(folder, {Path(str(context._temp_dir))})
    with contextlib.suppress(OSError):  # a full disk, say: Spark's own error says so
        for path in sorted(seen):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if path.name.startswith(_BLOCKS) and len(os.listdir(path)) < _PARTS:
                for number in range(_PARTS):
                    (path / f"{number:02x}").mkdir(exist_ok=True)
        seen |= set(_folders_in(folder, _DEPTH))
        for one in folder.glob(_SOCKETS):
            os.utime(one)


def _folders_in(folder: Path, depth: int) -> Iterator[Path]:
    for one in os.scandir(folder):
        if one.is_dir(follow_symlinks=False):
            yield Path(one.path)
            if depth > 1 and not one.name.startswith(_BLOCKS):
                yield from _folders_in(Path(one.path), depth - 1)
