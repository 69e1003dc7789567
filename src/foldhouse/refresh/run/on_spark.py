"""Fold in Spark tasks: routing tasks read signed rows and divide them among buckets, folding tasks fold the buckets.

Only blobs of signed rows are shuffled (see `routing`), never the table. A folding task holds one group of buckets in
memory. Buckets without files are folded in pieces of their keys, one piece at a time.

Guarantee: a task that is retried or run twice leaves files that no commit references; it never stores a row twice.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from foldhouse.refresh.bucket.fold import BucketJob, BucketResult
from foldhouse.refresh.bucket.names import KEY_ONLY
from foldhouse.refresh.rows.logic import Evaluation
from foldhouse.refresh.rows.on_spark import evaluated_on_spark
from foldhouse.refresh.run.alone import folded_alone
from foldhouse.refresh.run.answers import ANSWERS, answered, results_of
from foldhouse.refresh.run.groups import fold_groups
from foldhouse.refresh.run.in_process import Recompute, Run
from foldhouse.refresh.run.one_task import folded_in_one_task
from foldhouse.refresh.run.picked import folded_picked
from foldhouse.refresh.run.placement import placed
from foldhouse.refresh.run.reading import is_read_as_it_is, reading_of, rows_of_run, tasks_for
from foldhouse.refresh.run.routing import BLOBS, Route, parts_in, read_task, route_task
from foldhouse.spark.failures import translating_spark_errors
from foldhouse.spark.named import map_in_arrow
from foldhouse.spark.source import frame_of_arrow
from foldhouse.spark.tasks import mapped


def fold_on_spark(run: Run) -> list[BucketResult]:
    """Read the pieces, run `rows`, shuffle the signed rows to the folding tasks of their buckets, and fold there."""
    for one_job in (folded_in_one_task, folded_alone, folded_picked):
        if (folded := one_job(run)) is not None:
            return folded
    rows = rows_of_run(run)
    tasks = tasks_for(run, rows)
    placement = placed(run.job, rows, tasks, run.job.tuning.task_piece_rows)
    buckets = frozenset() if run.recompute is None else run.recompute.buckets
    route = Route(run.plan, run.job.layout, placement, run.job.tuning, buckets)
    read_here = [one for one in run.evaluations if is_read_as_it_is(run.logic, one)]
    others = [one for one in run.evaluations if not is_read_as_it_is(run.logic, one)]
    routed = [_read(run, route, read_here, tasks)] if any(one.pieces[0] for one in read_here) else []
    signed = evaluated_on_spark(run.logic, others)
    routed += [_routed(run, route, signed, tasks)] if signed else []
    if run.recompute is not None:
        full = replace(route, recomputed=True)
        routed += [_routed(run, full, _recomputed(run, run.recompute), tasks)]
    if not routed:
        return []
    # By id, not by hash: a hash could send two tasks' blobs to one partition and none to another.
    blobs = functools.reduce(DataFrame.union, routed).repartitionById(max(placement.tasks) + 1, "task")
    ordered = blobs.sortWithinPartitions("group", "subgroup")
    with translating_spark_errors(run.name):
        folded = mapped(ordered, functools.partial(fold_task, run.job, placement.piece_rows), ANSWERS).toArrow()
    return results_of(run.job, folded)


def _read(run: Run, route: Route, evaluations: Sequence[Evaluation], tasks: int) -> DataFrame:
    """Return the blobs of evaluations whose files the routing tasks read themselves."""
    reading = reading_of(run.logic, evaluations, tasks)
    numbers = run.logic.session().range(0, len(reading.splits), 1, len(reading.splits))
    return mapped(numbers, functools.partial(read_task, route, reading), BLOBS)


def _routed(run: Run, route: Route, signed: Sequence[DataFrame], tasks: int) -> DataFrame:
    """Return the blobs of signed rows that Spark computes."""
    rows = functools.reduce(DataFrame.unionByName, signed)
    if rows_of_run(run) <= run.job.tuning.task_rows:
        # Each evaluation has as many partitions as a shuffle, and a task of Python costs more than a few rows.
        rows = rows.coalesce(tasks)
    return map_in_arrow(rows, functools.partial(route_task, route), BLOBS)


def _recomputed(run: Run, recompute: Recompute) -> list[DataFrame]:
    """Return all rows of the unresolved keys, and one marker row per key; see `recomputed_here`."""
    wanted = frame_of_arrow(run.logic.session(), recompute.keys.to_arrow().combine_chunks())
    present = [one for one in run.evaluations if one.weight > 0] if recompute.evaluation is None else []
    evaluations = [recompute.evaluation] if recompute.evaluation else present
    rows = functools.reduce(DataFrame.unionByName, evaluated_on_spark(run.logic, evaluations))
    full = rows.join(F.broadcast(wanted), on=run.plan.key_names, how="left_semi").withColumn(KEY_ONLY, F.lit(False))
    marks = wanted
    for column in run.plan.delta_schema:
        if column.name not in run.plan.key_names:
            marks = marks.withColumn(column.name, F.lit(None).cast(_spark_text(column.type)))
    return [full, marks.withColumn(KEY_ONLY, F.lit(True))]


def _spark_text(kind: pa.DataType) -> str:
    from pyspark.sql.pandas.types import from_arrow_type

    return from_arrow_type(kind).simpleString()


def fold_task(job: BucketJob, piece_rows: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Fold the groups of one task and yield its answers; see `fold_groups`."""
    for results in fold_groups(job, piece_rows, parts_in(batches)):
        yield answered(job, results)
