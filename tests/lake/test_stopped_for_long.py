"""A process that is stopped for longer than the age of an orphan, and goes on."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import foldhouse as fh
from foldhouse.storage import commit, outlived
from foldhouse.storage.catalog import open_local_catalog

events = fh.stream("s.events", schema={"key": "long", "n": "long"}, keys="key", sequence_by="n")
newest = fh.table("s.newest", source=events, fold=fh.latest())
HOURS = 26


class Stopped:
    """Stops the next commit after its files were written; while it is stopped, somebody else deletes orphans."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, name: str) -> None:
        self.folder, self.name, self.left = folder, name, 0
        self.seconds = 0.0
        real, clock = commit.stamp_ms, time.monotonic
        monkeypatch.setattr(outlived.time, "monotonic", lambda: clock() + self.seconds)
        monkeypatch.setattr(commit, "stamp_ms", lambda *given: self.stop() or real(*given))

    def stop(self) -> None:
        if not self.left:
            return
        self.left -= 1
        self.seconds += HOURS * 3600
        for path in self.folder.rglob("*"):
            if path.is_file() and path.suffix == ".parquet":
                os.utime(path, (path.stat().st_mtime - HOURS * 3600,) * 2)
        other = fh.Lake(open_local_catalog(self.folder), _no_spark)
        assert other.orphans(self.name, older_than=timedelta(hours=HOURS - 1), delete=True).deleted
        other.close()


def _no_spark() -> Any:
    raise AssertionError("this test must not need a JVM")


def some(n: int) -> pa.Table:
    return pa.table({"key": [n, n + 1], "n": [n, n]})


def test_events_whose_files_were_deleted_meanwhile_are_not_reported_as_appended(
    tmp_path: Path, lake: fh.Lake, monkeypatch: pytest.MonkeyPatch
):
    lake.append(events, some(1))
    stopped = Stopped(monkeypatch, tmp_path / "lake", events.name)
    stopped.left = 1
    with pytest.raises(
        fh.StorageError, match=r"1 of the 2 files of a commit were deleted before it, among them .*26\.0 h"
    ):
        lake.append(events, some(2))
    assert lake.to_arrow(events).num_rows == 2
    lake.append(events, some(2))
    assert lake.to_arrow(events).num_rows == 4


def test_a_refresh_whose_files_were_deleted_meanwhile_commits_nothing(
    tmp_path: Path, lake: fh.Lake, monkeypatch: pytest.MonkeyPatch
):
    lake.append(events, some(1))
    lake.refresh(newest)
    lake.append(events, some(2))
    stopped = Stopped(monkeypatch, tmp_path / "lake", newest.name)
    stopped.left = 1
    with pytest.raises(fh.StorageError, match=r"s\.newest: .* files of a commit were deleted before it"):
        lake.refresh(newest)
    assert lake.to_arrow(newest).num_rows == 2
    lake.refresh(newest)
    assert sorted(lake.to_arrow(newest)["n"].to_pylist()) == [1, 2, 2]
