"""Private folders for the temporary files of one process; after a crash, a later process removes them.

    <temporary directory>/foldhouse-run-k3x9a2/     0700, locked by the process that created it

Only the user of the process can read the folder.

The name of a folder cannot be predicted (`mkdtemp`), so that nobody can have put a link there. Its process holds a lock
on the folder, which the system releases however the process ends. A process that creates a folder first removes the
folders whose lock is free.
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
REMOVED = (
    "a temporary file was removed while it was in use: {}. Nothing was committed; keep other programs away from the "
    "folder, or set TMPDIR to another, and run it again"
)
"""What an error says of a missing file in such a folder."""
_ATTEMPTS = 100


@contextlib.contextmanager
def private_folder() -> Iterator[Path]:
    """Create a folder that only this user can enter, and remove it afterwards.

    If the process is killed, the next call removes the folder. Folders of other users, links, and folders that a
    process still locks are never touched.

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
    # Another process may remove the new folder before it is locked.
    for _ in range(_ATTEMPTS):
        path = Path(tempfile.mkdtemp(prefix=PREFIX))
        lock = _locked(path)
        if lock is not None:
            return path, lock
    raise FileExistsError(
        f"a temporary folder in {tempfile.gettempdir()} could not be kept in {_ATTEMPTS} attempts: something else "
        "removes new folders at once; stop it, or set TMPDIR to another directory"
    )


def _locked(path: Path) -> int | None:
    """Lock a folder; `None` if it is not this user's private folder, or another process has locked it."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        # fstat describes the opened folder; the name may lead elsewhere by now.
        held = os.fstat(opened)
        if held.st_uid == os.geteuid() and stat.S_IMODE(held.st_mode) == 0o700:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(held, os.lstat(path)):  # no other process removed it in between
                return opened
    except OSError:
        pass
    os.close(opened)
    return None


def _remove_left(temporary: Path) -> None:
    """Remove the folders of processes that have ended."""
    try:
        names = [one.name for one in os.scandir(temporary) if one.name.startswith(PREFIX)]
    except OSError:  # a directory that can be written to but not listed
        return
    for name in names:
        path = temporary / name
        lock = _locked(path)
        if lock is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(lock)
