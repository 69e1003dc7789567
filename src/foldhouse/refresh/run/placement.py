"""Assign signed rows to tasks by their keys alone, so that all tasks agree without communicating.

A row belongs to a bucket, a bucket to a group that is folded together, and a group to a task. If a bucket may be too
large to be folded at once, the hash of a row's key also assigns the row to a subgroup.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl
from pyiceberg.transforms import BucketTransform

from foldhouse.kernel.canonical import canonical
from foldhouse.kernel.plan import FoldPlan
from foldhouse.refresh.bucket.fold import BucketJob
from foldhouse.refresh.bucket.names import partition_of
from foldhouse.storage.live import Partition


@dataclass(frozen=True)
class Placement:
    """The assignment of rows to groups, tasks and subgroups.

    Args:
        buckets: per field of the partition spec, its number of hash buckets; 1 for a day.
        tasks: group -> task.
        piece_rows: signed rows of a group that are folded at once, rounded up to whole subgroups. Buckets with files
            are folded at once even if they have more.
        subgroups: number of subgroups of a group, by the hash of the key.
    """

    buckets: tuple[int, ...]
    tasks: tuple[int, ...]
    piece_rows: int
    subgroups: int = 1

    def group(self, bucket: str) -> int:
        """Return the group of a bucket; neighbouring days and hash buckets are in different groups."""
        return _group(self.buckets, partition_of(bucket), len(self.tasks))

    def task(self, bucket: str) -> int:
        """Return the task of a bucket."""
        return self.tasks[self.group(bucket)]

    def subgroup(self, plan: FoldPlan) -> pl.Expr:
        """Return the subgroup of a row's key as an expression."""
        if self.subgroups == 1:
            return pl.lit(0, pl.Int32)
        # Not Iceberg's hash of the bucket: all keys of a bucket have equal remainders of it.
        return (hash_of_keys(plan) % self.subgroups).cast(pl.Int32)


def hash_of_keys(plan: FoldPlan) -> pl.Expr:
    """Return a hash of a row's key as an expression; 0.0 and -0.0 are one key, and so are all NaN."""
    return pl.struct([canonical(pl.col(name), kind).alias(name) for name, kind in plan.keys]).hash()


def placed(job: BucketJob, rows: int, most_tasks: int, piece_rows: int) -> Placement:
    """Divide the buckets of a table into groups, and the groups among tasks, so that all tasks end together.

    Args:
        job: the job of the table.
        rows: about how many signed rows there are.
        most_tasks: the largest number of tasks.
        piece_rows: how many signed rows a task folds at once.
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
    for value, count in zip(
        partition.values, buckets, strict=False
    ):  # the partition of rows that are left out has no values
        number = number * count + int(value or 0)
    return number % groups


def _balanced(weights: Sequence[float], tasks: int) -> tuple[int, ...]:
    """Assign groups to tasks, the heaviest first, each to the task with the least load so far."""
    loads = [0.0] * tasks
    chosen = [0] * len(weights)
    for place in sorted(range(len(weights)), key=lambda place: -weights[place]):
        chosen[place] = loads.index(min(loads))
        loads[chosen[place]] += weights[place]
    return tuple(chosen)
