"""Which rows are of covered days, as one condition of Spark."""

from __future__ import annotations

from datetime import date, timedelta

from pyspark.sql import Column
from pyspark.sql import functions as F

from foldhouse.spark.named import quoted
from foldhouse.values.window import Coverage

_LISTED = timedelta(days=7)
"""Ranges of at most a week are listed day by day: Spark looks a day up in a set, but tries range after range."""


def is_covered(day: str, coverage: Coverage) -> Column:
    """Return whether a row's day is in one of the ranges of a coverage, which is not everything.

    The text is parsed at once: Spark's parser balances the alternatives, of which thousands that are nested exceed the
    stack of the JVM. Of a Python date before the year 1000, pyspark's own literal fails.

    Args:
        day: the name of a date column.
        coverage: ranges of days; for none, no row is covered.
    """
    name, listed, conditions = quoted(day), list[date](), list[str]()
    for one in coverage.ranges:
        if one.last - one.first < _LISTED:
            listed += [date.fromordinal(number) for number in range(one.first.toordinal(), one.last.toordinal() + 1)]
        else:
            conditions.append(f"{name} BETWEEN DATE'{one.first}' AND DATE'{one.last}'")
    if listed:
        days = ", ".join(f"DATE'{one}'" for one in listed)
        conditions.append(f"{name} IN ({days})")
    return F.expr(" OR ".join(conditions)) if conditions else F.lit(False)
