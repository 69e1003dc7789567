"""Which rows are of covered days, as one condition of Spark."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from foldhouse.spark.named import quoted
from foldhouse.values.window import Coverage


def is_covered(day: str, coverage: Coverage) -> Column:
    """Return whether a row's day is in one of the ranges of a coverage, which is not everything.

    The text is parsed at once: Spark's parser balances the alternatives, of which thousands that are nested exceed the
    stack of the JVM. Of a Python date before the year 1000, pyspark's own literal fails.

    Args:
        day: the name of a date column.
        coverage: ranges of days; for none, no row is covered.
    """
    ranges = [f"{quoted(day)} BETWEEN DATE'{one.first}' AND DATE'{one.last}'" for one in coverage.ranges]
    return F.expr(" OR ".join(ranges)) if ranges else F.lit(False)
