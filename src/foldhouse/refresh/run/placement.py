"""Where signed rows are folded: every row says it of itself, alike in every task, so that no task has to ask another.

A row belongs to a bucket, a bucket to a group (what is folded together), a group to a task. Where a bucket may be too
large to be folded at once, a row's key says which subgroup of it the row is in.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl
from pyiceberg.transforms import BucketTransform

from foldhouse.kernel.canonical import canonical
from foldhouse.kernel.plan import FoldPlan
from foldhouse.refresh.bucket.fold import BucketJob, partition_of
from foldhouse.storage.files import Partition


@dataclass(frozen=True)
class Placement:
    """Which group, task and subgroup a row belongs to.

    Args:
        buckets: of each field of the partition spec, how many hash buckets it has; 1 for a day.
        tasks: group -> task.
        piece_rows: signed rows of a group that are folded at once, give or take a subgroup; more of buckets with files.
        subgroups: into how many parts keys are divided, so that a piece can be told from the next.
    """

    buckets: tuple[int, ...]
    tasks: tuple[int, ...]
    piece_rows: int
    subgroups: int = 1

    def group(self, bucket: str) -> int:
        """The group of a bucket: neighbouring days and hash buckets are in different ones."""
        return _group(self.buckets, partition_of(bucket), len(self.tasks))

    def subgroup(self, plan: FoldPlan) -> pl.Expr:
        """The subgroup of a row's key; 0.0 and -0.0 are one key, and so are all NaN."""
        if self.subgroups == 1:
            return pl.lit(0, pl.Int32)
        keys = pl.struct([canonical(pl.col(name), kind).alias(name) for name, kind in plan.keys])
        return (keys.hash() % self.subgroups).cast(pl.Int32)


def placed(job: BucketJob, rows: int, most_tasks: int, piece_rows: int) -> Placement:
    """Divide the buckets of a table into groups, and these among tasks, so that all tasks end together.

    Args:
        job: the table.
        rows: about how many signed rows there are.
        most_tasks: among how many tasks at most.
        piece_rows: how many of them a task folds at once.
    """
    transforms = [one.transform for one in job.layout.spec.fields]
    buckets = tuple(one.num_buckets if isinstance(one, BucketTransform) else 1 for one in transforms)
    has_days = any(not isinstance(one, BucketTransform) for one in transforms)
    groups = max(most_tasks, math.ceil(rows / job.tuning.task_group_rows))
    if not has_days:
        groups = min(groups, math.prod(buckets))
    weights = [rows / groups] * groups
    for partition, slices in job.slices.items():
        weights[_group(buckets, partition, groups)] += sum(one.file.rows for one in slices)
    largest = rows if has_days else min(rows, job.tuning.skew_factor * rows // math.prod(buckets))
    subgroups = max(1, math.ceil(largest / piece_rows))
    return Placement(buckets, _balanced(weights, min(most_tasks, groups)), piece_rows, subgroups)


def _group(buckets: tuple[int, ...], partition: Partition, groups: int) -> int:
    number = 0
    for value, count in zip(partition.values, buckets, strict=False):  # rows that are not folded have no values
        number = number * count + int(value or 0)
    return number % groups


def _balanced(weights: Sequence[float], tasks: int) -> tuple[int, ...]:
    """The heaviest first, each to the task that has least so far."""
    loads = [0.0] * tasks
    chosen = [0] * len(weights)
    for place in sorted(range(len(weights)), key=lambda place: -weights[place]):
        chosen[place] = loads.index(min(loads))
        loads[chosen[place]] += weights[place]
    return tuple(chosen)
