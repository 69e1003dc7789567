"""Files of a store that are kept in memory or open, because each read of a store costs a request.

Only files with a digest in their names: they never change.

| what | kept | at most |
|---|---|---|
| a file up to 1 MiB | when it is written or read | 64 MiB |
| a file up to 8 MiB | when it is written | of the same 64 MiB |
| a part up to 4 MiB of a larger file | when it is read | 16 MiB |
| a larger file | open, after it was opened | 256 files |
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import NativeFile
from pyarrow.fs import FileSystem

from foldhouse.storage.cache import WeightedCache
from foldhouse.storage.decoded import DECODED
from foldhouse.storage.integrity import digest_in

SMALL_BYTES = 1 << 20
"""Files of up to this size are read whole and kept."""
WRITTEN_BYTES = 8 << 20
"""Files of up to this size are kept when they are written: the next refresh of a bucket reads what this one wrote."""
KEPT_BYTES = 64 << 20
"""The total size of the files that are kept."""
PART_BYTES = 4 << 20
"""Parts of up to this size are kept when they are read, such as some columns of a row group."""
PARTS_BYTES = 16 << 20
"""The total size of the parts that are kept. Reading a whole table replaces them, and leaves the files."""
_MOST_HANDLES = 256
"""How many larger files are kept open; one of S3 holds nothing but its size and its client."""


class Kept:
    """The contents of files, by the place of the store and the path.

    Files above `SMALL_BYTES` go first, and then the oldest use: many large buckets do not push out the manifests.
    """

    def __init__(self) -> None:
        self._small: OrderedDict[tuple[str, str], pa.Buffer] = OrderedDict()
        self._large: OrderedDict[tuple[str, str], pa.Buffer] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, key: tuple[str, str]) -> pa.Buffer | None:
        """Return the contents of a file, if they are kept."""
        with self._lock:
            for held in (self._small, self._large):
                if key in held:
                    held.move_to_end(key)
                    return held[key]
        return None

    def put(self, key: tuple[str, str], contents: pa.Buffer) -> None:
        """Keep the contents of a file, if its name has a digest and it is not too large."""
        if contents.size > WRITTEN_BYTES or digest_in(key[1]) is None:
            return
        held = self._small if contents.size <= SMALL_BYTES else self._large
        with self._lock:
            if key not in held:
                held[key] = contents
                self._bytes += contents.size
            while self._bytes > KEPT_BYTES:
                self._bytes -= (self._large or self._small).popitem(last=False)[1].size

    def drop(self, key: tuple[str, str]) -> None:
        """Keep a file no longer."""
        with self._lock:
            for held in (self._small, self._large):
                if key in held:
                    self._bytes -= held.pop(key).size

    def clear(self) -> None:
        """Keep nothing."""
        with self._lock:
            self._small.clear()
            self._large.clear()
            self._bytes = 0


@dataclass(frozen=True)
class Handle:
    """An open file, whose size the store was asked for, with the file system and so the credentials of that time."""

    opened: NativeFile
    of: FileSystem


class Handles:
    """The files that were opened last: a footer and the rows of a file are read one after the other."""

    def __init__(self) -> None:
        self._held: OrderedDict[tuple[str, str], Handle] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: tuple[str, str], of: FileSystem) -> Handle | None:
        """Return an open file, if it was opened by this file system."""
        with self._lock:
            found = self._held.get(key)
            return found if found is not None and found.of is of else None

    def put(self, key: tuple[str, str], handle: Handle) -> None:
        """Keep a file open."""
        with self._lock:
            self._held[key] = handle
            self._held.move_to_end(key)
            while len(self._held) > _MOST_HANDLES:
                self._held.popitem(last=False)

    def drop(self, key: tuple[str, str]) -> None:
        """Keep a file no longer."""
        with self._lock:
            self._held.pop(key, None)

    def clear(self) -> None:
        """Keep nothing."""
        with self._lock:
            self._held.clear()


KEPT = Kept()
HANDLES = Handles()
PARTS: WeightedCache[memoryview] = WeightedCache(PARTS_BYTES, len)
"""Parts of larger files, by the place of the store, the path, the first byte and the number of bytes."""


def forget_files() -> None:
    """Keep no file of a store in memory, none open, and no decoded column."""
    DECODED.clear()
    KEPT.clear()
    HANDLES.clear()
    PARTS.clear()
