"""Columns of data files that stay in memory, decoded: refreshes pick rows from the same files again and again.

Only columns of files with a digest in their names are kept, because these files never change, and no nested ones, which
Arrow cannot always put together.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from foldhouse.storage.integrity import digest_in

_ENTRY_BYTES = 4096
"""What Python and Arrow need for a kept column besides its values."""
_MOST_ASKED = 32_768
_FOUND, _MISSED, _STALE = 4, 1, 8
"""A column is stale once the others were found twice each, or eight times as many as are kept were missed."""


class Label(NamedTuple):
    """A column of a file, by its name in the file, and whether it is decoded as a dictionary and places in it."""

    path: str
    name: str
    in_dictionary: bool


@dataclass
class _Column:
    table: pa.Table
    size_bytes: int
    used: int


class DecodedColumns:
    """Label -> all values of the column, as a table of one column in one chunk; threads may share it.

    A column is kept when it is read for the second time, so that a process which ends after one refresh keeps nothing.
    Where there is no room, the column that was used longest ago goes, but only if it is stale. Refreshes read the same
    columns in turn: if more than there is room for, the one used longest ago is just the one that is needed next.
    """

    def __init__(self) -> None:
        self._held: OrderedDict[Label, _Column] = OrderedDict()
        self._of_file: defaultdict[str, set[Label]] = defaultdict(set)
        self._asked: OrderedDict[Label, None] = OrderedDict()
        self._bytes = 0
        self._clock = 0
        self._lock = threading.Lock()

    def get(self, label: Label) -> pa.Table | None:
        """Return a column if it is kept."""
        with self._lock:
            found = self._held.get(label)
            if found is None:
                return None
            self._clock += _FOUND
            found.used = self._clock
            self._held.move_to_end(label)
            return found.table

    def offer(self, label: Label, column: pa.Table, most_bytes: int) -> None:
        """Keep a column that was read, if it was read before, can be kept, and there is room.

        Args:
            label: of the column.
            column: a table of it alone, with all rows of the file.
            most_bytes: the most that all kept columns take from now on.
        """
        kind = column.schema.field(0).type
        if digest_in(label.path) is None or pa.types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType):
            return
        with self._lock:
            self._clock += _MISSED
            while self._bytes > most_bytes:
                self._drop(next(iter(self._held)))
            if label not in self._asked:
                self._asked[label] = None
                if len(self._asked) > _MOST_ASKED:
                    self._asked.popitem(last=False)
                return
            if label in self._held or not self._makes_room(column.nbytes + _ENTRY_BYTES, most_bytes):
                return
        column = column.combine_chunks()  # without the lock: it copies all values
        size = column.get_total_buffer_size() + _ENTRY_BYTES
        with self._lock:
            if label not in self._held and self._makes_room(size, most_bytes):
                self._held[label] = _Column(column, size, self._clock)
                self._of_file[label.path].add(label)
                self._bytes += size

    def _makes_room(self, size: int, most_bytes: int) -> bool:
        """Drop stale columns, the oldest first, until there is room; return whether there is."""
        while self._held and self._bytes + size > most_bytes:
            label, oldest = next(iter(self._held.items()))
            if self._clock - oldest.used <= _STALE * len(self._held):
                return False
            self._drop(label)
        return size <= most_bytes

    def _drop(self, label: Label) -> None:
        self._bytes -= self._held.pop(label).size_bytes
        self._of_file[label.path].remove(label)
        if not self._of_file[label.path]:
            del self._of_file[label.path]

    @property
    def size_bytes(self) -> int:
        """What all kept columns take."""
        return self._bytes

    def forget(self, path: str) -> None:
        """Keep no columns of a file."""
        with self._lock:
            for label in tuple(self._of_file.get(path, ())):
                self._drop(label)

    def clear(self) -> None:
        """Keep nothing, and forget what was read."""
        with self._lock:
            self._held.clear()
            self._of_file.clear()
            self._asked.clear()
            self._bytes = 0


DECODED = DecodedColumns()
"""The columns that this process keeps, of all its lakes."""
