"""Refuses calls in a process that was forked after Polars had threads, where Polars would wait for them for ever."""

from __future__ import annotations

import os
import re
from pathlib import Path

from foldhouse.errors import InvalidCall

_TASKS = Path("/proc/self/task")
"""The threads of this process on Linux; other systems do not fork unless they are told to."""
_OF_ITS_POOL = re.compile(r"polars-\d")
"""How Polars names the threads that compute, which begin with its first computation."""
_without_threads = False


def check_has_threads() -> None:
    """Refuse a call that would hang.

    Raises:
        InvalidCall: this process is such a fork.
    """
    if _without_threads:
        raise InvalidCall(
            f"the process {os.getpid()} was forked from one that had folded or read tables, and Polars's threads did "
            "not come with it: the call would never return. Start processes by `spawn`, as with "
            '`multiprocessing.get_context("spawn")`, or fork before the first call'
        )


def _forked() -> None:
    global _without_threads
    # A fork of this fork has no thread of Polars to be seen, and never gets one.
    _without_threads = _without_threads or _had_threads


def _look() -> None:
    global _had_threads
    _had_threads = any(_OF_ITS_POOL.match(_name(one)) for one in _TASKS.glob("*"))


def _name(task: Path) -> str:
    try:
        return (task / "comm").read_text()
    except OSError:  # it has ended
        return ""


_had_threads = False
os.register_at_fork(before=_look, after_in_child=_forked)
