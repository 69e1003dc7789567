"""What refreshing needs of a lake, as a value."""

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
    """What refreshing needs of the lake.

    Args:
        catalog: where tables are registered.
        session: gives the Spark session, started at the first call.
        compiled: compiles a declaration against its sources' layouts.
        tuning: how large a window is folded in this process, and how.
        run_id: who is running, for the summary.
    """

    catalog: Catalog
    session: Callable[[], SparkSession]
    compiled: Callable[[Table, Sequence[Layout]], Compiled]
    tuning: Tuning
    run_id: str
