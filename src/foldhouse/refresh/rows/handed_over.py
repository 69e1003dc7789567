"""Rows that Spark evaluates and hands over to this process: all at once, and never more than fit into memory."""

from __future__ import annotations

import polars as pl
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from foldhouse.errors import Unsupported
from foldhouse.refresh.rows.logic import Logic
from foldhouse.refresh.rows.texts import Texts, texts_of
from foldhouse.spark.copies import planned_with
from foldhouse.spark.failures import translating_spark_errors
from foldhouse.spark.tasks import at_once, is_local

_MOST_COLLECTED = "spark.driver.maxResultSize"
"""The setting that Spark names if evaluated rows are too many for it to hand over."""
_TOO_MANY = "foldhouse: a task makes too many rows to hand over"
"""What a task raises that makes so many rows that they must not fill the memory of its process."""
_PLACE_IN_TASK = 2**33 - 1
"""The bits of Spark's `monotonically_increasing_id` that number the rows of a task."""
_TASKS_OF_AN_EXECUTOR = 8
"""So many tasks share the memory of an executor, as it is assumed: more of them would leave too few rows to each."""


_FEW = {"spark.sql.shuffle.partitions": "1"}
"""For so few rows, a task costs more than the rows in it."""


class TooMuchToCollect(Unsupported):
    """`rows` makes more rows than Spark hands over to this process; its tasks have to fold them."""


def handed_over(logic: Logic, rows: DataFrame, given_rows: int, texts: Texts | None = None) -> pl.DataFrame:
    """Return the rows that are evaluated from so many rows of the sources.

    If a row may become several, each task fails as soon as it makes more than its share of the most rows. Counting them
    before would be a second job, which evaluates everything.

    Args:
        logic: of the table.
        rows: what Spark hands over: signed rows, or others with their `texts`.
        given_rows: the rows of the sources.
        texts: the columns that must be UTF-8; those of signed rows if it is not given.

    Raises:
        InvalidData: a text is not UTF-8.
        TooMuchToCollect: the rows would not fit into the memory of Spark's process, which keeps them all.
    """
    name, most = logic.compiled.table.name, logic.tuning.collected_rows
    is_limited = logic.compiled.may_multiply and given_rows > logic.tuning.passed_rows
    if is_limited:
        session = logic.session()
        at_the_same_time = at_once(session) if is_local(session) else _TASKS_OF_AN_EXECUTOR
        rows = rows.where(_is_among_the_first(2 * most // at_the_same_time))
    with translating_spark_errors(name):
        try:
            if given_rows <= logic.tuning.passed_rows and is_local(rows.sparkSession):
                rows = planned_with(rows, _FEW)
            handed = rows.toArrow()
        except (PySparkException, Py4JError) as failure:
            said = str(failure)
            if _TOO_MANY in said:
                raise _too_many(name, most) from failure
            if _MOST_COLLECTED in said:
                said = f"{name}: `rows` makes more rows than Spark hands over; set {_MOST_COLLECTED} higher"
                raise TooMuchToCollect(said) from failure
            raise
    if is_limited and handed.num_rows > most:
        raise _too_many(name, most)
    found = pl.from_arrow((texts or texts_of(logic.plan, name)).check(handed))
    assert isinstance(found, pl.DataFrame)
    return found


def _is_among_the_first(most: int) -> str:
    """Whether a row is among so many first rows of its task; the task fails at the first row that is not.

    Rows in Arrow's form are not counted against `spark.driver.maxResultSize` before they fill the memory. The condition
    is one text, because each call of a column function is a round trip to the JVM.
    """
    place = f"(monotonically_increasing_id() & {_PLACE_IN_TASK}L)"
    return f"CASE WHEN {place} < {most}L THEN true ELSE CAST(raise_error('{_TOO_MANY}') AS BOOLEAN) END"


def _too_many(name: str, most: int) -> TooMuchToCollect:
    return TooMuchToCollect(f"{name}: `rows` makes more rows in a window than the {most:,} that fit into this process")
