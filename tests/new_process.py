"""Lakes that are opened as a new process would, with no session until they ask for one: that of all tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import foldhouse as fh
from foldhouse.lake import opened
from foldhouse.logic.kept import FOLDER
from foldhouse.spark import starter
from foldhouse.spark.session import all_settings
from foldhouse.spark.starter import Starter, promised
from foldhouse.storage.catalog import open_local_catalog


class Started(Starter):
    """Returns the session of all tests as if a lake started it, and counts how often."""

    def __init__(self, session: SparkSession) -> None:
        super().__init__("local[2]")
        object.__setattr__(self, "session", session)
        object.__setattr__(self, "times", [])

    def __call__(self) -> SparkSession:
        self.times.append(1)
        starter._begun[:] = [(self.session.sparkContext, dict(all_settings(self.session)), promised(self))]
        return self.session


def starts(lake: fh.Lake) -> int:
    """How often a lake started Spark."""
    return len(lake._start.times)  # type: ignore[attr-defined]


def new_processes(spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., fh.Lake]:
    """Return what opens the lake in a folder once more, as a process that has no session."""
    monkeypatch.setenv(FOLDER, str(folder / "kept"))
    monkeypatch.setattr(opened, "is_running", lambda: False)
    monkeypatch.setattr(starter, "_begun", [])

    def made(**given: Any) -> fh.Lake:
        return fh.Lake(open_local_catalog(folder / "lake"), Started(spark), **given)

    return made
