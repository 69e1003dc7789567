"""Reads that notice a reply of a store that is too short.

If a proxy shortens the body of a reply together with its `Content-Length`, Arrow's client for S3 takes the rest of the
memory as it was before: the bytes of an earlier read, which may be a whole and valid page of another file. So the last
byte of the memory is set before each read. If it is unchanged afterwards, that byte is read again over another value.
"""

from __future__ import annotations

import errno
from typing import Any

from pyarrow import NativeFile

_UNSET, _OTHER = 0xFF, 0x00


def filled(stream: NativeFile, count: int, path: str) -> memoryview:
    """Return the next bytes of a file; fewer only at its end.

    Args:
        stream: the open file.
        count: how many bytes.
        path: of the file, for the message.

    Raises:
        OSError: the store gave fewer bytes than it said.
    """
    memory = memoryview(bytearray(max(0, min(count, stream.size() - stream.tell()))))
    if not memory:
        return memory
    memory[-1] = _UNSET
    found: int = stream.readinto(memory)
    if found < len(memory) or (memory[-1] == _UNSET and _last_is_unset(stream)):
        raise OSError(errno.EIO, "the store gave fewer bytes than it said", path)
    return memory


def _last_is_unset(stream: NativeFile) -> bool:
    last = bytearray([_OTHER])
    stream.seek(stream.tell() - 1)
    stream.readinto(last)
    return last[0] != _UNSET


class CompleteReads:
    """An open file for `pyarrow.PythonFile`, each read of which is complete.

    Args:
        stream: the open file.
        path: of the file, for the message.
    """

    def __init__(self, stream: NativeFile, path: str) -> None:
        self._stream, self._path = stream, path

    @property
    def closed(self) -> bool:
        """Whether the file is closed."""
        found: bool = self._stream.closed
        return found

    def read(self, count: int = -1) -> Any:
        """Return the next bytes; all that are left without a count."""
        return filled(self._stream, self._stream.size() if count < 0 else count, self._path)

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to a place in the file, and return it."""
        found: int = self._stream.seek(offset, whence)
        return found

    def tell(self) -> int:
        """Return the place of the next read."""
        found: int = self._stream.tell()
        return found

    def close(self) -> None:
        """Close the file."""
        self._stream.close()

    def readable(self) -> bool:
        """Whether it can be read."""
        return True

    def writable(self) -> bool:
        """Whether it can be written."""
        return False

    def seekable(self) -> bool:
        """Whether `seek` can be used."""
        return True
