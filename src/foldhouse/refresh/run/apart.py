"""Fold a large window of direct logic in this process, in parts whose rows never meet in an output row.

Direct logic is evaluated in memory, so large windows of it went to Spark. Where a join or a grouping meets only rows
with equal values of some columns, this process divides the rows of all sources by the hash of these values, evaluates
part by part, and divides the evaluated rows among groups of buckets. Where each output row comes of one row, what is
read at once is a part. Memory holds a part for each thread, and divided rows up to a limit; further ones are in files.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial, reduce
from itertools import chain
from pathlib import Path

import numpy as np
import polars as pl

from foldhouse.kernel.decisive import has_many_a_key
from foldhouse.kernel.plan import WEIGHT, polars_type
from foldhouse.refresh.bucket.fold import BucketResult
from foldhouse.refresh.rows.evaluate import evaluated_directly, has_choices
from foldhouse.refresh.rows.logic import Evaluation, Logic
from foldhouse.refresh.rows.read import with_all_columns
from foldhouse.refresh.rows.written import can_be_written
from foldhouse.refresh.run.in_process import Run
from foldhouse.refresh.run.on_spark import fold_on_spark
from foldhouse.refresh.run.placement import placed
from foldhouse.refresh.run.reading import rows_of_evaluations
from foldhouse.refresh.run.routing import Part, Reading, Route, Split, divided_frames, rows_of_split, split_among
from foldhouse.refresh.run.spill import Spill
from foldhouse.refresh.run.written import fold_written
from foldhouse.storage.live import without_bounds
from foldhouse.storage.private import private_folder
from foldhouse.values.definition import Stream

_LOG = logging.getLogger("foldhouse")
_COMPARED = (pl.Boolean, pl.String, pl.Date, pl.Datetime)
"""Types of which equal values have equal hashes, beside whole numbers. Of floats, 0.0 and -0.0 are equal."""
_SEEDS = (0x9E3779B97F4A7C15, 0x5851F42D4C957F2D)
_COUNTERS, _SHIFT = 1 << 20, np.uint64(64 - 20)
"""The rows of so many ranges of hashes are counted: of a million rows, about one is in each."""

Evaluated = Iterator[pl.DataFrame]
"""The signed rows of a part."""


class _NotHere(Exception):
    """A part cannot be evaluated in this process."""


def can_be_apart(logic: Logic, evaluations: Sequence[Evaluation]) -> bool:
    """Whether logic is evaluated here in parts: all rows of its sources, or for row-by-row logic, rows that came."""
    compiled = logic.compiled
    if compiled.direct is None or not logic.tuning.direct_rows or any(map(has_choices, evaluations)):
        return False
    if any(one.weight < 0 for one in evaluations) or compiled.shape.sources:
        return False
    if any(isinstance(source, Stream) and source.event_id for source in compiled.table.sources):
        return False
    return compiled.shape.is_linear or (len(evaluations) == 1 and _has_comparable_cells(logic))


def _has_comparable_cells(logic: Logic) -> bool:
    """Whether rows of the same cell have the same hash in every source."""
    cells, needed = logic.compiled.shape.cells, logic.compiled.needed
    if not cells or any(not set(names) <= set(needed[place]) for place, names in enumerate(cells)):
        return False
    types = [
        [polars_type(layout.arrow.field(name).type) for name in names]
        for layout, names in zip(logic.layouts, cells, strict=True)
    ]
    return all(one == types[0] for one in types) and all(one.is_integer() or one in _COMPARED for one in types[0])


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
        except _NotHere:
            _LOG.info("%s: Spark evaluates its logic, because this process cannot evaluate every part", run.name)
    return (fold_written if can_be_written(run.logic) else fold_on_spark)(run)


def _folded(run: Run) -> list[BucketResult]:
    count, tuning = os.cpu_count() or 1, run.job.tuning
    with private_folder() as folder, ThreadPoolExecutor(count) as threads:
        if run.logic.compiled.shape.is_linear:
            parts = _of_rows(run, count)
        else:
            parts = _of_cells(run, folder, threads, count)
        if not parts:
            return []
        # What comes first tells how many rows there will be, and whether adding them up pays.
        first = next(begun := parts[0](), None)
        given = rows_of_evaluations(run.evaluations)
        expected = given if first is None or run.logic.compiled.shape.is_linear else first.height * len(parts)
        sample = None if first is None else first.head(tuning.chunk_rows).select(run.plan.key_names)
        is_summing = run.plan.adds_up and sample is not None and has_many_a_key(sample, expected)
        placement = placed(run.job, max(expected, given), count, tuning.spilled_piece_rows)
        route = Route(run.plan, run.job.layout, placement, tuning, is_summing=is_summing)
        rest: list[Callable[[], Evaluated]] = [lambda: chain([] if first is None else [first], begun), *parts[1:]]
        with contextlib.closing(Spill(folder, tuning.unspilled_bytes)) as spill:
            list(threads.map(lambda part: spill.take_all(divided_frames(route, part())), rest))
            return spill.folded(run.job, threads)


def _reading(logic: Logic, place: int, evaluation: Evaluation, tasks: int) -> Reading:
    """Divide the rows of a source that an evaluation reads, with its needed columns."""
    columns = tuple(logic.compiled.needed[place])
    splits = split_among([(without_bounds(piece), None, 1) for piece in evaluation.pieces[place]], tasks)
    return Reading(logic.layouts[place], columns, tuple(map(pl.col, columns)), splits, logic.tuning.chunk_rows)


def _rows_of(reading: Reading, splits: Sequence[Split]) -> Iterator[pl.DataFrame]:
    """Yield the rows of splits, those of small files together."""
    pending: list[pl.DataFrame] = []
    for split in splits:
        for rows in rows_of_split(reading, split):
            pending.append(rows.drop(WEIGHT))
            if sum(one.height for one in pending) >= reading.chunk_rows:
                yield pl.concat(pending)
                pending = []
    if pending:
        yield pl.concat(pending)


def _evaluated(run: Run, evaluation: Evaluation, frames: Sequence[Sequence[pl.DataFrame]]) -> pl.DataFrame:
    """Return the signed rows of some rows of each source.

    Raises:
        _NotHere: they are too many, or a value cannot be computed here.
    """
    sources = [with_all_columns(run.logic, place, rows) for place, rows in enumerate(frames)]
    if _most_rows(run.logic, sources) > run.job.tuning.direct_rows:
        raise _NotHere
    found = evaluated_directly(run.logic, [(evaluation, sources)])
    if found is None:
        raise _NotHere
    return found[0]


# Row by row


def _of_rows(run: Run, count: int) -> list[Callable[[], Evaluated]]:
    """Return the parts of row-by-row logic: rows of one source, those of the others make rows of their own."""
    return [
        partial(_rows_of_splits, run, evaluation, place, reading, splits)
        for evaluation in run.evaluations
        for place in range(len(run.logic.layouts))
        for reading in [_reading(run.logic, place, evaluation, 4 * count)]
        for splits in reading.splits
    ]


def _rows_of_splits(
    run: Run, evaluation: Evaluation, place: int, reading: Reading, splits: Sequence[Split]
) -> Evaluated:
    frames: list[list[pl.DataFrame]] = [[] for _ in run.logic.layouts]
    for rows in _rows_of(reading, splits):
        frames[place] = [rows]
        yield _evaluated(run, evaluation, frames)


# By cells


def _of_cells(run: Run, folder: Path, threads: ThreadPoolExecutor, count: int) -> list[Callable[[], Evaluated]]:
    """Divide the rows of all sources by the hash of their cells; return the parts that have a row."""
    (evaluation,) = run.evaluations
    tuning, logic = run.job.tuning, run.logic
    rows = rows_of_evaluations([evaluation])
    size = sum(piece.file.size_bytes for pieces in evaluation.pieces for piece in pieces)
    by_size = min(rows, math.ceil(size / max(1, tuning.kept_alone_bytes)))
    groups = max(4 * count, math.ceil(rows / tuning.spilled_piece_rows), by_size)
    (sides := folder / "sources").mkdir(mode=0o700)
    spill = Spill(sides, tuning.unspilled_bytes)
    with contextlib.closing(spill):
        for place in range(len(logic.layouts)):
            reading = _reading(logic, place, evaluation, 4 * count)
            list(threads.map(partial(_divide, logic, place, groups, reading, spill), reading.splits))
    return [partial(_rows_of_group, run, evaluation, spill, group) for group in spill.groups]


def _divide(logic: Logic, place: int, groups: int, reading: Reading, spill: Spill, splits: Sequence[Split]) -> None:
    """Read splits of a source, and divide their rows among so many groups of cells."""
    for rows in _rows_of(reading, splits):
        numbers = (_hashes(logic, place, rows) % np.uint64(groups)).astype(np.min_scalar_type(groups))
        ordered = rows[np.argsort(numbers, kind="stable")]
        ends = np.cumsum(sizes := np.bincount(numbers, minlength=groups))
        spill.take(
            Part(group, place, False, ordered[end - size : end])
            for group, (size, end) in enumerate(zip(sizes.tolist(), ends.tolist(), strict=True))
            if size
        )


def _rows_of_group(run: Run, evaluation: Evaluation, spill: Spill, group: int) -> Evaluated:
    frames: list[list[pl.DataFrame]] = [[] for _ in run.logic.layouts]
    with spill.parts_of(group) as parts:
        for part in parts:
            frames[part.subgroup].append(part.rows)
        yield _evaluated(run, evaluation, frames)


def _hashes(logic: Logic, place: int, rows: pl.DataFrame) -> np.ndarray:
    """Return a number for the cell of each row, as uint64; cells with equal values have equal numbers, also of null."""
    seed, factor = _SEEDS
    each = [rows[name].hash(seed).to_numpy() for name in logic.compiled.shape.cells[place]]
    return reduce(lambda one, other: one * np.uint64(factor) + other, each)


def _most_rows(logic: Logic, sources: Sequence[pl.DataFrame]) -> int:
    """Return a bound of the rows that joins make of some rows: products of how many there are of each cell's hash."""
    whole = sum(rows.height for rows in sources)
    if logic.compiled.shape.is_linear or len(sources) == 1:
        return whole
    cells = logic.compiled.shape.cells
    # A join equates the columns of its cells, so that null meets nothing.
    known = [rows.drop_nulls(list(names)) for rows, names in zip(sources, cells, strict=True)]
    counts = [
        np.bincount((_hashes(logic, place, rows) >> _SHIFT).astype(np.int64), minlength=_COUNTERS)
        for place, rows in enumerate(known)
    ]
    met = np.flatnonzero(reduce(np.add, counts))
    pairs = reduce(np.multiply, [np.maximum(one[met], 1).astype(np.float64) for one in counts]).sum()
    return int(pairs) + whole - sum(rows.height for rows in known)
