"""Parts of the sources whose rows never meet, because joins and groupings are by the same columns of all sources."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial, reduce
from pathlib import Path

import numpy as np
import polars as pl

from foldhouse.kernel.hashed import hashes_of
from foldhouse.refresh.rows.logic import Evaluation, Logic
from foldhouse.refresh.run.in_process import Run
from foldhouse.refresh.run.parts import (
    Evaluated,
    NotHere,
    are_hashed,
    divide,
    divided_among,
    evaluated,
    readers,
    rows_of_group,
)
from foldhouse.refresh.run.spill import Spill

_COUNTERS, _SHIFT = 1 << 20, np.uint64(64 - 20)
"""The rows of so many ranges of hashes are counted: of a million rows, about one is in each."""


def can_be_by_cells(logic: Logic) -> bool:
    """Whether the logic has cells, and rows of the same cell have the same hash in every source."""
    cells = logic.compiled.shape.cells
    return bool(cells) and are_hashed(logic, list(enumerate(cells)))


def parts_by_cells(run: Run, folder: Path, threads: ThreadPoolExecutor, count: int) -> list[Evaluated]:
    """Divide the rows of all sources by the hash of their cells; return the parts that have a row.

    Raises:
        NotHere: see `readers`.
    """
    (evaluation,), logic = run.evaluations, run.logic
    places = range(len(logic.layouts))
    groups = divided_among(run, places, 4 * count, run.job.tuning.spilled_piece_rows)
    with contextlib.closing(Spill(folder, run.job.tuning.unspilled_bytes)) as spill:
        for place, columns in enumerate(logic.compiled.shape.cells):
            divide(readers(logic, place, evaluation, 4 * count), columns, place, groups, spill, threads)
    return [partial(_rows_of, run, evaluation, spill, group) for group in spill.groups]


def _rows_of(run: Run, evaluation: Evaluation, spill: Spill, group: int) -> Iterator[pl.DataFrame]:
    sources = rows_of_group(run.logic, spill, group)
    if _most_rows(run.logic, sources) > run.job.tuning.direct_rows:
        raise NotHere
    yield evaluated(run, evaluation, sources)


def _most_rows(logic: Logic, sources: Sequence[pl.DataFrame]) -> int:
    """Return a bound of the rows that joins make of some rows: products of how many there are of each cell's hash."""
    shape, whole = logic.compiled.shape, sum(rows.height for rows in sources)
    occurrences = shape.sources or range(len(sources))
    if len(occurrences) == 1:
        return whole
    # A join equates the columns of its cells, so that null meets nothing.
    known = [rows.drop_nulls(list(names)) for rows, names in zip(sources, shape.cells, strict=True)]
    counts = [
        np.bincount((hashes_of(rows, names) >> _SHIFT).astype(np.int64), minlength=_COUNTERS)
        for rows, names in zip(known, shape.cells, strict=True)
    ]
    met = np.flatnonzero(reduce(np.add, counts))
    pairs = reduce(np.multiply, [np.maximum(counts[one][met], 1).astype(np.float64) for one in occurrences]).sum()
    return int(pairs) + whole - sum(rows.height for rows in known)
