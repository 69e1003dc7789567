"""Whether the files of a commit are still there, if the call that wrote them took long.

A process that was stopped, or a machine that slept, finds its files deleted as orphans: nothing references them before
the commit. The commit would land nevertheless, and its rows would be lost.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field

from pyiceberg.table import Table as IcebergTable

from foldhouse.errors import StorageError
from foldhouse.storage.threads import OF_A_STORE, in_threads

SLOW_SECONDS = 1800
"""Half of the least age of an orphan. Commits of shorter calls do not look: that is a request for each file."""


@dataclass(frozen=True)
class _Began:
    # A clock that is set back must not hide a pause, nor one that does not run while the machine sleeps.
    clock: float = field(default_factory=time.time)
    steady: float = field(default_factory=time.monotonic)

    def seconds(self) -> float:
        return max(time.time() - self.clock, time.monotonic() - self.steady)


_BEGAN: ContextVar[_Began | None] = ContextVar("foldhouse_began", default=None)


@contextlib.contextmanager
def timed() -> Iterator[None]:
    """Note when a call begins; a call inside of another belongs to that."""
    if _BEGAN.get() is not None:
        yield
        return
    token = _BEGAN.set(_Began())
    try:
        yield
    finally:
        _BEGAN.reset(token)


def check_are_there(iceberg: IcebergTable, paths: Sequence[str]) -> None:
    """Look for the files of a commit just before it, if the call began long ago.

    Raises:
        StorageError: a file is not there; nothing was committed.
    """
    began = _BEGAN.get()
    if began is None or began.seconds() < SLOW_SECONDS:
        return
    there = in_threads(lambda path: iceberg.io.new_input(path).exists(), paths, OF_A_STORE)
    missing = [path for path, is_there in zip(paths, there, strict=True) if not is_there]
    if missing:
        name = ".".join(iceberg.name())
        raise StorageError(
            f"{name}: {len(missing)} of the {len(paths)} files of a commit were deleted before it, among them "
            f"{missing[0]}: this call began {began.seconds() / 3600:.1f} hours ago, so its process was stopped, and "
            "`foldhouse expire --orphans --delete` took its files for those of a killed run. Nothing was committed; "
            "run it again"
        )
