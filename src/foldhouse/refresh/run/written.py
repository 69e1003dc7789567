"""Fold rows that Spark evaluates in this process, though they may be more than fit into memory.

Spark writes the rows to files of a temporary folder, and this process divides and folds them as it does in `spilled`.
Handing over the rows through Python workers and a shuffle takes about twice as long on one machine.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import polars as pl

from foldhouse.errors import FoldhouseError
from foldhouse.kernel.combine import summed_scan
from foldhouse.kernel.decisive import has_many_a_key
from foldhouse.kernel.deltas import can_be_scanned
from foldhouse.kernel.keyed import by_keys
from foldhouse.kernel.plan import WEIGHT, FoldPlan, polars_type
from foldhouse.refresh.bucket.fold import BucketResult
from foldhouse.refresh.bucket.names import KEY_ONLY
from foldhouse.refresh.rows.evaluate import empty_rows
from foldhouse.refresh.rows.handed_over import TooMuchToCollect
from foldhouse.refresh.rows.sums import can_be_summed
from foldhouse.refresh.rows.written import WrittenPart, written_by_spark
from foldhouse.refresh.run.in_process import Recompute, Run, folded_rows, folded_sums, folded_sums_of_spark
from foldhouse.refresh.run.placement import placed
from foldhouse.refresh.run.routing import Part, Route, divided, divided_frames, typed_rows
from foldhouse.refresh.run.spill import Spill
from foldhouse.storage.private import private_folder
from foldhouse.storage.threads import in_threads

_LOG = logging.getLogger("foldhouse")


def fold_written(run: Run) -> list[BucketResult]:
    """Let Spark evaluate the rows and write them to a temporary folder, and fold group by group what is there.

    The folder is always removed afterwards; that of a killed process is removed by the next one. No commit references
    the files of a fold that fails or is run again.

    Raises:
        InvalidData: see `combine`.
        FoldhouseError: Spark cannot evaluate or write the rows; see `translating_spark_errors`.
    """
    with contextlib.suppress(TooMuchToCollect):
        if (folded := folded_sums_of_spark(run)) is not None:
            return folded
    threads_count, tuning = os.cpu_count() or 1, run.job.tuning
    with private_folder() as folder:
        window = written_by_spark(run.logic, run.evaluations, folder / "window")
        if run.recompute is None and _bytes_in(window) <= tuning.unspilled_bytes:
            if (sums := _scanned_sums(run, window)) is not None:
                return folded_rows(run.job, sums)
            if can_be_summed(run.plan):
                return folded_sums(run.job, pl.concat([empty_rows(run.plan), *in_threads(_typed(run.plan), window)]))
        again = window
        if run.recompute is not None and run.recompute.evaluation is not None:
            again = written_by_spark(run.logic, [run.recompute.evaluation], folder / "again", run.recompute.keys)
        rows = _rows_in(window) + (0 if again is window else _rows_in(again))
        placement = placed(run.job, rows, threads_count, tuning.spilled_piece_rows)
        buckets = frozenset() if run.recompute is None else run.recompute.buckets
        route = Route(run.plan, run.job.layout, placement, tuning, buckets)
        with (
            ThreadPoolExecutor(threads_count) as threads,
            contextlib.closing(Spill(folder, tuning.unspilled_bytes)) as spill,
        ):
            summing = replace(route, is_summing=_summing_pays(run.plan, window, tuning.chunk_rows))
            list(threads.map(lambda part: spill.take_all(divided_frames(summing, [part.rows()])), window))
            if run.recompute is not None:
                of_keys = replace(route, recomputed=True)
                divide = partial(_of_keys, of_keys, run.recompute)
                list(threads.map(lambda part: spill.take_all(divide(part)), again))
                spill.take_all(divided(of_keys, _marks(run.plan, run.recompute.keys)))
            return spill.folded(run.job, threads)


def _scanned_sums(run: Run, window: Sequence[WrittenPart]) -> pl.DataFrame | None:
    """Add up rows while they are read; `None` if some are taken back, have a null key, or are no rows as expected.

    Reading them first takes new memory for all of them, which the kernel clears.
    """
    plan = run.plan
    has_null_key = any(not part.has_null.isdisjoint(plan.key_names) for part in window)
    is_addition = all(one.weight > 0 for one in run.evaluations)
    if not (window and is_addition and can_be_scanned(plan)) or has_null_key:
        return None
    types = {column.name: polars_type(column.type) for column in plan.delta_schema}
    try:
        return summed_scan(plan, WrittenPart.scanned(window).select(*types).cast(types))
    except (pl.exceptions.PolarsError, FoldhouseError) as failure:
        # What is wrong with which row is said where rows are read one part at a time.
        _LOG.debug("%s: rows are read before they are added up, because: %s", run.name, failure)
        return None


def _typed(plan: FoldPlan) -> Callable[[WrittenPart], pl.DataFrame]:
    return lambda part: typed_rows(plan, part.rows())


def _bytes_in(parts: Sequence[WrittenPart]) -> int:
    return sum(part.byte_count for part in parts)


def _rows_in(parts: Sequence[WrittenPart]) -> int:
    return sum(part.row_count for part in parts)


def _summing_pays(plan: FoldPlan, parts: Sequence[WrittenPart], sampled_rows: int) -> bool:
    """Whether rows add up to clearly fewer partial sums, by the first of them."""
    if not plan.adds_up or not parts:
        return False
    return has_many_a_key(parts[0].rows().head(sampled_rows).select(plan.key_names), _rows_in(parts))


def _of_keys(route: Route, recompute: Recompute, part: WrittenPart) -> Iterator[list[Part]]:
    """Divide the present rows of the keys that are computed again."""
    present = part.rows().filter(pl.col(WEIGHT) > 0)
    rows = by_keys(present, recompute.keys, route.plan.key_names, "semi")
    return divided(route, rows.with_columns(pl.lit(False).alias(KEY_ONLY)))


def _marks(plan: FoldPlan, keys: pl.DataFrame) -> pl.DataFrame:
    """Return a marker row per key, so that a key without rows is deleted; see `recomputed_here`."""
    return pl.concat([empty_rows(plan), keys.with_columns(pl.lit(True).alias(KEY_ONLY))], how="diagonal")
