"""The tests of this folder open no lake and start no session; the error for one that tries names where it belongs."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.catalog.noop import NoopCatalog

import foldhouse as fh
from foldhouse.spark.session import local_session

MOVED = "move it to tests/lake"


def test_a_lake_cannot_be_opened_here(tmp_path: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match=MOVED):
        fh.Lake.local(tmp_path / "lake")
    with pytest.raises(pytest.fail.Exception, match=MOVED):
        fh.Lake(NoopCatalog("none"), local_session)
    with pytest.raises(pytest.fail.Exception, match=MOVED):
        InMemoryCatalog("none")


def test_a_session_cannot_be_started_here() -> None:
    with pytest.raises(pytest.fail.Exception, match=MOVED):
        local_session("local[1]")


@pytest.mark.parametrize("name", ["lake", "spark", "spark_lake"])
def test_the_fixtures_that_open_lakes_fail_here(name: str, request: pytest.FixtureRequest) -> None:
    with pytest.raises(pytest.fail.Exception, match=MOVED):
        request.getfixturevalue(name)
