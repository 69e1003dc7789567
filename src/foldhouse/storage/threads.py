"""Work on several files at once, with a thread for each core."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")


def in_threads(work: Callable[[A], B], items: Sequence[A], at_once: int | None = None) -> list[B]:
    """Return the results in the order of the items; the first error is raised after all items were worked on.

    Args:
        work: what is done with an item.
        items: they begin in this order.
        at_once: the number of threads; one for each core by default.
    """
    if len(items) < 2:  # starting a thread takes longer than reading a small file
        return [work(item) for item in items]
    with ThreadPoolExecutor(max_workers=at_once or os.cpu_count() or 1) as threads:
        return list(threads.map(work, items))
