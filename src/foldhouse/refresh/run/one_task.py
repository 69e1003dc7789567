"""Fold in one Spark task that uses every core: in a local session, where all tasks are on this machine anyway.

Two tasks would each read the window, or pass its rows to one another through the JVM. The threads of one task share
what they read.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import pyarrow as pa

from foldhouse.refresh.bucket.fold import BucketResult
from foldhouse.refresh.run.alone import Again, again_of, recomputed_in_task, rows_read
from foldhouse.refresh.run.answers import ANSWER_SCHEMA, answered, results_of
from foldhouse.refresh.run.in_process import Run
from foldhouse.refresh.run.reading import rows_of_run
from foldhouse.refresh.run.spilled import Window, can_be_spilled, fold_window, window_of
from foldhouse.spark.failures import translating_spark_errors
from foldhouse.spark.tasks import at_once, in_tasks, is_local


def folded_in_one_task(run: Run) -> list[BucketResult] | None:
    """Fold in one task with a thread for each core of the session.

    Returns:
        The results. `None` if the session is not a local one, if the task cannot read the rows itself, or if there are
        too few or too many of them for one task.
    """
    session, tuning = run.logic.session(), run.job.tuning
    if not is_local(session) or not tuning.one_task_least_rows <= rows_of_run(run) <= tuning.one_task_rows:
        return None
    if not can_be_spilled(run.logic, run.evaluations) or rows_read(run) is None:
        return None
    window = window_of(run, at_once(session))
    besides = sum(rows.height for rows in window.besides)
    if besides > (tuning.task_rows if run.recompute is None else 0):  # they pass through the JVM
        return None
    again = None if run.recompute is None else again_of(run, run.recompute)
    if again is None and not window.reading.splits:
        return []
    task = functools.partial(fold_one_task, window, again)
    with translating_spark_errors(run.name):
        return results_of(run.job, in_tasks(session, 1, task, ANSWER_SCHEMA))


def fold_one_task(window: Window, again: Again | None, number: int) -> Iterator[pa.RecordBatch]:
    """Fold a window, and yield the answers."""
    recomputed = None if again is None else functools.partial(recomputed_in_task, window.route, window.reading, again)
    yield answered(window.job, fold_window(window, recomputed))
