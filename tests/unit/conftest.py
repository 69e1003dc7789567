"""Tests of this folder open no lake and start no session: those that do are in `tests/lake`, or further out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

import foldhouse as fh


def _refused(what: str) -> Callable[..., Any]:
    def refused(*_: Any, **__: Any) -> Any:
        pytest.fail(f"a test in tests/unit {what}; move it to tests/lake")

    return refused


OPENS_A_LAKE = _refused("opens a lake")
STARTS_A_SESSION = _refused("starts a Spark session")


@pytest.fixture(autouse=True, scope="module")
def _no_lake_and_no_session() -> Iterator[None]:
    """In force before the other fixtures of a module; no longer for the files that the same process runs next."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fh.Lake, "__init__", OPENS_A_LAKE)
        patch.setattr(SqlCatalog, "__init__", OPENS_A_LAKE)
        patch.setattr(SparkSession.Builder, "getOrCreate", STARTS_A_SESSION)
        yield


@pytest.fixture
def lake() -> None:
    OPENS_A_LAKE()


@pytest.fixture(scope="session")
def spark() -> None:
    STARTS_A_SESSION()
