"""The shuffle of one process: parts of groups of buckets, in memory up to a limit, and further ones in files."""

from __future__ import annotations

import contextlib
import heapq
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa

from foldhouse.refresh.bucket.fold import BucketJob, BucketResult
from foldhouse.refresh.run.groups import fold_groups
from foldhouse.refresh.run.routing import Part, blob_of, parts_in


class Spill:
    """Keeps the parts of each group in memory up to a limit of bytes, and further ones in a file for each group.

    Several threads may add parts.

    Args:
        folder: for the files.
        most_bytes: how many bytes of rows are kept in memory.
    """

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self._folder = folder
        self._left = float(most_bytes)
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

    def take_all(self, divided: Iterable[Iterable[Part]]) -> None:
        """Keep the parts of rows that are divided a chunk at a time."""
        for parts in divided:
            self.take(parts)

    def _write(self, part: Part) -> None:
        blob, group = blob_of(part), part.group
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

    def folded(self, job: BucketJob, threads: ThreadPoolExecutor) -> list[BucketResult]:
        """Finish the files, and fold one group of buckets per thread."""
        self.close()
        found = threads.map(lambda group: self._folded(job, group), self.groups)
        return [result for results in found for result in results]

    def _folded(self, job: BucketJob, group: int) -> list[BucketResult]:
        with self.parts_of(group) as parts:
            folded = fold_groups(job, job.tuning.spilled_piece_rows, parts)
            return [result for results in folded for result in results]
