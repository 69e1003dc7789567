"""The folder of this user in which later processes find what an earlier one made: `~/.cache/foldhouse`.

What is in it decides what a process runs, so nothing is used that another user could have written.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

_ROOT = 0


def cache_folder() -> Path | None:
    """Return `$XDG_CACHE_HOME/foldhouse`, by default `~/.cache/foldhouse`; `None` for a user without a home."""
    given = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(given) if given else Path.home() / ".cache") / "foldhouse"
    except RuntimeError:
        return None


def is_own(path: Path, kind: int) -> bool:
    """Whether a path, not a link, is of this user or of root, and nobody else can write to it.

    Args:
        path: of a file or folder.
        kind: what it has to be: `stat.S_IFDIR` or `stat.S_IFREG`.
    """
    try:
        found = path.lstat()
    except OSError:
        return False
    is_kind = stat.S_IFMT(found.st_mode) == kind
    return is_kind and found.st_uid in (_ROOT, os.geteuid()) and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
