"""Files are uploaded to a store by other threads, while the next ones are made.

    with uploads_of("s3://warehouse/t"):
        first = write_data_file(...)    # encoded and described; its upload has begun
        second = write_data_file(...)
    # both files are there, or the error of the first that failed was raised

On disk, each file is there when it is written.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar

import pyarrow as pa
from pyiceberg.io import FileIO

from foldhouse.storage.integrity import write_whole
from foldhouse.storage.places import is_on_disk
from foldhouse.storage.threads import OF_A_STORE

_MOST_BYTES = 64 << 20
"""Bytes of files that are encoded and not there yet, beside the last of them."""


class _Uploads:
    """Uploads that began, the oldest first, and how many bytes each of them has; several threads may add some."""

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self._threads = threads
        self._running: deque[tuple[Future[None], int]] = deque()
        self._bytes = 0
        self._lock = threading.Lock()

    def add(self, io: FileIO, path: str, contents: pa.Buffer) -> None:
        """Begin an upload, once those before it leave room for its bytes."""
        with self._lock:  # who waits keeps the others, whose files would be too many as well
            while self._running and self._bytes + contents.size > _MOST_BYTES:
                self._wait()
            self._running.append((self._threads.submit(write_whole, io, path, contents), contents.size))
            self._bytes += contents.size

    def wait(self) -> None:
        """Return when all files are there."""
        with self._lock:
            while self._running:
                self._wait()

    def _wait(self) -> None:
        oldest, size = self._running.popleft()
        self._bytes -= size
        oldest.result()


_UPLOADS: ContextVar[_Uploads | None] = ContextVar("foldhouse_uploads", default=None)


@contextlib.contextmanager
def uploads_of(location: str) -> Iterator[None]:
    """Write files at a place; in a store, they are uploaded by other threads, and all of them are there at the end.

    Args:
        location: of the table or stream.

    Raises:
        OSError: the store refused a file; no upload is under way any more. See `write_whole`.
    """
    if is_on_disk(location) or _UPLOADS.get() is not None:
        yield
        return
    with ThreadPoolExecutor(OF_A_STORE) as threads:
        uploads = _Uploads(threads)
        token = _UPLOADS.set(uploads)
        try:
            yield
            uploads.wait()
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)  # nobody will use files that are not there yet
            raise
        finally:
            _UPLOADS.reset(token)


def upload(io: FileIO, path: str, contents: pa.Buffer) -> None:
    """Write a new file: inside of `uploads_of`, it is there at the end of that; else at once.

    Args:
        io: of the table.
        path: of the file.
        contents: the bytes of the file; they do not change any more.

    Raises:
        OSError: see `write_whole`; it may be of an earlier file.
    """
    uploads = _UPLOADS.get()
    if uploads is None:
        write_whole(io, path, contents)
    else:
        uploads.add(io, path, contents)
