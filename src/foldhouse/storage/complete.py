"""Reads that notice a reply of a store that is too short.

If a proxy shortens the body of a reply together with its `Content-Length`, Arrow's client for S3 takes the rest of the
memory as it was before: the bytes of an earlier read, which may be a whole and valid page of another file. So the last
byte of the memory is set before each read. If it is unchanged afterwards, that byte is read again over another value.
"""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Callable

from pyarrow import NativeFile

from foldhouse.storage.threads import in_threads

Read = Callable[[int, int], memoryview]
_UNSET, _OTHER = 0xFF, 0x00
_AT_ONCE_BYTES = 16 << 20
"""What one request reads; the parts of a larger read are requested at the same time."""


def filled(handle: NativeFile, at: int, count: int, path: str) -> memoryview:
    """Return the bytes of a file from a place on; fewer than asked for only at its end.

    Args:
        handle: the open file. Its own place does not matter and stays, so several threads can share it.
        at: the first byte.
        count: how many bytes.
        path: of the file, for the message.

    Raises:
        OSError: the store gave fewer bytes than it said.
    """
    memory = memoryview(bytearray(max(0, min(count, handle.size() - at))))
    parts = [(start, memory[start : start + _AT_ONCE_BYTES]) for start in range(0, len(memory), _AT_ONCE_BYTES)]
    if len(parts) == 1:
        _fill(handle, at, memory, path)
    else:
        in_threads(lambda part: _fill(handle, at + part[0], part[1], path), parts)
    return memory


def _fill(handle: NativeFile, at: int, memory: memoryview, path: str) -> None:
    memory[-1] = _UNSET
    found = handle.get_stream(at, len(memory)).readinto(memory)
    if found == len(memory) and memory[-1] == _UNSET:
        last = bytearray([_OTHER])
        found -= handle.get_stream(at + len(memory) - 1, 1).readinto(last) != 1 or last[0] != _UNSET
    if found < len(memory):
        raise OSError(errno.EIO, "the store gave fewer bytes than it said", path)


def _filled(handle: NativeFile, path: str, at: int, count: int) -> memoryview:
    return filled(handle, at, count, path)


class CompleteReads:
    """An open file for `pyarrow.PythonFile`, each read of which is complete.

    Several of them can share one handle, for which the store was asked for the size once. Closing one of them leaves
    the handle open.

    Args:
        handle: the open file.
        path: of the file, for the message.
        read: reads a number of bytes from a place on, instead of `filled`.
    """

    def __init__(self, handle: NativeFile, path: str, read: Read | None = None) -> None:
        self._read = read or functools.partial(_filled, handle, path)
        self._size: int = handle.size()
        self._at = 0
        self.closed = False

    def read(self, count: int = -1) -> memoryview:
        """Return the next bytes; all that are left without a count."""
        found = self._read(self._at, self._size if count < 0 else count)
        self._at += len(found)
        return found

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to a place in the file, and return it."""
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        """Return the place of the next read."""
        return self._at

    def close(self) -> None:
        """Read no more."""
        self.closed = True

    def readable(self) -> bool:
        """Whether it can be read."""
        return True

    def writable(self) -> bool:
        """Whether it can be written."""
        return False

    def seekable(self) -> bool:
        """Whether `seek` can be used."""
        return True
