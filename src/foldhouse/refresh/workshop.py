"""The parts of a lake that a refresh uses, as one value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from foldhouse.logic.compiled import Compiled
from foldhouse.storage.schema import Layout
from foldhouse.values.definition import Table
from foldhouse.values.tuning import Tuning


@dataclass(frozen=True)
class Workshop:
    """The parts of a lake that a refresh uses.

    Args:
        catalog: the catalog of the tables.
        session: returns the Spark session; the first call starts it.
        compiled: compiles a declaration against the layouts of its sources.
        tuning: the limits that decide where and how a window is folded.
        run_id: identifies the run in the summary of the commit.
    """

    catalog: Catalog
    session: Callable[[], SparkSession]
    compiled: Callable[[Table, Sequence[Layout]], Compiled]
    tuning: Tuning
    run_id: str
