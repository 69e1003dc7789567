"""The input of a runner, and the runner that folds a window in this process.

A small window is folded here, because starting Spark tasks costs more than folding it. A larger window is folded by
`foldhouse.refresh.run.spilled` or `foldhouse.refresh.run.on_spark`. All of them fold buckets with `fold_buckets`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import polars as pl

from foldhouse.kernel.combine import summed
from foldhouse.kernel.decisive import has_many_a_key
from foldhouse.kernel.keyed import by_keys
from foldhouse.kernel.plan import WEIGHT, FoldPlan
from foldhouse.refresh.bucket.fold import BucketJob, BucketResult, fold_buckets, groups_of
from foldhouse.refresh.bucket.names import BUCKET, KEY_ONLY, NULL_KEY, Placed, placed_rows, with_bucket
from foldhouse.refresh.rows.evaluate import (
    Given,
    evaluated_here,
    needs_spark,
    rows_given,
    sums_here,
)
from foldhouse.refresh.rows.logic import Evaluation, Logic
from foldhouse.refresh.rows.sums import can_be_summed
from foldhouse.storage.threads import in_threads

_SUMMED_LEAST_ROWS = 100_000
"""Rows of this process that are added up before they are divided, if they have few keys; fewer take no time."""
_SAMPLED_ROWS = 20_000


@dataclass(frozen=True)
class Recompute:
    """The keys that are computed again from all their rows: mostly those that a first run left unresolved.

    Args:
        keys: the keys.
        evaluation: gives all rows of these keys, and possibly rows of other keys; `None` if the run's own evaluations
            do.
        buckets: the buckets of these keys; the other buckets are done.
        is_alone: whether this is the first run, and nothing but these keys changes; then `buckets` is not needed.
    """

    keys: pl.DataFrame
    evaluation: Evaluation | None
    buckets: frozenset[str] = field(default_factory=frozenset)
    is_alone: bool = False


@dataclass(frozen=True)
class Run:
    """The fold of one window into one table: the input of every runner."""

    logic: Logic
    job: BucketJob
    evaluations: Sequence[Evaluation]
    recompute: Recompute | None = None
    evaluate: Callable[[Logic, Sequence[Given]], list[pl.DataFrame] | None] | None = None
    """Evaluates parts of the sources in this process, if not `evaluated_directly`."""

    @property
    def plan(self) -> FoldPlan:
        """The compiled fold."""
        return self.logic.plan

    @property
    def name(self) -> str:
        """The name of the table."""
        return self.logic.compiled.table.name


def fold_in_process(run: Run) -> list[BucketResult]:
    """Read the pieces with Arrow, evaluate logic that is not plain in Spark, and fold in this process."""
    if run.recompute is not None and run.recompute.is_alone:
        full = recomputed_here(run, run.recompute)
        return folded_here(run.job, Placed.of_texts(full.drop(KEY_ONLY).clear()), Placed.of_texts(full))
    if run.recompute is None and needs_spark(run.logic) and can_be_summed(run.plan):
        return _fold_sums(run)
    rows = evaluated_here(run.logic, run.evaluations)
    if run.recompute is None:
        return folded_together(run.job, rows)
    wanted = pl.col(BUCKET).is_in(list(run.recompute.buckets))
    rows = with_bucket(run.job.layout, run.plan, rows).filter(wanted)
    recomputed = recomputed_here(run, run.recompute).filter(wanted)
    return folded_here(run.job, Placed.of_texts(rows), Placed.of_texts(recomputed))


def folded_together(job: BucketJob, rows: pl.DataFrame, at_once: int | None = None) -> list[BucketResult]:
    """Fold signed rows; if they have few keys, they are added up before they are divided among buckets.

    Raises:
        InvalidData: see `combine`.
    """
    if can_be_summed(job.plan) and _have_many_a_key(job.plan, rows):
        return folded_sums(job, rows, at_once)
    return folded_rows(job, rows, at_once)


def _have_many_a_key(plan: FoldPlan, rows: pl.DataFrame) -> bool:
    """Whether rows have clearly fewer keys than rows, by a sample; few rows are divided as they are."""
    if rows.height < _SUMMED_LEAST_ROWS:
        return False
    return has_many_a_key(rows.select(plan.key_names).gather_every(rows.height // _SAMPLED_ROWS), rows.height)


def _fold_sums(run: Run) -> list[BucketResult]:
    """Add up the rows that Spark evaluates, or have Spark do so, before they are divided among buckets.

    Dividing keys costs less than dividing all of their rows.
    """
    if (folded := folded_sums_of_spark(run)) is not None:
        return folded
    return folded_sums(run.job, evaluated_here(run.logic, run.evaluations))


def folded_sums(job: BucketJob, rows: pl.DataFrame, at_once: int | None = None) -> list[BucketResult]:
    """Add up signed rows of a plan that `can_be_summed`, and fold the sums."""
    plan = job.plan
    has_key = pl.all_horizontal(pl.col(name).is_not_null() for name in plan.key_names)
    without = rows.filter(~has_key)
    left_out = [BucketResult(NULL_KEY, null_key_rows=int(without[WEIGHT].sum()))] if without.height else []
    sums = summed(plan, rows.filter(has_key) if left_out else rows)
    return [*left_out, *folded_rows(job, sums, at_once)]


def folded_sums_of_spark(run: Run) -> list[BucketResult] | None:
    """Fold what Spark adds up by key; `None` if it does not, or if handing over all rows costs less than its shuffle.

    Raises:
        TooMuchToCollect: there are more keys than Spark hands over.
    """
    stored = sum(one.file.rows for slices in run.job.slices.values() for one in slices)
    pays = rows_given(run.evaluations) >= run.job.tuning.summed_key_rows * stored
    if not (run.job.is_full_recompute and pays and stored <= run.job.tuning.collected_rows):
        return None
    sums = sums_here(run.logic, run.evaluations) if run.recompute is None else None
    return None if sums is None else folded_rows(run.job, sums)


def folded_rows(job: BucketJob, rows: pl.DataFrame, at_once: int | None = None) -> list[BucketResult]:
    """Fold signed rows, or their deltas, in this process; they have no `__bucket` yet.

    Raises:
        InvalidData: see `combine`.
    """
    return folded_here(job, placed_rows(job.layout, job.plan, rows), at_once=at_once)


def folded_here(
    job: BucketJob, rows: Placed, recomputed: Placed | None = None, at_once: int | None = None
) -> list[BucketResult]:
    """Fold signed rows in this process, several groups of buckets at a time.

    Args:
        job: the job of the table.
        rows: signed rows, or their deltas.
        recomputed: all rows of the keys that were unresolved; see `recomputed_here`.
        at_once: the number of cores to use; all of them by default.

    Raises:
        InvalidData: see `combine`.
    """
    cores = at_once or os.cpu_count() or 1
    groups = groups_of(job, rows, recomputed, cores)
    # One thread more: now and then, one of them waits for the Python code of another.
    folded = in_threads(lambda group: fold_buckets(job, *group), groups, cores + 1)
    return [result for results in folded for result in results]


def recomputed_here(run: Run, recompute: Recompute) -> pl.DataFrame:
    """Return all rows of the unresolved keys, and one marker row per key, with their `__bucket`.

    A key without rows still has its marker, so that it is deleted from the table.
    """
    if recompute.evaluation is None:
        rows = evaluated_here(run.logic, run.evaluations).filter(pl.col(WEIGHT) > 0)
    else:
        rows = evaluated_here(run.logic, [recompute.evaluation], recompute.keys)
    full = by_keys(rows, recompute.keys, run.plan.key_names, "semi").with_columns(pl.lit(False).alias(KEY_ONLY))
    marked = [full, recompute.keys.with_columns(pl.lit(True).alias(KEY_ONLY))]
    return with_bucket(run.job.layout, run.plan, pl.concat(marked, how="diagonal"))
