"""The physical choices that must not matter, forced: when files are written anew, how much is folded at once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest

from foldhouse.refresh import refresh
from foldhouse.refresh.bucket.fold import BucketJob, BucketResult
from foldhouse.refresh.run import deciding, spilled
from foldhouse.refresh.run import on_spark as tasks
from foldhouse.refresh.run.in_process import Run, fold_in_process

_NEVER = 10**9
RULES: dict[str, dict[str, Any]] = {
    "as it is": {},
    "every touched file is written anew": {"bucket.cost.DELETED_SHARE": -1},
    "nothing is ever written anew": {
        "bucket.cost.DELETED_SHARE": 2,
        "bucket.cost.MANY_SMALL_FILES": _NEVER,
        "bucket.cost.MANY_DELETE_FILES": _NEVER,
    },
    "small files and deletes are merged at once": {
        "bucket.cost.DELETED_SHARE": 2,
        "bucket.cost.MANY_SMALL_FILES": 1,
        "bucket.cost.MANY_DELETE_FILES": 1,
        "bucket.cost.ALWAYS_SMALL_ROWS": 2,
        "bucket.cost.GROWTH": 1,
    },
    # The property of every table that does not have it says so.
    "copy-on-write": {"bucket.write.COPY_ON_WRITE": "", "bucket.cost.MANY_SMALL_FILES": _NEVER},
}


def _spilled(run: Run) -> list[BucketResult]:
    return spilled.fold_spilled(run) if spilled.can_be_spilled(run) else fold_in_process(run)


def _in_workers(forced: Mapping[str, Any]) -> Callable[..., Iterator[pa.RecordBatch]]:
    """`fold_task` as Spark's Python workers are to run it: in a process that no patch of this one reaches.

    A function within a function is sent to them whole, and not by a name that they could not import; what it says of
    `tasks` is looked up there, where it is the real one.
    """

    def fold_task(job: BucketJob, piece_rows: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in forced.items():
                patch.setattr(name, value)
            yield from tasks.fold_task(job, piece_rows, batches)

    return fold_task


@contextlib.contextmanager
def rule_of(seed: int) -> Iterator[str]:
    """Let a history run under one of the rules, some in pieces of a few rows, some as a large window is folded."""
    name = list(RULES)[seed % len(RULES)]
    forced: dict[str, Any] = {f"foldhouse.refresh.{constant}": value for constant, value in RULES[name].items()}
    # By the names of files it would be another history each time.
    forced["foldhouse.refresh.bucket.write.patience_of"] = lambda path: 0.25
    with pytest.MonkeyPatch.context() as patch:
        if seed // len(RULES) % 2:
            forced["foldhouse.refresh.bucket.fold.MOST_ROWS_AT_ONCE"] = 3
            name += ", in pieces"
        if seed // len(RULES) // 2 % 2:
            patch.setattr(refresh, "fold_in_process", _spilled)
            patch.setattr(spilled, "PIECE_ROWS", 3)
            patch.setattr(tasks, "PIECE_ROWS", 3)
            patch.setattr(deciding, "has_many_a_key", lambda keys, rows: seed % 3 < 2)
            patch.setattr(deciding, "AT_ONCE_ROWS", 20)
            patch.setattr(spilled, "MOST_BYTES_IN_MEMORY", 400 if seed % 7 < 3 else 10**6)
            name += ", as a large window"
        for constant, value in forced.items():
            patch.setattr(constant, value)
        patch.setattr(tasks, "fold_task", _in_workers(forced))
        yield name
