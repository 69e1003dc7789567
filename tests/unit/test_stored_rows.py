"""The stored rows of several buckets are read by several threads."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import cast

import numpy as np
import pytest

from foldhouse.refresh.bucket import read
from foldhouse.refresh.bucket.read import StoredRows
from foldhouse.storage.file_ref import FileRef
from foldhouse.storage.live import Slice
from foldhouse.storage.schema import Layout
from foldhouse.storage.threads import in_threads
from foldhouse.values.tuning import Tuning


def test_no_bucket_waits_until_the_deletes_of_another_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cached property of Python 3.11 holds one lock for all objects of its class while it is made."""
    both = threading.Barrier(2)
    calls: list[str] = []

    def deleted(_: Layout, slices: Iterable[Slice]) -> dict[str, np.ndarray]:
        both.wait(timeout=60)
        paths = [one.file.path for one in slices]
        calls.extend(paths)
        return {path: np.arange(2) for path in paths}

    monkeypatch.setattr(read, "deleted_by_file", deleted)
    stored = [
        StoredRows(("key",), cast(Layout, None), (Slice(FileRef(path, 5, 100, 0, (), {}, {}), ("d",)),), Tuning())
        for path in "ab"
    ]
    assert in_threads(lambda one: one.rows, stored, 2) == [3, 3]
    assert [one.rows for one in stored] == [3, 3]
    assert sorted(calls) == ["a", "b"]
