"""Makes folders of Spark again that a cleaner of the temporary directory removed while they were empty.

Between two refreshes most of them are. Spark does not look whether they still exist, so that every later refresh of the
process would fail. Its sockets have no contents that grow old: their times are set, so that they are not old either.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import SparkSession

from foldhouse.spark.process import folder_of_spark

SOCKETS = ".*.sock"
"""The names of the sockets by which Java and Python reach one another."""
_BLOCKS = "blockmgr-"
_PARTS = 64
"""The default of `spark.diskStore.subDirectories`."""
_DEPTH = 2
_SEEN: dict[Path, set[Path]] = {}


def make_folders_again(session: SparkSession) -> None:
    """Make what is missing of the folders that Spark had when this was called before; of a session of foldhouse."""
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
        for one in folder.glob(SOCKETS):
            os.utime(one)


def _folders_in(folder: Path, depth: int) -> Iterator[Path]:
    for one in os.scandir(folder):
        if one.is_dir(follow_symlinks=False):
            yield Path(one.path)
            if depth > 1 and not one.name.startswith(_BLOCKS):
                yield from _folders_in(Path(one.path), depth - 1)
