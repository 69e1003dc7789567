"""Fold in Spark tasks: routing tasks read signed rows and divide them among buckets, folding tasks fold the buckets.

Only blobs of signed rows are shuffled (see `routing`), never the table. A folding task holds one group of buckets in
memory. Buckets without files are folded in pieces of their keys, one piece at a time.

Guarantee: a task that is retried or run twice leaves files that no commit references; it never stores a row twice.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from foldhouse.kernel.combine import SIGNED, partial_sums
from foldhouse.refresh.bucket.deletes import newest
from foldhouse.refresh.bucket.fold import BucketJob, BucketResult, fold_buckets, groups_of
from foldhouse.refresh.bucket.names import BUCKET, KEY_ONLY, partition_of
from foldhouse.refresh.rows.choices import Choice
from foldhouse.refresh.rows.evaluate import Evaluation, Logic, covers, evaluated_on_spark, plain_columns
from foldhouse.refresh.run.answers import ANSWERS, answered, results_of
from foldhouse.refresh.run.in_process import Recompute, Run
from foldhouse.refresh.run.placement import placed
from foldhouse.refresh.run.routing import (
    BLOBS,
    Part,
    Reading,
    Route,
    parts_in,
    read_alone,
    read_task,
    route_task,
    split_among,
)
from foldhouse.spark.failures import translating_spark_errors
from foldhouse.spark.source import frame_of_arrow
from foldhouse.storage.live import without_bounds
from foldhouse.values.definition import Stream

_GUESSED_AT_ONCE = 8


def fold_on_spark(run: Run) -> list[BucketResult]:
    """Read the pieces, run `rows`, shuffle the signed rows to the folding tasks of their buckets, and fold there."""
    if (alone := _folded_alone(run)) is not None:
        return alone
    tasks = _tasks(run)
    placement = placed(run.job, rows_of_run(run), tasks, run.job.tuning.task_piece_rows)
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
        folded = ordered.mapInArrow(functools.partial(fold_task, run.job, placement.piece_rows), ANSWERS).toArrow()
    return results_of(run.job, folded)


def _folded_alone(run: Run) -> list[BucketResult] | None:
    """Fold in one job without a shuffle: each task reads the whole window and keeps the rows of its buckets.

    Returns:
        The results. `None` if tasks cannot read the window themselves, if they would read so many rows that a shuffle
        costs less, or if a task would keep more rows than it folds at once.
    """
    evaluations, tuning = run.evaluations, run.job.tuning
    if run.recompute is not None or not all(is_read_as_it_is(run.logic, one) for one in evaluations):
        return None
    session, rows = run.logic.session(), rows_of_run(run)
    tasks = min(_tasks(run), _at_once(session))
    if rows * tasks > tuning.read_alone_rows or rows > tasks * tuning.task_piece_rows:
        return None
    if not any(one.pieces[0] for one in evaluations):
        return []
    placement = placed(run.job, rows, tasks, tuning.task_piece_rows)
    tasks = max(placement.tasks) + 1
    route = Route(run.plan, run.job.layout, placement, tuning)
    reading = reading_of(run.logic, evaluations, 1)
    task = functools.partial(read_and_fold_task, run.job, route, reading)
    with translating_spark_errors(run.name):
        folded = session.range(0, tasks, 1, tasks).mapInArrow(task, ANSWERS).toArrow()
    return results_of(run.job, folded)


def _at_once(session: SparkSession) -> int:
    """Return how many tasks run at the same time; over Spark Connect, which does not tell, a guess."""
    return session.sparkContext.defaultParallelism if hasattr(session, "_jsparkSession") else _GUESSED_AT_ONCE


def is_read_as_it_is(logic: Logic, evaluation: Evaluation) -> bool:
    """Whether the rows of the files go to the fold without Spark, so that any part of a file can be read alone.

    The logic must be plain, the source without `event_id`, and the evaluation without choices.
    """
    source = logic.compiled.table.source
    is_delivered_once = not (isinstance(source, Stream) and source.event_id)
    return logic.compiled.is_plain and is_delivered_once and not evaluation.choices[0]


def _read(run: Run, route: Route, evaluations: Sequence[Evaluation], tasks: int) -> DataFrame:
    """Return the blobs of evaluations whose files the routing tasks read themselves."""
    reading = reading_of(run.logic, evaluations, tasks)
    numbers = run.logic.session().range(0, len(reading.splits), 1, len(reading.splits))
    return numbers.mapInArrow(functools.partial(read_task, route, reading), BLOBS)


def reading_of(logic: Logic, evaluations: Sequence[Evaluation], tasks: int, left_out: Choice | None = None) -> Reading:
    """Divide the pieces of evaluations among routing tasks, for evaluations that `is_read_as_it_is`.

    Args:
        logic: of the table.
        evaluations: without choices.
        tasks: the largest number of tasks.
        left_out: rows that are not read.
    """
    compiled = logic.compiled
    pieces = [
        (without_bounds(piece), covers(compiled, one.coverage), one.weight)
        for one in evaluations
        for piece in one.pieces[0]
    ]
    signed = plain_columns(compiled)
    named = {name for column in signed for name in column.meta.root_names()}
    named |= set() if left_out is None else set(left_out.columns)
    columns = tuple(name for name in compiled.inputs[0] if name in named)
    splits = split_among(pieces, tasks)
    return Reading(logic.layouts[0], columns, tuple(signed), splits, logic.tuning.chunk_rows, left_out)


def _routed(run: Run, route: Route, signed: Sequence[DataFrame], tasks: int) -> DataFrame:
    """Return the blobs of signed rows that Spark computes."""
    rows = functools.reduce(DataFrame.unionByName, signed)
    if rows_of_run(run) <= run.job.tuning.task_rows:
        # Each evaluation has as many partitions as a shuffle, and a task of Python costs more than a few rows.
        rows = rows.coalesce(tasks)
    return rows.mapInArrow(functools.partial(route_task, route), BLOBS)


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


def rows_of_run(run: Run) -> int:
    """Estimate how many rows are folded: all rows of the files."""
    again = None if run.recompute is None else run.recompute.evaluation
    evaluations = [*run.evaluations, *([] if again is None else [again])]
    return sum(piece.file.rows for one in evaluations for source in one.pieces for piece in source)


def _tasks(run: Run) -> int:
    """Return the number of routing tasks, and the most folding tasks: by the rows, up to Spark's shuffle partitions."""
    allowed = int(run.logic.session().conf.get("spark.sql.shuffle.partitions") or "200")
    return min(allowed, 2 + rows_of_run(run) // run.job.tuning.task_rows)


def read_and_fold_task(
    job: BucketJob, route: Route, reading: Reading, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Read the window and fold the buckets of the tasks whose numbers are in the batches; yield their answers."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            parts = read_alone(replace(route, task=number), reading)
            for results in fold_groups(job, route.placement.piece_rows, parts):
                yield answered(job, results)


def fold_task(job: BucketJob, piece_rows: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Fold the groups of one task and yield its answers; see `fold_groups`."""
    for results in fold_groups(job, piece_rows, parts_in(batches)):
        yield answered(job, results)


def fold_groups(job: BucketJob, piece_rows: int, parts: Iterable[Part]) -> Iterator[list[BucketResult]]:
    """Fold groups of buckets one after another, and yield the results of each group.

    Args:
        job: the job of the table.
        piece_rows: how many signed rows are folded at once; see `Placement`.
        parts: sorted by group and subgroup.
    """
    for _, members in itertools.groupby(parts, key=lambda part: part.group):
        yield _together(_folded(job, piece_rows, members))


def _folded(job: BucketJob, piece_rows: int, parts: Iterable[Part]) -> Iterator[BucketResult]:
    """Fold one group: buckets with files at once, buckets without files in pieces of whole subgroups.

    Two pieces of a bucket with files could both rewrite the same file.
    """
    pending: list[tuple[bool, pl.DataFrame]] = []
    rows = 0
    for _, members in itertools.groupby(parts, key=lambda part: part.subgroup):
        if rows >= piece_rows:
            yield from _fold(job, [(recomputed, _of(job, frame, has_files=False)) for recomputed, frame in pending])
            pending = [(recomputed, _of(job, frame, has_files=True)) for recomputed, frame in pending]
            rows = 0
        for part in members:
            pending.append((part.is_recomputed, part.rows))
            rows += part.rows.height
    yield from _fold(job, pending)


def _of(job: BucketJob, rows: pl.DataFrame, has_files: bool) -> pl.DataFrame:
    """Return the rows of the buckets that have files, or of those that have none."""
    if not job.slices:
        return rows.clear() if has_files else rows
    names = [name for name in rows[BUCKET].unique() if (partition_of(name) in job.slices) == has_files]
    return rows.filter(pl.col(BUCKET).is_in(names))


def _fold(job: BucketJob, frames: Sequence[tuple[bool, pl.DataFrame]]) -> Iterator[BucketResult]:
    changed, full = ([frame for is_full, frame in frames if is_full == wanted] for wanted in (False, True))
    if not changed and not full:
        return
    if any(SIGNED in frame.columns for frame in changed):
        changed = [one if SIGNED in one.columns else partial_sums(job.plan, one, [BUCKET]) for one in changed]
        changed = [one.select(changed[0].columns) for one in changed]
    # Copying hundreds of blobs into contiguous memory once is faster than visiting each of them in every later step.
    rows = pl.concat(changed, rechunk=True) if changed else full[0].clear().drop(KEY_ONLY)
    for group in groups_of(job, rows, pl.concat(full, rechunk=True) if full else None):
        yield from fold_buckets(job, *group)


def _together(results: Iterable[BucketResult]) -> list[BucketResult]:
    """Merge the results of the pieces of each bucket into one.

    If a key of any piece is unresolved, the merged result has only the unresolved keys. Files of the other pieces are
    then referenced by no commit.
    """
    pieces: dict[str, list[BucketResult]] = {}
    for result in results:
        pieces.setdefault(result.bucket, []).append(result)
    return [of_bucket[0] if len(of_bucket) == 1 else _one(of_bucket) for of_bucket in pieces.values()]


def _one(pieces: Sequence[BucketResult]) -> BucketResult:
    bucket = pieces[0].bucket
    unresolved = [piece.unresolved for piece in pieces if piece.unresolved is not None]
    if unresolved:
        return BucketResult(bucket, unresolved=pa.concat_tables(unresolved))
    return BucketResult(
        bucket,
        added=tuple(file for piece in pieces for file in piece.added),
        removed=tuple(path for piece in pieces for path in piece.removed),
        null_key_rows=sum(piece.null_key_rows for piece in pieces),
        null_sequence_rows=sum(piece.null_sequence_rows for piece in pieces),
        deleted_upto=newest(piece.deleted_upto for piece in pieces),
        rows_written=sum(piece.rows_written for piece in pieces),
        rows_carried=sum(piece.rows_carried for piece in pieces),
        rows_deleted=sum(piece.rows_deleted for piece in pieces),
    )
