"""Fold in one Spark job without a shuffle: each task reads the whole window and keeps the rows of its own buckets.

Reading a row twice costs less than shuffling it, as long as few tasks read. Keys that are computed again are read by
each task from the files that can contain them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import polars as pl
import pyarrow as pa

from foldhouse.kernel.keyed import by_keys
from foldhouse.kernel.plan import WEIGHT
from foldhouse.refresh.bucket.fold import BucketJob, BucketResult
from foldhouse.refresh.bucket.names import BUCKET, KEY_ONLY, with_bucket
from foldhouse.refresh.rows.choices import Choice, picked
from foldhouse.refresh.rows.evaluate import empty_rows
from foldhouse.refresh.run.answers import ANSWER_SCHEMA, answered, results_of
from foldhouse.refresh.run.groups import fold_groups
from foldhouse.refresh.run.in_process import Recompute, Run
from foldhouse.refresh.run.placement import placed
from foldhouse.refresh.run.reading import is_read_as_it_is, reading_of, rows_of_evaluations, tasks_for
from foldhouse.refresh.run.routing import Part, Reading, Route, Split, divided, rows_of_splits
from foldhouse.spark.failures import translating_spark_errors
from foldhouse.spark.tasks import at_once, in_tasks
from foldhouse.storage.threads import ahead


@dataclass(frozen=True)
class Again:
    """The keys that a task computes again, and where their rows are.

    Args:
        keys: the keys of all tasks.
        reading: the rows among which they are; `None` for those of the window.
        columns: the key columns by which rows are picked from the files of `reading`.
    """

    keys: pl.DataFrame
    reading: Reading | None
    columns: tuple[str, ...] = ()


def folded_alone(run: Run) -> list[BucketResult] | None:
    """Fold in one job without a shuffle.

    Returns:
        The results. `None` if tasks cannot read the rows themselves, if they would read so many that a shuffle costs
        less, or if a task would keep too many in memory.
    """
    if not all(is_read_as_it_is(run.logic, one) for one in run.evaluations):
        return None
    if (read := rows_read(run)) is None:
        return None
    session, tuning = run.logic.session(), run.job.tuning
    tasks = min(tasks_for(run, read), at_once(session))
    pieces = [piece for one in run.evaluations for piece in one.pieces[0]]
    kept_bytes = sum(piece.file.size_bytes for piece in pieces) / tasks
    if read * tasks > tuning.read_alone_rows or kept_bytes > tuning.kept_alone_bytes:
        return None
    again = None if run.recompute is None else again_of(run, run.recompute)
    if not pieces and again is None:
        return []
    placement = placed(run.job, rows_of_evaluations(run.evaluations), tasks, tuning.task_piece_rows)
    buckets = frozenset() if run.recompute is None else run.recompute.buckets
    route = Route(run.plan, run.job.layout, placement, tuning, buckets)
    task = functools.partial(fold_alone_task, run.job, route, reading_of(run.logic, run.evaluations, 1), again)
    with translating_spark_errors(run.name):
        folded = in_tasks(session, max(placement.tasks) + 1, task, ANSWER_SCHEMA)
    return results_of(run.job, folded)


def rows_read(run: Run) -> float | None:
    """Return how many rows each task reads, a row that is only looked at as a part of one; `None` if it cannot."""
    rows, recompute = rows_of_evaluations(run.evaluations), run.recompute
    if recompute is None or recompute.evaluation is None:
        return rows
    choices = recompute.evaluation.choices[0]
    can_pick = len(choices) == 1 and set(choices[0].columns) <= set(run.plan.key_names)
    plain = replace(recompute.evaluation, choices=((),))
    if not can_pick or not is_read_as_it_is(run.logic, plain):
        return None
    return rows + run.job.tuning.picked_rows_share * rows_of_evaluations([plain])


def again_of(run: Run, recompute: Recompute) -> Again:
    """Return what a task needs to compute keys again."""
    evaluation = recompute.evaluation
    if evaluation is None:
        return Again(recompute.keys, None)
    reading = reading_of(run.logic, [replace(evaluation, choices=((),))], 1)
    return Again(recompute.keys, reading, evaluation.choices[0][0].columns)


def fold_alone_task(
    job: BucketJob, route: Route, reading: Reading, again: Again | None, number: int
) -> Iterator[pa.RecordBatch]:
    """Read the window, fold the buckets of a task, and yield its answers."""
    own = replace(route, task=number)
    for results in fold_groups(job, route.placement.piece_rows, _own_parts(own, reading, again)):
        yield answered(job, results)


def _own_parts(route: Route, reading: Reading, again: Again | None) -> list[Part]:
    """Return the rows of the route's task, sorted by group and subgroup."""
    found = [part for rows in _rows_of(reading) for parts in divided(route, rows) for part in parts]
    if again is not None:
        recomputed = replace(route, recomputed=True)
        found += [part for parts in divided(recomputed, recomputed_in_task(route, reading, again)) for part in parts]
    return sorted(found, key=lambda part: (part.group, part.subgroup))


def _rows_of(reading: Reading) -> Iterator[pl.DataFrame]:
    return (rows for splits in reading.splits for rows in rows_of_splits(reading, splits))


def recomputed_in_task(route: Route, reading: Reading, again: Again) -> pl.DataFrame:
    """Return all rows of the keys of the route's task, and one marker row per key; see `recomputed_here`."""
    buckets = with_bucket(route.layout, replace(route.plan, sequence=()), again.keys)[BUCKET]
    is_own = (route.task is None or route.placement.task(one) == route.task for one in buckets)
    own = again.keys.filter(pl.Series(is_own, dtype=pl.Boolean))
    added: Iterator[pl.DataFrame]
    if again.reading is None:
        added = (rows.filter(pl.col(WEIGHT) > 0) for rows in _rows_of(reading))
    else:
        choice = Choice(again.columns, own.select(again.columns).unique())
        added = _picked(again.reading, choice)
    names = route.plan.key_names
    found = pl.concat([empty_rows(route.plan), *(by_keys(rows, own, names, "semi") for rows in added)])
    marks = own.with_columns(pl.lit(True).alias(KEY_ONLY))
    return pl.concat([found.with_columns(pl.lit(False).alias(KEY_ONLY)), marks], how="diagonal")


def _picked(reading: Reading, choice: Choice) -> Iterator[pl.DataFrame]:
    """Yield the signed rows of whole pieces that the choice selects; those of a store are waited for together."""

    def picked_of(split: Split) -> pl.DataFrame:
        found, _ = picked(reading.layout, split.piece.file, reading.columns, (choice,))
        rows = found.of_piece(reading.layout, split.piece)
        if split.wanted is not None:
            rows = rows.filter(split.wanted)
        return rows.select(*reading.signed, pl.lit(split.weight, dtype=pl.Int64).alias(WEIGHT))

    splits = [split for of_task in reading.splits for split in of_task]
    return ahead(picked_of, splits, reading.layout.files_ahead(split.size_bytes for split in splits))
