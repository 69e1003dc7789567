"""A folder of an example's own: made from scratch each time, and never one that something else made."""

from __future__ import annotations

import fcntl
import shutil
import sys
from pathlib import Path
from typing import TextIO

MARKER = ".made-by-the-foldhouse-demo"


def made_anew(folder: Path) -> TextIO:
    """Make the folder, or empty it if an example made it; git leaves alone what is in it.

    Returns:
        The marker, locked as long as it is open, so that two runs do not share a folder.

    Raises:
        SystemExit: something else made the folder, or an example is running in it.
    """
    if folder.exists() and any(folder.iterdir()) and not (folder / MARKER).exists():
        sys.exit(f"error: {folder} was not made by this example; move it away, or give another --folder")
    folder.mkdir(parents=True, exist_ok=True)
    marker = (folder / MARKER).open("a")
    try:
        fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(f"error: this example is running in {folder} already; wait for it, or give another --folder")
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        elif entry.name != MARKER:
            entry.unlink()
    (folder / ".gitignore").write_text("*\n")
    return marker
