"""Fold in one Spark task the rows that this process picks by their keys: those of events that were delivered again.

Spark would read all files of a stream to find a few events.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import polars as pl
import pyarrow as pa

from foldhouse.refresh.bucket.fold import BucketResult
from foldhouse.refresh.rows.evaluate import evaluated_here, has_choices
from foldhouse.refresh.rows.read import can_be_picked
from foldhouse.refresh.run.answers import ANSWER_SCHEMA, answered, results_of
from foldhouse.refresh.run.in_process import Run, recomputed_here
from foldhouse.refresh.run.spilled import Window, fold_window, window_of_rows
from foldhouse.spark.failures import translating_spark_errors
from foldhouse.spark.tasks import at_once, in_tasks, is_local


def folded_picked(run: Run) -> list[BucketResult] | None:
    """Pick the rows in this process, and fold them in one task.

    Returns:
        The results. `None` if Spark has to evaluate the rows, if some are read without choices, or if there are more
        rows or bytes than this process passes on. It reads all deliveries of the events in any case.
    """
    logic, recompute = run.logic, run.recompute
    again = [] if recompute is None or recompute.evaluation is None else [recompute.evaluation]
    evaluations = [*run.evaluations, *again]
    if not logic.compiled.is_plain or not all(map(has_choices, evaluations)):
        return None
    session, tuning = logic.session(), run.job.tuning
    # On a cluster, one task would read the stored rows of all these keys alone.
    most, threads = (tuning.evaluated_rows, at_once(session)) if is_local(session) else (tuning.task_rows, 1)
    if not can_be_picked(logic, evaluations, most):
        return None
    rows = evaluated_here(logic, run.evaluations)
    recomputed = None if recompute is None else recomputed_here(run, recompute)
    # Spark Connect refuses messages of more than 128 MiB.
    if sum(one.estimated_size() for one in (rows, recomputed) if one is not None) > tuning.chunk_bytes:
        return None
    task = functools.partial(fold_picked_task, window_of_rows(run, rows, threads), recomputed)
    with translating_spark_errors(run.name):
        return results_of(run.job, in_tasks(session, 1, task, ANSWER_SCHEMA))


def fold_picked_task(window: Window, recomputed: pl.DataFrame | None, number: int) -> Iterator[pa.RecordBatch]:
    """Fold picked rows and all rows of the keys that are computed again, and yield the answers."""
    yield answered(window.job, fold_window(window, None if recomputed is None else lambda: recomputed))
