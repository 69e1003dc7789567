"""Fold a large window in this process: what Spark's tasks do, with files in a temporary folder as the shuffle.

One machine reads, divides and folds millions of rows in less time than it takes to hand them to the JVM and back. Held
in memory are a few chunks of rows, and then of each thread one group of buckets.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import tempfile
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from foldhouse.errors import InvalidData
from foldhouse.refresh.bucket import BucketResult
from foldhouse.refresh.placement import placed
from foldhouse.refresh.routing import Route, blobs_of, read_task
from foldhouse.refresh.runners import Run, recomputed_here
from foldhouse.refresh.tasks import fold_task, is_read_as_it_is, reading_of, rows_of_run

PIECE_ROWS = 1_000_000
"""Signed rows of a group that a thread folds at once."""


def can_be_spilled(run: Run) -> bool:
    """Whether the rows are those of the files as they are, so that nothing has to see all of them at once."""
    return all(is_read_as_it_is(run.logic, one) for one in run.evaluations)


def fold_spilled(run: Run) -> list[BucketResult]:
    """Read the pieces with Arrow, divide their rows among groups of buckets on disk, and fold group by group.

    The folder is gone afterwards, whatever happens; a killed process leaves it. Files of a fold that fails or is run
    again are named by no commit.

    Raises:
        InvalidData: see `combine`; with the table's name.
    """
    at_once = os.cpu_count() or 1
    placement = placed(run.job.layout, run.job.slices, rows_of_run(run), at_once, PIECE_ROWS)
    route = Route(run.plan, run.job.layout, placement, run.recompute.buckets if run.recompute else frozenset())
    reading = reading_of(run.logic, run.evaluations, 4 * at_once)
    shares = [pa.record_batch({"id": pa.array([number])}) for number in range(len(reading.shares))]
    with (
        tempfile.TemporaryDirectory(prefix="foldhouse-") as folder,
        contextlib.closing(_Spill(Path(folder))) as spill,
        ThreadPoolExecutor(at_once) as threads,
    ):
        try:
            list(threads.map(lambda share: spill.take(read_task(route, reading, [share])), shares))
            if run.recompute is not None:
                spill.take(blobs_of(replace(route, recomputed=True), recomputed_here(run, run.recompute)))
            spill.close()
            folded = threads.map(lambda path: _folded(run, path), spill.groups)
            return [result for results in folded for result in results]
        except InvalidData as failure:
            raise InvalidData(f"{run.name}: {failure}") from failure


class _Spill:
    """The blobs of each group in a file of its own; several threads write."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writers: dict[int, pa.ipc.RecordBatchStreamWriter] = {}
        self._lock = threading.Lock()

    @property
    def groups(self) -> list[Path]:
        """The files, one a group."""
        return [self._path(group) for group in sorted(self._writers)]

    def _path(self, group: int) -> Path:
        return self._folder / f"{group}.arrows"

    def take(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Write blobs, each to the file of its group."""
        for batch in batches:
            for place, group in enumerate(batch.column("group").to_pylist()):
                with self._lock:
                    if group not in self._writers:
                        self._writers[group] = pa.ipc.new_stream(str(self._path(group)), batch.schema)
                    self._writers[group].write_batch(batch.slice(place, 1))

    def close(self) -> None:
        """Finish the files, once or again."""
        for writer in self._writers.values():
            writer.close()


def _folded(run: Run, path: Path) -> list[BucketResult]:
    with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as stream:
        blobs = sorted(stream, key=lambda batch: batch.column("sliver")[0].as_py())
        folded = list(fold_task(run.job, PIECE_ROWS, blobs))
    return [pickle.loads(value) for batch in folded for value in batch.column("result").to_pylist()]
