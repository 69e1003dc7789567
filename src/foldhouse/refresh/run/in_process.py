"""The input of a runner, and the runner that folds a window in this process.

A small window is folded here, because starting Spark tasks costs more than folding it. A larger window is folded by
`foldhouse.refresh.run.spilled` or `foldhouse.refresh.run.on_spark`. All of them fold buckets with `fold_buckets`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

import polars as pl

from foldhouse.errors import InvalidData
from foldhouse.kernel.keyed import by_keys
from foldhouse.kernel.plan import WEIGHT, FoldPlan
from foldhouse.refresh.bucket.fold import BucketJob, BucketResult, fold_buckets, groups_of
from foldhouse.refresh.bucket.names import BUCKET, KEY_ONLY, with_bucket
from foldhouse.refresh.rows.evaluate import evaluated_here
from foldhouse.refresh.rows.logic import Evaluation, Logic
from foldhouse.storage.threads import in_threads


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
        return folded_here(run, full.drop(KEY_ONLY).clear(), full)
    rows = with_bucket(run.job.layout, run.plan, evaluated_here(run.logic, run.evaluations))
    recomputed = None
    if run.recompute is not None:
        wanted = pl.col(BUCKET).is_in(list(run.recompute.buckets))
        rows, recomputed = rows.filter(wanted), recomputed_here(run, run.recompute).filter(wanted)
    return folded_here(run, rows, recomputed)


def folded_here(run: Run, rows: pl.DataFrame, recomputed: pl.DataFrame | None = None) -> list[BucketResult]:
    """Fold signed rows with their `__bucket` in this process, several groups of buckets at a time.

    Raises:
        InvalidData: see `combine`; the message contains the table's name.
    """
    try:
        groups = groups_of(run.job, rows, recomputed, os.cpu_count() or 1)
        folded = in_threads(lambda group: fold_buckets(run.job, *group), groups)
        return [result for results in folded for result in results]
    except InvalidData as failure:
        raise InvalidData(f"{run.name}: {failure}") from failure


def recomputed_here(run: Run, recompute: Recompute) -> pl.DataFrame:
    """Return all rows of the unresolved keys, and one marker row per key, with their `__bucket`.

    A key without rows still has its marker, so that it is deleted from the table.
    """
    if recompute.evaluation is None:
        rows = evaluated_here(run.logic, run.evaluations).filter(pl.col(WEIGHT) > 0)
    else:
        rows = evaluated_here(run.logic, [recompute.evaluation])
    full = by_keys(rows, recompute.keys, run.plan.key_names, "semi").with_columns(pl.lit(False).alias(KEY_ONLY))
    marked = [full, recompute.keys.with_columns(pl.lit(True).alias(KEY_ONLY))]
    return with_bucket(run.job.layout, run.plan, pl.concat(marked, how="diagonal"))
