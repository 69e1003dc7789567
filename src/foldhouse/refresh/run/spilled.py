"""Fold a large window in this process, as Spark tasks would; memory and a temporary folder are the shuffle.

One machine reads, divides and folds millions of rows in less time than it takes to pass them to the JVM and back.
Memory holds the divided rows up to a limit, a few chunks that are being divided, then one group of buckets per thread.
"""

from __future__ import annotations

import contextlib
import heapq
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
from foldhouse.kernel.plan import WEIGHT
from foldhouse.refresh.bucket.fold import BucketResult
from foldhouse.refresh.bucket.names import BUCKET, with_bucket
from foldhouse.refresh.rows.logic import Evaluation, Logic
from foldhouse.refresh.run.deciding import decide_alone, decisive_rows
from foldhouse.refresh.run.groups import fold_groups
from foldhouse.refresh.run.in_process import Run, folded_here, recomputed_here
from foldhouse.refresh.run.placement import placed
from foldhouse.refresh.run.reading import is_read_as_it_is, reading_of, rows_of_run
from foldhouse.refresh.run.repeated import repeated_ids, rows_of_repeated
from foldhouse.refresh.run.routing import (
    Part,
    Reading,
    Route,
    Split,
    blob_of,
    divided,
    parts_in,
    read_splits,
    typed_rows,
)
from foldhouse.storage.private import private_folder


def can_be_spilled(logic: Logic, evaluations: Sequence[Evaluation]) -> bool:
    """Whether the rows to fold can be read from the files as they are, but for events that were delivered again."""
    if all(is_read_as_it_is(logic, one) for one in evaluations):
        return True
    return repeated_ids(logic, evaluations) is not None


def fold_spilled(run: Run) -> list[BucketResult]:
    """Read the pieces with Arrow, divide their rows among groups of buckets on disk, and fold group by group.

    The temporary folder is always removed afterwards; the folder of a killed process is removed by the next process.
    If few rows of the window decide and these fit in memory, no folder is used. No commit references the files of a
    fold that fails or is run again.

    Raises:
        InvalidData: see `combine`; the message contains the table's name.
    """
    at_once, most_bytes = os.cpu_count() or 1, run.job.tuning.decisive_bytes
    again = repeated_ids(run.logic, run.evaluations)
    left_out = None if again is None or again.keys.is_empty() else again
    reading = reading_of(run.logic, run.evaluations, 4 * at_once, left_out)
    besides = [] if left_out is None else [rows_of_repeated(run.logic, run.evaluations[0], left_out)]
    with ThreadPoolExecutor(at_once) as threads:
        if not decide_alone(run.plan, reading, run.job.tuning):
            return _through_a_folder(run, threads, partial(_read_all, reading, besides))
        deciding = chain(
            decisive_rows(run.plan, reading, threads, run.job.tuning.decided_rows),
            (rows.select(*(one.meta.output_name() for one in reading.signed), WEIGHT) for rows in besides),
        )
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
        contextlib.closing(_Spill(folder, route)) as spill,
    ):
        try:
            divide(route, spill, threads)
            if run.recompute is not None:
                for parts in divided(replace(route, recomputed=True), recomputed_here(run, run.recompute)):
                    spill.take(parts)
            spill.close()
            folded = threads.map(lambda group: _folded(run, spill, group), spill.groups)
            return [result for results in folded for result in results]
        except InvalidData as failure:
            raise InvalidData(f"{run.name}: {failure}") from failure


def _read_all(
    reading: Reading, besides: Iterable[pl.DataFrame], route: Route, spill: _Spill, threads: ThreadPoolExecutor
) -> None:
    def read(splits: Sequence[Split]) -> None:
        for parts in read_splits(route, reading, splits):
            spill.take(parts)

    list(threads.map(read, reading.splits))
    _take_all(besides, route, spill, threads)


def _take_all(frames: Iterable[pl.DataFrame], route: Route, spill: _Spill, threads: ThreadPoolExecutor) -> None:
    for rows in frames:
        for parts in divided(route, rows):
            spill.take(parts)


class _Spill:
    """Keeps the parts of each group in memory up to a limit, and further ones in a file for each group.

    Several threads may add parts.

    Args:
        folder: for the files.
        route: with the limit in its tuning.
    """

    def __init__(self, folder: Path, route: Route) -> None:
        self._folder, self._route = folder, route
        self._left = float(route.tuning.unspilled_bytes)
        self._kept: dict[int, list[Part]] = {}
        self._writers: dict[int, pa.ipc.RecordBatchStreamWriter] = {}
        self._lock = threading.Lock()

    @property
    def groups(self) -> list[int]:
        """The groups of all parts."""
        return sorted({*self._kept, *self._writers})

    def _path(self, group: int) -> Path:
        return self._folder / f"{group}.arrows"

    def take(self, parts: Iterable[Part]) -> None:
        """Keep parts."""
        for part in parts:
            size = part.rows.estimated_size()
            with self._lock:
                if is_kept := self._left >= size:
                    self._left -= size
                    self._kept.setdefault(part.group, []).append(part)
            if not is_kept:
                self._write(part)

    def _write(self, part: Part) -> None:
        blob, group = blob_of(self._route, part), part.group
        with self._lock:
            if group not in self._writers:
                self._writers[group] = pa.ipc.new_stream(str(self._path(group)), blob.schema)
            self._writers[group].write_batch(blob)

    def close(self) -> None:
        """Finish the files; a second call does nothing."""
        for writer in self._writers.values():
            writer.close()

    @contextlib.contextmanager
    def parts_of(self, group: int) -> Iterator[Iterator[Part]]:
        """Yield the parts of a group, sorted by subgroup; they are forgotten."""
        kept = self._kept.pop(group, [])
        if group not in self._writers:
            yield iter(sorted(kept, key=lambda part: part.subgroup))
            return
        with pa.memory_map(str(self._path(group))) as source, pa.ipc.open_stream(source) as stream:
            written = sorted(stream, key=lambda batch: batch.column("subgroup")[0].as_py())
            yield heapq.merge(
                sorted(kept, key=lambda part: part.subgroup), parts_in(written), key=lambda part: part.subgroup
            )


def _folded(run: Run, spill: _Spill, group: int) -> list[BucketResult]:
    with spill.parts_of(group) as parts:
        folded = fold_groups(run.job, run.job.tuning.spilled_piece_rows, parts)
        return [result for results in folded for result in results]
