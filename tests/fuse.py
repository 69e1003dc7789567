"""Kills its own process at the n-th time it touches the disk or the catalog."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from sqlalchemy import event
from sqlalchemy.engine import Engine


class Fuse:
    """Counts what touches the world, in whatever thread, and kills its own process at the n-th."""

    def __init__(self, point: int) -> None:
        self._left, self._lock = point, threading.Lock()

    def tick(self, *_: object) -> None:
        with self._lock:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def lay(self) -> None:
        """Around every file and folder made or deleted, every statement and commit of the catalog, and the swap."""
        create, stream, fuse = PyArrowFile.create, pa.ipc.new_stream, self

        def create_and_tick(file: PyArrowFile, overwrite: bool = False) -> Any:
            fuse.tick()
            return Written(create(file, overwrite), fuse)

        def stream_and_tick(sink: Any, *arguments: Any, **named: Any) -> Any:
            if not isinstance(sink, str):
                return stream(sink, *arguments, **named)  # in memory
            fuse.tick()
            return Streamed(stream(sink, *arguments, **named), fuse)

        PyArrowFile.create = create_and_tick  # type: ignore[method-assign, assignment]
        PyArrowFileIO.delete = self.around(PyArrowFileIO.delete)  # type: ignore[method-assign]
        SqlCatalog.commit_table = self.around(SqlCatalog.commit_table)  # type: ignore[method-assign]
        pa.ipc.new_stream, pa.memory_map = stream_and_tick, self.around(pa.memory_map)
        os.mkdir, os.unlink, os.rmdir = map(self.around, (os.mkdir, os.unlink, os.rmdir))
        event.listen(Engine, "before_cursor_execute", self.tick)
        event.listen(Engine, "commit", self.tick)

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def ticking(*arguments: Any, **named: Any) -> Any:
            self.tick()
            answer = function(*arguments, **named)
            self.tick()
            return answer

        return ticking


class Watch(Fuse):
    """Kills nothing: notes the points at which a folder is not what it was at the point before.

    A process that is killed leaves what is on the disk and nothing else, so that two points between which no file
    changed leave the same, and one of them stands for both.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(0)
        self._folder, self._last = folder, frozenset[tuple[str, int, int]]()
        self.points: list[int] = []

    def tick(self, *_: object) -> None:
        with self._lock:
            self._left += 1
            found = frozenset(self._held())
            if found != self._last:
                self.points.append(self._left)
            self._last = found

    def _held(self) -> Iterator[tuple[str, int, int]]:
        """Every file and folder: its path, its size in bytes and the nanosecond at which it changed."""
        for path in self._folder.rglob("*"):
            with suppress(FileNotFoundError):  # another thread has removed it
                found = path.stat()
                yield str(path), found.st_size, found.st_mtime_ns


class Written:
    """A file that is being written: empty, begun, whole but open, closed."""

    def __init__(self, sink: Any, fuse: Fuse) -> None:
        self._sink, self._fuse, self._begun = sink, fuse, False
        fuse.tick()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)

    def __enter__(self) -> Written:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, content: Any) -> Any:
        written = self._sink.write(content)
        if not self._begun:
            self._begun = True
            self._fuse.tick()
        return written

    def close(self) -> None:
        if not self._sink.closed:
            self._fuse.tick()
            self._sink.close()
            self._fuse.tick()


class Streamed:
    """A file of batches that is being written: without any, with some, closed."""

    def __init__(self, writer: Any, fuse: Fuse) -> None:
        self._writer, self._fuse, self._begun = writer, fuse, False
        fuse.tick()

    def write_batch(self, batch: Any) -> None:
        self._writer.write_batch(batch)
        if not self._begun:
            self._begun = True
            self._fuse.tick()

    def close(self) -> None:
        self._fuse.tick()
        self._writer.close()
        self._fuse.tick()
