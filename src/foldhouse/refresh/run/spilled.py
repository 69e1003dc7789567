"""Fold a large window in this process, as Spark tasks would; memory and a temporary folder are the shuffle.

One machine reads, divides and folds millions of rows in less time than it takes to pass them to the JVM and back.
Memory holds the divided rows up to a limit, a few chunks that are being divided, then one group of buckets per thread.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

import polars as pl

from foldhouse.kernel.plan import WEIGHT
from foldhouse.refresh.bucket.fold import BucketJob, BucketResult
from foldhouse.refresh.bucket.names import BUCKET, Placed, placed_rows, with_bucket
from foldhouse.refresh.rows.evaluate import empty_rows
from foldhouse.refresh.rows.logic import Evaluation, Logic
from foldhouse.refresh.run.deciding import decide_alone, decisive_rows, summing_pays
from foldhouse.refresh.run.in_process import Run, folded_here, folded_together, recomputed_here
from foldhouse.refresh.run.placement import placed
from foldhouse.refresh.run.reading import is_read_as_it_is, reading_of, rows_of_run
from foldhouse.refresh.run.repeated import repeated_ids, rows_of_repeated
from foldhouse.refresh.run.routing import Reading, Route, Split, divided, read_splits, rows_of_splits, typed_rows
from foldhouse.refresh.run.spill import Spill
from foldhouse.storage.private import private_folder

Recomputed = Callable[[], pl.DataFrame]
"""Returns all rows of the keys that were unresolved, and one marker row per key; see `recomputed_here`."""


def can_be_spilled(logic: Logic, evaluations: Sequence[Evaluation]) -> bool:
    """Whether the rows to fold can be read from the files as they are, but for events that were delivered again."""
    if all(is_read_as_it_is(logic, one) for one in evaluations):
        return True
    return repeated_ids(logic, evaluations) is not None


def fold_spilled(run: Run) -> list[BucketResult]:
    """Read the pieces with Arrow, divide their rows among groups of buckets on disk, and fold group by group.

    No commit references the files of a fold that fails or is run again.

    Raises:
        InvalidData: see `combine`.
    """
    recomputed = None if run.recompute is None else partial(recomputed_here, run, run.recompute)
    return fold_window(window_of(run, os.cpu_count() or 1), recomputed)


@dataclass(frozen=True, eq=False)
class Window:
    """What one process reads, divides and folds; it may be sent to a Spark task.

    Args:
        job: the job of the table.
        route: divides the rows among groups of buckets.
        reading: the rows of the files.
        besides: further signed rows.
        at_once: the number of threads.
    """

    job: BucketJob
    route: Route
    reading: Reading
    besides: tuple[pl.DataFrame, ...]
    at_once: int


def window_of(run: Run, at_once: int) -> Window:
    """Prepare a run that `can_be_spilled` for one process."""
    again = repeated_ids(run.logic, run.evaluations)
    left_out = None if again is None or again.keys.is_empty() else again
    reading = reading_of(run.logic, run.evaluations, 4 * at_once, left_out)
    besides = () if left_out is None else (rows_of_repeated(run.logic, run.evaluations[0], left_out),)
    return Window(run.job, _route(run, rows_of_run(run), at_once), reading, besides, at_once)


def window_of_rows(run: Run, rows: pl.DataFrame, at_once: int) -> Window:
    """Prepare signed rows of a run that were read already for one process, perhaps another one."""
    reading = reading_of(run.logic, [], 1)
    return Window(run.job, _route(run, rows.height, at_once), reading, (rows,), at_once)


def _route(run: Run, rows: int, at_once: int) -> Route:
    # Several groups for each thread, so that all threads end together.
    placement = placed(run.job, rows, 4 * at_once, run.job.tuning.spilled_piece_rows)
    buckets = run.recompute.buckets if run.recompute else frozenset()
    return Route(run.plan, run.job.layout, placement, run.job.tuning, buckets)


def fold_window(window: Window, recomputed: Recomputed | None = None) -> list[BucketResult]:
    """Read, divide and fold a window with the threads of this process.

    The temporary folder is always removed afterwards; the folder of a killed process is removed by the next process.
    If few rows of the window decide and these fit in memory, no folder is used.

    Args:
        window: from `window_of`.
        recomputed: returns all rows of the keys that were unresolved, and one marker row per key.

    Raises:
        InvalidData: see `combine`.
    """
    reading, route = window.reading, window.route
    plan, tuning = route.plan, route.tuning
    with ThreadPoolExecutor(window.at_once) as threads:
        if recomputed is None and _fits_at_once(window):
            return _folded_at_once(window, threads)
        if not decide_alone(plan, reading, tuning):
            window = replace(window, route=replace(route, is_summing=summing_pays(plan, reading, tuning)))
            return _through_a_folder(window, threads, recomputed, partial(_read_all, reading, window.besides))
        deciding = chain(
            decisive_rows(plan, reading, window.at_once, tuning.decided_rows),
            (rows.select(*(one.meta.output_name() for one in reading.signed), WEIGHT) for rows in window.besides),
        )
        kept = list(_until(deciding, tuning.decisive_bytes))
        if sum(rows.estimated_size() for rows in kept) > tuning.decisive_bytes:
            return _through_a_folder(window, threads, recomputed, partial(_take_all, chain(kept, deciding)))
    rows = typed_rows(plan, pl.concat(kept))
    if recomputed is None:
        return folded_here(window.job, placed_rows(route.layout, plan, rows), at_once=window.at_once)
    wanted = pl.col(BUCKET).is_in(list(route.buckets))
    some, full = (Placed.of_texts(with_bucket(route.layout, plan, one).filter(wanted)) for one in (rows, recomputed()))
    return folded_here(window.job, some, full, window.at_once)


def _fits_at_once(window: Window) -> bool:
    """Whether the threads hold so many rows at once anyway, when they fold divided rows."""
    splits, tuning = window.reading.splits, window.route.tuning
    rows = sum(split.rows for of_thread in splits for split in of_thread) + sum(one.height for one in window.besides)
    size = sum(split.piece.file.size_bytes / split.parts for of_thread in splits for split in of_thread)
    return rows <= window.at_once * tuning.spilled_piece_rows and size <= tuning.kept_alone_bytes


def _folded_at_once(window: Window, threads: ThreadPoolExecutor) -> list[BucketResult]:
    """Fold the rows of a small window without dividing them among groups first."""
    reading, plan = window.reading, window.route.plan

    def read(splits: Sequence[Split]) -> list[pl.DataFrame]:
        return [typed_rows(plan, rows) for rows in rows_of_splits(reading, splits)]

    found = [rows for frames in threads.map(read, reading.splits) for rows in frames]
    besides = [typed_rows(plan, rows) for rows in window.besides]
    return folded_together(window.job, pl.concat([empty_rows(plan), *found, *besides]), window.at_once)


def _until(frames: Iterable[pl.DataFrame], most_bytes: int) -> Iterator[pl.DataFrame]:
    """Yield frames until their sizes add up to more than `most_bytes`."""
    size = 0.0
    for rows in frames:
        yield rows
        size += rows.estimated_size()
        if size > most_bytes:
            return


def _through_a_folder(
    window: Window,
    threads: ThreadPoolExecutor,
    recomputed: Recomputed | None,
    divide: Callable[[Route, Spill, ThreadPoolExecutor], None],
) -> list[BucketResult]:
    route = window.route
    with private_folder() as folder, contextlib.closing(Spill(folder, route.tuning.unspilled_bytes)) as spill:
        divide(route, spill, threads)
        if recomputed is not None:
            spill.take_all(divided(replace(route, recomputed=True), recomputed()))
        return spill.folded(window.job, threads)


def _read_all(
    reading: Reading, besides: Iterable[pl.DataFrame], route: Route, spill: Spill, threads: ThreadPoolExecutor
) -> None:
    def read(splits: Sequence[Split]) -> None:
        spill.take_all(read_splits(route, reading, splits))

    list(threads.map(read, reading.splits))
    _take_all(besides, route, spill, threads)


def _take_all(frames: Iterable[pl.DataFrame], route: Route, spill: Spill, threads: ThreadPoolExecutor) -> None:
    for rows in frames:
        spill.take_all(divided(route, rows))
