"""Folders for temporary files: of one process, readable by its user alone, and removed by the next one after a crash.

    <temporary directory>/foldhouse-run-k3x9a2/     0700, locked by the process that made it

A folder is made under a name that nobody can know before (`mkdtemp`), so that nobody can have put a link there. Its
process holds a lock on it, which the system lets go of however the process ends. Whoever makes a folder first removes
those whose lock is free.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "foldhouse-run-"
_ATTEMPTS = 100


@contextlib.contextmanager
def private_folder() -> Iterator[Path]:
    """A new folder that only this user can enter; gone afterwards, or, where the process is killed, with the next one.

    Folders of others, links, and folders that a process still holds are never touched.

    Raises:
        OSError: the temporary directory cannot be written to.
    """
    _remove_left(Path(tempfile.gettempdir()))
    path, lock = _made()
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _made() -> tuple[Path, int]:
    for _ in range(_ATTEMPTS):
        path = Path(tempfile.mkdtemp(prefix=PREFIX))
        lock = _locked(path)
        if lock is not None:
            return path, lock
    raise FileExistsError(f"no folder in {tempfile.gettempdir()} could be kept; something else removes them at once")


def _locked(path: Path) -> int | None:
    """A lock on a folder of this user that nobody else can enter; `None` where it is none, or somebody holds it."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        held = os.fstat(opened)
        if held.st_uid == os.geteuid() and stat.S_IMODE(held.st_mode) == 0o700:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(held, os.lstat(path)):  # nobody removed it in between
                return opened
    except OSError:
        pass
    os.close(opened)
    return None


def _remove_left(temporary: Path) -> None:
    """Remove the folders of processes that are gone."""
    try:
        names = [one.name for one in os.scandir(temporary) if one.name.startswith(PREFIX)]
    except OSError:  # a directory that may be written to and not listed
        return
    for name in names:
        path = temporary / name
        lock = _locked(path)
        if lock is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(lock)
