"""Read and evaluate parts of the sources of direct logic in this process."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import polars as pl

from foldhouse.kernel.hashed import hashes_of, have_hashes
from foldhouse.kernel.plan import WEIGHT, polars_type
from foldhouse.refresh.rows.evaluate import evaluated_directly
from foldhouse.refresh.rows.logic import Evaluation, Logic
from foldhouse.refresh.rows.read import with_all_columns
from foldhouse.refresh.run.in_process import Run
from foldhouse.refresh.run.repeated import can_be_compared, last_of_repeated, repeated_in
from foldhouse.refresh.run.routing import Part, Reading, Split, rows_of_splits, split_among
from foldhouse.refresh.run.spill import Spill
from foldhouse.refresh.window.affected import event_id_of
from foldhouse.storage.live import without_bounds

Reader = Callable[[], Iterator[pl.DataFrame]]
"""Yields some rows of a source, with its needed columns."""
Evaluated = Callable[[], Iterator[pl.DataFrame]]
"""Reads and evaluates a part, and yields its signed rows."""


class NotHere(Exception):
    """A part cannot be evaluated in this process."""


def can_be_read(logic: Logic, evaluation: Evaluation) -> bool:
    """Whether any rows of the sources can be read alone, each event once."""
    places = range(len(logic.layouts))
    return all(not event_id_of(logic, place) or can_be_compared(logic, place, evaluation) for place in places)


def readers(logic: Logic, place: int, evaluation: Evaluation, tasks: int, chunk_rows: int = 0) -> list[Reader]:
    """Divide the rows of a source that an evaluation reads, each event once, among so many readers.

    Args:
        logic: of the table.
        place: of the source.
        evaluation: one that `can_be_read`.
        tasks: how many readers, at most.
        chunk_rows: about how many rows are read at once, if more than by the tuning.

    Raises:
        NotHere: too many events were delivered more than once.
    """
    columns = tuple(logic.compiled.needed[place])
    splits = split_among([(without_bounds(piece), None, 1) for piece in evaluation.pieces[place]], tasks)
    left_out, besides = None, list[Reader]()
    if event_id_of(logic, place):
        again = repeated_in(logic, place, evaluation)
        if again is None:
            raise NotHere
        if not again.keys.is_empty():
            last = last_of_repeated(logic, place, evaluation, again).select(columns)
            left_out, besides = again, [lambda: iter([last])]
    at_once = max(logic.tuning.chunk_rows, chunk_rows)
    reading = Reading(logic.layouts[place], columns, tuple(map(pl.col, columns)), splits, at_once, left_out)
    return [*(partial(_rows_of, reading, of_reader) for of_reader in splits), *besides]


def _rows_of(reading: Reading, splits: Sequence[Split]) -> Iterator[pl.DataFrame]:
    """Yield the rows of splits, those of small files together."""
    pending: list[pl.DataFrame] = []
    for rows in rows_of_splits(reading, splits):
        pending.append(rows.drop(WEIGHT))
        if sum(one.height for one in pending) >= reading.chunk_rows:
            yield pl.concat(pending)
            pending = []
    if pending:
        yield pl.concat(pending)


def evaluated(run: Run, evaluation: Evaluation, sources: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Return the signed rows of some rows of each source, with all their columns.

    Raises:
        NotHere: they are too many, or a value cannot be computed here.
    """
    found = (run.evaluate or evaluated_directly)(run.logic, [(evaluation, list(sources))])
    if found is None:
        raise NotHere
    return found[0]


def are_hashed(logic: Logic, columns: Sequence[tuple[int, Sequence[str]]]) -> bool:
    """Whether rows with equal values in columns of several sources have the same hash of these columns.

    Args:
        logic: of the table.
        columns: places of sources, and the columns of each that are compared, in the same order.
    """
    if not all(names and set(names) <= set(logic.compiled.needed[place]) for place, names in columns):
        return False
    types = [[polars_type(logic.layouts[place].arrow.field(name).type) for name in names] for place, names in columns]
    return all(one == types[0] for one in types) and have_hashes(types[0])


def divided_among(run: Run, places: Sequence[int], least: int, piece_rows: int) -> int:
    """Return among how many groups the rows of some sources are divided, so that each has about `piece_rows`.

    They are at least so many; more, if the files are large.
    """
    (evaluation,), tuning = run.evaluations, run.job.tuning
    files = [piece.file for place in places for piece in evaluation.pieces[place]]
    rows, size = sum(file.rows for file in files), sum(file.size_bytes for file in files)
    by_size = min(rows, math.ceil(size / max(1, tuning.kept_alone_bytes)))
    return max(least, math.ceil(rows / piece_rows), by_size)


def divide(
    given: Sequence[Reader], columns: Sequence[str], place: int, groups: int, spill: Spill, threads: ThreadPoolExecutor
) -> None:
    """Read the rows of a source, and divide them among groups by the hash of some columns."""

    def divide_all(read: Reader) -> None:
        for rows in read():
            spill.take(_divided(rows, columns, place, groups))

    list(threads.map(divide_all, given))


def _divided(rows: pl.DataFrame, columns: Sequence[str], place: int, groups: int) -> Iterator[Part]:
    numbers = (hashes_of(rows, columns) % np.uint64(groups)).astype(np.min_scalar_type(groups))
    ordered = rows[np.argsort(numbers, kind="stable")]
    ends = np.cumsum(sizes := np.bincount(numbers, minlength=groups))
    for group, (size, end) in enumerate(zip(sizes.tolist(), ends.tolist(), strict=True)):
        if size:
            yield Part(group, place, False, ordered[end - size : end])


def rows_of_group(logic: Logic, spill: Spill, group: int) -> list[pl.DataFrame]:
    """Return the divided rows of a group, per source, with all columns; they are forgotten."""
    frames: list[list[pl.DataFrame]] = [[] for _ in logic.layouts]
    with spill.parts_of(group) as parts:
        for part in parts:
            frames[part.subgroup].append(part.rows)
        return [with_all_columns(logic, place, rows) for place, rows in enumerate(frames)]
