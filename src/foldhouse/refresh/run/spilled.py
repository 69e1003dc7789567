"""Fold a large window in this process, as Spark tasks would, with files in a temporary folder as the shuffle.

One machine reads, divides and folds millions of rows in less time than it takes to pass them to the JVM and back.
Memory holds a few chunks of rows while they are divided, then one group of buckets per thread.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path

import polars as pl
import pyarrow as pa

from foldhouse.errors import InvalidData
from foldhouse.refresh.bucket.fold import BUCKET, BucketResult, with_bucket
from foldhouse.refresh.rows.evaluate import Evaluation, Logic
from foldhouse.refresh.run.deciding import decide_alone, decisive_rows
from foldhouse.refresh.run.in_process import Run, folded_here, recomputed_here
from foldhouse.refresh.run.on_spark import fold_groups, is_read_as_it_is, reading_of, rows_of_run
from foldhouse.refresh.run.placement import placed
from foldhouse.refresh.run.routing import Reading, Route, blobs_of, read_task, typed_rows
from foldhouse.storage.private import private_folder


def can_be_spilled(logic: Logic, evaluations: Sequence[Evaluation]) -> bool:
    """Whether all rows to fold can be read from the files as they are; see `is_read_as_it_is`."""
    return all(is_read_as_it_is(logic, one) for one in evaluations)


def fold_spilled(run: Run) -> list[BucketResult]:
    """Read the pieces with Arrow, divide their rows among groups of buckets on disk, and fold group by group.

    The temporary folder is always removed afterwards; the folder of a killed process is removed by the next process.
    If few rows of the window decide and these fit in memory, no folder is used. No commit references the files of a
    fold that fails or is run again.

    Raises:
        InvalidData: see `combine`; the message contains the table's name.
    """
    at_once, most_bytes = os.cpu_count() or 1, run.job.tuning.decisive_bytes
    reading = reading_of(run.logic, run.evaluations, 4 * at_once)
    with ThreadPoolExecutor(at_once) as threads:
        if not decide_alone(run.plan, reading, run.job.tuning):
            return _through_a_folder(run, threads, partial(_read_all, reading))
        deciding = decisive_rows(run.plan, reading, threads, run.job.tuning.decided_rows)
        kept = list(_until(deciding, most_bytes))
        if sum(rows.estimated_size() for rows in kept) > most_bytes:
            return _through_a_folder(run, threads, partial(_take_all, chain(kept, deciding)))
    rows = with_bucket(run.job.layout, run.plan, typed_rows(run.plan, pl.concat(kept)))
    if run.recompute is None:
        return folded_here(run, rows)
    wanted = pl.col(BUCKET).is_in(list(run.recompute.buckets))
    return folded_here(run, rows.filter(wanted), recomputed_here(run, run.recompute).filter(wanted))


def _until(frames: Iterable[pl.DataFrame], most_bytes: int) -> Iterator[pl.DataFrame]:
    """Yield frames until their sizes add up to more than `most_bytes`."""
    size = 0.0
    for rows in frames:
        yield rows
        size += rows.estimated_size()
        if size > most_bytes:
            return


def _through_a_folder(
    run: Run, threads: ThreadPoolExecutor, divide: Callable[[Route, _Spill, ThreadPoolExecutor], None]
) -> list[BucketResult]:
    placement = placed(run.job, rows_of_run(run), os.cpu_count() or 1, run.job.tuning.spilled_piece_rows)
    buckets = run.recompute.buckets if run.recompute else frozenset()
    route = Route(run.plan, run.job.layout, placement, run.job.tuning, buckets)
    with (
        private_folder() as folder,
        contextlib.closing(_Spill(folder)) as spill,
    ):
        try:
            divide(route, spill, threads)
            if run.recompute is not None:
                spill.take(blobs_of(replace(route, recomputed=True), recomputed_here(run, run.recompute)))
            spill.close()
            folded = threads.map(lambda path: _folded(run, path), spill.groups)
            return [result for results in folded for result in results]
        except InvalidData as failure:
            raise InvalidData(f"{run.name}: {failure}") from failure


def _read_all(reading: Reading, route: Route, spill: _Spill, threads: ThreadPoolExecutor) -> None:
    tasks = [pa.record_batch({"id": pa.array([number])}) for number in range(len(reading.splits))]
    list(threads.map(lambda task: spill.take(read_task(route, reading, [task])), tasks))


def _take_all(frames: Iterable[pl.DataFrame], route: Route, spill: _Spill, threads: ThreadPoolExecutor) -> None:
    for rows in frames:
        spill.take(blobs_of(route, rows))


class _Spill:
    """Stores the blobs of each group in a file of its own; several threads may write."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writers: dict[int, pa.ipc.RecordBatchStreamWriter] = {}
        self._lock = threading.Lock()

    @property
    def groups(self) -> list[Path]:
        """The files, one per group."""
        return [self._path(group) for group in sorted(self._writers)]

    def _path(self, group: int) -> Path:
        return self._folder / f"{group}.arrows"

    def take(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Write each blob to the file of its group."""
        for batch in batches:
            for place, group in enumerate(batch.column("group").to_pylist()):
                with self._lock:
                    if group not in self._writers:
                        self._writers[group] = pa.ipc.new_stream(str(self._path(group)), batch.schema)
                    self._writers[group].write_batch(batch.slice(place, 1))

    def close(self) -> None:
        """Finish the files; a second call does nothing."""
        for writer in self._writers.values():
            writer.close()


def _folded(run: Run, path: Path) -> list[BucketResult]:
    with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as stream:
        blobs = sorted(stream, key=lambda batch: batch.column("subgroup")[0].as_py())
        folded = fold_groups(run.job, run.job.tuning.spilled_piece_rows, blobs)
        return [result for results in folded for result in results]
