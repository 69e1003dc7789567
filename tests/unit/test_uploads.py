"""Files of a store are uploaded by other threads, and all are there, or an error is raised, when the block ends."""

from __future__ import annotations

import threading
from contextvars import ContextVar
from typing import Any, cast

import pyarrow as pa
import pytest
from pyiceberg.io import FileIO

from foldhouse.storage import uploads
from foldhouse.storage.integrity import WholeFile
from foldhouse.storage.threads import in_threads
from foldhouse.storage.uploads import upload, uploads_of

STORE = "s3://warehouse/t"


class _Store:
    """A store that refuses some files, and may keep each writer waiting until several have come."""

    def __init__(self, refused: frozenset[str] = frozenset(), together: int = 1) -> None:
        self.held: dict[str, bytes] = {}
        self.refused, self.most_bytes, self._bytes = refused, 0, 0
        self._together, self._lock = threading.Barrier(together), threading.Lock()

    def new_output(self, path: str) -> WholeFile:
        store = self

        class Output(WholeFile):
            def write_whole(self, contents: Any) -> None:
                with store._lock:
                    store._bytes += len(contents)
                    store.most_bytes = max(store.most_bytes, store._bytes)
                store._together.wait(timeout=60)
                if path in store.refused:
                    raise OSError(f"{path} is refused")
                with store._lock:
                    store._bytes -= len(contents)
                    store.held[path] = bytes(contents)

        return Output()


def put(store: _Store, path: str, size: int = 3) -> None:
    upload(cast(FileIO, store), path, pa.py_buffer(path[:1].encode() * size))


def put_all(store: _Store, names: str, then: Exception | None = None) -> None:
    with uploads_of(STORE):
        for name in names:
            put(store, name)
        if then is not None:
            raise then


def test_uploads_wait_together_and_are_there_at_the_end() -> None:
    store = _Store(together=4)
    put_all(store, "abcd")  # one alone would wait for ever
    assert store.held == {name: name.encode() * 3 for name in "abcd"}


def test_on_disk_and_outside_of_a_block_a_file_is_there_at_once() -> None:
    store = _Store()
    put(store, "a")
    assert list(store.held) == ["a"]
    with uploads_of("file:///w/t"):
        put(store, "b")
        assert list(store.held) == ["a", "b"]


def test_a_block_inside_of_another_does_not_wait() -> None:
    store = _Store(together=2)
    with uploads_of(STORE):
        with uploads_of(STORE):
            put(store, "a")
        assert not store.held
        put(store, "b")
    assert set(store.held) == {"a", "b"}


def test_the_first_refused_file_is_the_error_and_no_upload_goes_on() -> None:
    store, before = _Store(refused=frozenset({"b", "c"})), set(threading.enumerate())
    with pytest.raises(OSError, match="b is refused"):
        put_all(store, "abcd")
    assert set(threading.enumerate()) <= before
    assert "a" in store.held
    put_all(store, "e")
    assert "e" in store.held


def test_an_error_of_the_caller_ends_the_uploads() -> None:
    store, before = _Store(), set(threading.enumerate())
    with pytest.raises(ValueError, match="mine"):
        put_all(store, "a", then=ValueError("mine"))
    assert set(threading.enumerate()) <= before
    put(store, "b")
    assert store.held["b"] == b"bbb"


def test_files_that_are_not_there_yet_have_few_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "_MOST_BYTES", 100)
    store = _Store()
    with uploads_of(STORE):
        in_threads(lambda number: put(store, f"{number}", 40), range(50), at_once=4)
    assert len(store.held) == 50
    assert store.most_bytes <= 100
    with uploads_of(STORE):
        put(store, "larger than all", 1_000)
    assert len(store.held["larger than all"]) == 1_000


def test_threads_have_the_context_of_the_caller() -> None:
    variable: ContextVar[int] = ContextVar("variable", default=0)
    token = variable.set(7)
    try:
        assert in_threads(lambda _: variable.get(), range(4), at_once=2) == [7] * 4
    finally:
        variable.reset(token)
