"""Tells whether the process of a run in the foreground still lives, by a lock that ends with the process.

| the process of `foldhouse backfill` | the file `.foldhouse-runs/<run id>` of Dagster's home | the run on the page |
|---|---|---|
| runs | is there, and locked | goes on |
| ends, also by an error or Ctrl-C | is gone | is recorded by the process |
| is killed, or its machine went down | is there, and nobody holds the lock | is failed by run monitoring |
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FOLDER = ".foldhouse-runs"


@contextmanager
def lives(home: Path | None, run_id: str) -> Iterator[None]:
    """Hold the lock of a run within the block.

    Args:
        home: Dagster's; without one, or in one that cannot be written, there is no lock.
        run_id: Dagster's id of the run.
    """
    file = None if home is None else home / _FOLDER / run_id
    try:
        if file is None:
            raise FileNotFoundError
        file.parent.mkdir(exist_ok=True)
        held = file.open("a")
    except OSError:
        yield
        return
    with held:
        fcntl.flock(held, fcntl.LOCK_EX)
        try:
            yield
        finally:
            file.unlink(missing_ok=True)


def has_died(home: Path, run_id: str) -> bool:
    """Whether the process of a run held a lock, and holds it no longer."""
    try:
        with (home / _FOLDER / run_id).open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # there is no lock, or somebody holds it
        return False
    return True
