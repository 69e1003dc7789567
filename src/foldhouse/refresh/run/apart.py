"""Fold a large window of direct logic in this process, in parts: each output row comes of one part alone.

Direct logic is evaluated in memory, so large windows of it went to Spark. This process evaluates them part by part
instead, and divides the evaluated rows among groups of buckets:

| each output row comes of | a part is |
|---|---|
| one row | what is read at once |
| rows with equal values of some columns of every source | rows of all sources that have the same hash of these |
| one row of the root of a tree of joins, and rows that it meets | some rows of the root, and the other sources |

Memory holds a part for each thread, and divided rows up to a limit; further ones are in files.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from pathlib import Path

import polars as pl

from foldhouse.kernel.decisive import has_many_a_key
from foldhouse.refresh.bucket.fold import BucketResult
from foldhouse.refresh.rows.evaluate import has_choices
from foldhouse.refresh.rows.logic import Evaluation, Logic
from foldhouse.refresh.rows.read import with_all_columns
from foldhouse.refresh.rows.written import can_be_written
from foldhouse.refresh.run.by_cells import can_be_by_cells, parts_by_cells
from foldhouse.refresh.run.by_root import can_be_by_root, parts_by_root
from foldhouse.refresh.run.in_process import Run
from foldhouse.refresh.run.on_spark import fold_on_spark
from foldhouse.refresh.run.parts import Evaluated, NotHere, Reader, can_be_read, evaluated, readers
from foldhouse.refresh.run.placement import placed
from foldhouse.refresh.run.reading import rows_of_evaluations
from foldhouse.refresh.run.routing import Route, divided_frames
from foldhouse.refresh.run.spill import Spill
from foldhouse.refresh.run.written import fold_written
from foldhouse.storage.private import private_folder

_LOG = logging.getLogger("foldhouse")


def can_be_apart(logic: Logic, evaluations: Sequence[Evaluation]) -> bool:
    """Whether logic is evaluated here in parts: all rows of its sources, or for row-by-row logic, rows that came."""
    if logic.compiled.direct is None or not logic.tuning.direct_rows or any(map(has_choices, evaluations)):
        return False
    if any(one.weight < 0 or not can_be_read(logic, one) for one in evaluations):
        return False
    if logic.compiled.shape.is_linear:
        return True
    return len(evaluations) == 1 and (can_be_by_cells(logic) or can_be_by_root(logic, evaluations[0]))


def fold_apart(run: Run) -> list[BucketResult]:
    """Evaluate and fold a run in parts; with Spark, if a part is too large or cannot be evaluated in this process.

    No commit references the files of a fold that fails or is run again.

    Raises:
        InvalidData: see `combine`.
        FoldhouseError: Spark cannot evaluate the rows; see `fold_written`.
    """
    if run.recompute is None:
        try:
            return _folded(run)
        except NotHere:
            _LOG.info("%s: Spark evaluates its logic, because this process cannot evaluate every part", run.name)
    return (fold_written if can_be_written(run.logic) else fold_on_spark)(run)


def _folded(run: Run) -> list[BucketResult]:
    count, tuning, shape = os.cpu_count() or 1, run.job.tuning, run.logic.compiled.shape
    with private_folder() as folder, ThreadPoolExecutor(count) as threads:
        if not (parts := _parts(run, folder, threads, count)):
            return []
        # What comes first tells how many rows there will be, and whether adding them up pays.
        first = next(begun := parts[0](), None)
        given = rows_of_evaluations(run.evaluations)
        expected = first.height * len(parts) if first is not None and shape.cells else given
        sample = None if first is None else first.head(tuning.chunk_rows).select(run.plan.key_names)
        is_summing = run.plan.adds_up and sample is not None and has_many_a_key(sample, expected)
        placement = placed(run.job, max(expected, given), count, tuning.spilled_piece_rows)
        route = Route(run.plan, run.job.layout, placement, tuning, is_summing=is_summing)
        rest: list[Evaluated] = [lambda: chain([] if first is None else [first], begun), *parts[1:]]
        with contextlib.closing(Spill(folder, tuning.unspilled_bytes)) as spill:
            list(threads.map(lambda part: spill.take_all(divided_frames(route, part())), rest))
            return spill.folded(run.job, threads)


def _parts(run: Run, folder: Path, threads: ThreadPoolExecutor, count: int) -> list[Evaluated]:
    if run.logic.compiled.shape.is_linear:
        return _by_rows(run, count)
    (sources := folder / "sources").mkdir(mode=0o700)
    return (parts_by_cells if can_be_by_cells(run.logic) else parts_by_root)(run, sources, threads, count)


def _by_rows(run: Run, count: int) -> list[Evaluated]:
    """Return the parts of row-by-row logic: rows of one source, those of the others make rows of their own."""
    return [
        partial(_rows_of, run, evaluation, place, read)
        for evaluation in run.evaluations
        for place in range(len(run.logic.layouts))
        for read in readers(run.logic, place, evaluation, 4 * count)
    ]


def _rows_of(run: Run, evaluation: Evaluation, place: int, read: Reader) -> Iterator[pl.DataFrame]:
    nothing = [with_all_columns(run.logic, other, []) for other in range(len(run.logic.layouts))]
    for rows in read():
        part = with_all_columns(run.logic, place, [rows])
        yield evaluated(run, evaluation, [part if other == place else empty for other, empty in enumerate(nothing)])
