"""Fold rows that Spark evaluates in this process, though they may be more than fit into memory.

Spark writes the rows to files of a temporary folder, and this process divides and folds them as it does in `spilled`.
Handing over the rows through Python workers and a shuffle takes about twice as long on one machine.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import polars as pl

from foldhouse.errors import FoldhouseError
from foldhouse.kernel.combine import carried, summed_scan
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
from foldhouse.refresh.run.joined import joined_for_spark
from foldhouse.refresh.run.placement import hash_of_keys, placed
from foldhouse.refresh.run.routing import Part, Route, divided, divided_frames, typed_rows
from foldhouse.refresh.run.spill import Spill
from foldhouse.storage.private import private_folder
from foldhouse.storage.threads import in_threads
from foldhouse.values.tuning import Tuning

_LOG = logging.getLogger("foldhouse")
_KEY_SAMPLE = 64
"""Of the keys with one of so many remainders of their hash, it is counted how many there are."""
_SUM_BYTES = 64
"""The sums of a key take about so many bytes more than a row, and some three times as much again to fold them."""
_MOST_PASSES = 8
"""More passes decode the rows more often than dividing them would cost."""


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
        joined = joined_for_spark(run, folder / "joined")
        with joined.watched(run.name):
            window = written_by_spark(run.logic, run.evaluations, folder / "window", given=joined.frames)
        shutil.rmtree(folder / "joined", ignore_errors=True)
        if run.recompute is None and (folded := _folded_sums(run, window, folder / "sums")) is not None:
            return folded
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


def _folded_sums(run: Run, window: Sequence[WrittenPart], folder: Path) -> list[BucketResult] | None:
    """Fold rows that are added up before they are divided; `None` if they cannot be, or if that does not pay.

    Args:
        run: of the rows; no key is computed again.
        window: the rows.
        folder: for sums that do not fit into memory; it must not exist.
    """
    plan, tuning = run.plan, run.job.tuning
    fits = _bytes_in(window) + _SUM_BYTES * _rows_in(window) <= tuning.unspilled_bytes
    if _can_be_scanned(run, window):
        keys = 0 if fits else _keys_in(plan, window)
        passes = _passes(keys, window, tuning)
        if passes == 1 and (sums := _scanned_sums(run, window)) is not None:
            return folded_rows(run.job, sums)
        if passes > 1 and (folded := _folded_in_passes(run, window, keys, passes, folder)) is not None:
            return folded
    if fits and can_be_summed(plan):
        return folded_sums(run.job, pl.concat([empty_rows(plan), *in_threads(_typed(plan), window)]))
    return None


def _can_be_scanned(run: Run, window: Sequence[WrittenPart]) -> bool:
    """Whether no row is taken back, no key is null, and the folds are computed alike in any order of the rows."""
    has_null_key = any(not part.has_null.isdisjoint(run.plan.key_names) for part in window)
    is_addition = all(one.weight > 0 for one in run.evaluations)
    return bool(window) and is_addition and can_be_scanned(run.plan) and not has_null_key


def _keys_in(plan: FoldPlan, window: Sequence[WrittenPart]) -> int:
    """Estimate how many keys rows have, from those whose hash has a certain remainder.

    A sample of the rows would not tell, if each key comes once a day.
    """
    found = WrittenPart.scanned(window).filter(_of_part(plan, _KEY_SAMPLE, 0)).select(hash_of_keys(plan).n_unique())
    try:
        return _KEY_SAMPLE * int(found.collect(engine="streaming").item())
    except pl.exceptions.PolarsError:  # what is wrong is said where rows are read one part at a time
        return _rows_in(window)


def _of_part(plan: FoldPlan, parts: int, number: int) -> pl.Expr:
    return hash_of_keys(plan) % parts == number


def _passes(keys: int, window: Sequence[WrittenPart], tuning: Tuning) -> int:
    """Return in how many passes, each over a part of the keys, the sums fit into memory; 0 if dividing costs less.

    A pass decodes all rows, but divides none of them.
    """
    rows = _rows_in(window)
    size = keys * (_bytes_in(window) / rows + _SUM_BYTES)
    passes = max(1, math.ceil(size / max(1, tuning.unspilled_bytes)))
    pays = passes == 1 or (passes <= _MOST_PASSES and keys <= tuning.summed_keys_share * rows)
    return passes if pays else 0


def _folded_in_passes(
    run: Run, window: Sequence[WrittenPart], keys: int, passes: int, folder: Path
) -> list[BucketResult] | None:
    """Add up rows for one part of the keys after another, divide the sums, and fold them group by group."""
    threads_count, tuning = os.cpu_count() or 1, run.job.tuning
    placement = placed(run.job, keys, threads_count, tuning.spilled_piece_rows)
    route = Route(run.plan, run.job.layout, placement, tuning)
    folder.mkdir()
    with (
        ThreadPoolExecutor(threads_count) as threads,
        contextlib.closing(Spill(folder, tuning.unspilled_bytes)) as spill,
    ):
        for number in range(passes):
            if (sums := _scanned_sums(run, window, _of_part(run.plan, passes, number))) is None:
                return None
            slices = carried(sums).iter_slices(tuning.chunk_rows)
            list(threads.map(lambda rows: spill.take_all(divided(route, rows)), slices))
        return spill.folded(run.job, threads)


def _scanned_sums(run: Run, window: Sequence[WrittenPart], wanted: pl.Expr | None = None) -> pl.DataFrame | None:
    """Add up rows while they are read; `None` if they are no rows as expected.

    Reading them first takes new memory for all of them, which the kernel clears.

    Args:
        run: of rows that `_can_be_scanned`.
        window: the rows.
        wanted: selects some of them by their keys.
    """
    types = {column.name: polars_type(column.type) for column in run.plan.delta_schema}
    try:
        rows = WrittenPart.scanned(window).select(*types).cast(types)
        return summed_scan(run.plan, rows if wanted is None else rows.filter(wanted))
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
