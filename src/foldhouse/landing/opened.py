"""A file of the landing folder, opened so that nothing but a regular file of that folder can be read."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

from foldhouse.errors import LandingError, UnreadableFile

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class Look(NamedTuple):
    """What a landing file looks like from outside.

    Args:
        name: of the file in its folder.
        size_bytes: its stored bytes.
        text: changes when the file does.
    """

    name: str
    size_bytes: int
    text: str


class Opened(Protocol):
    """A landing file that is open for reading."""

    size: int
    """Its stored bytes when it was opened."""
    way_out: str
    """What to do if it changed while it was read."""

    def read(self, size: int) -> bytes:
        """Return the next bytes, at most `size`; none at the end."""

    def is_whole(self, read_bytes: int) -> bool:
        """Whether the file is as it was when it was opened, and that many bytes are all of it."""


class _OpenedHere:
    """A regular file of this machine."""

    way_out = "write it under another name, rename it to this one when it is whole, and run its day again"

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path, self._descriptor, self._before = path, descriptor, os.fstat(descriptor)
        self.size = self._before.st_size

    def read(self, size: int) -> bytes:
        try:
            return os.read(self._descriptor, size)
        except OSError as error:
            found = f"cannot be read ({error.strerror})"
            raise refused(self._path, found, "see that it is there and may be read") from error

    def is_whole(self, read_bytes: int) -> bool:
        before, after = self._before, os.fstat(self._descriptor)
        return (
            (before.st_size, before.st_mtime_ns)
            == (after.st_size, after.st_mtime_ns)
            == (read_bytes, after.st_mtime_ns)
        )


@contextmanager
def opened_folder(folder: Path) -> Iterator[int]:
    """Open a landing folder, as a descriptor that its files are looked up in.

    Raises:
        LandingError: there is no such folder, or it may not be opened.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        found = f"landing folder {folder} cannot be listed ({getattr(error, 'strerror', error)})"
        raise LandingError(f"{found}; create it, or name the folder that holds the files") from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def opened_file(path: Path) -> Iterator[Opened]:
    """Open a regular file of a folder for reading, without waiting and without following a link.

    What the name stands for is looked at before the opening, because opening a device may act on it, and again at the
    opened file, because another file may have taken the name in between.

    Raises:
        LandingError: there is no such folder.
        UnreadableFile: the file is gone, may not be read, or is not a regular file.
    """
    with opened_folder(path.parent) as folder:
        try:
            _check_regular(path, os.stat(path.name, dir_fd=folder, follow_symlinks=False))
            descriptor = os.open(path.name, _FLAGS, dir_fd=folder)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise _not_regular(path, "a symbolic link") from None
            raise refused(path, f"cannot be read ({error.strerror})", "see that it is there and may be read") from error
    try:
        _check_regular(path, os.fstat(descriptor))
        yield _OpenedHere(path, descriptor)
    finally:
        os.close(descriptor)


def refused(path: Path | str, found: str, way_out: str) -> UnreadableFile:
    """Return the error for a file that is refused whole."""
    return UnreadableFile(f"{path} {found}; {way_out}. Nothing of it was landed")


def _check_regular(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise _not_regular(path, _KINDS.get(stat.S_IFMT(status.st_mode), "not a regular file"))


def _not_regular(path: Path, kind: str) -> UnreadableFile:
    return refused(path, f"is {kind}", "landing reads regular files only: land a file in its place, or remove it")
