"""Work on several files at once: with a thread for each core, or more where a store lets each of them wait."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

from foldhouse.storage.places import is_on_disk

A = TypeVar("A")
B = TypeVar("B")

OF_A_STORE = 16
"""Files of a store that are worked on at once: each request takes some tens of milliseconds, and no core meanwhile."""


def fitting(sizes: Iterable[int], most_bytes: int) -> int:
    """Return how many files may be worked on at once, from 1 to `OF_A_STORE`, so that they have at most so many bytes.

    Args:
        sizes: of the files, in bytes; of several that one thread works on together, their sum.
        most_bytes: of those that are worked on at once; a single file may have more.
    """
    return max(1, min(OF_A_STORE, most_bytes // max(1, max(sizes, default=1))))


def for_each(location: str, work: Callable[[A], B], items: Sequence[A]) -> list[B]:
    """Return what a few short requests give for each of the files at a place, in the order of the items.

    In a store, several files are worked on at once, see `OF_A_STORE`. On disk, where a thread takes longer than a file,
    one after another.
    """
    return [work(item) for item in items] if is_on_disk(location) else in_threads(work, items, OF_A_STORE)


def in_threads(work: Callable[[A], B], items: Sequence[A], at_once: int | None = None) -> list[B]:
    """Return the results in the order of the items; after an error, no further item begins.

    The threads have the context variables of the caller. If several items fail, the error of the first of them is
    raised, once all that began have ended.

    Args:
        work: what is done with an item.
        items: they begin in this order.
        at_once: the number of threads; one for each core by default.
    """
    if len(items) < 2:  # starting a thread takes longer than reading a small file
        return [work(item) for item in items]
    results: dict[int, B] = {}
    failures: dict[int, BaseException] = {}
    # Threads share one iterator: a task of the pool for each item takes as long as reading a small file.
    places = iter(range(len(items)))
    is_stopped = threading.Event()

    def run() -> None:
        # Asked before an item is taken: each item that was taken is worked on, so the first failure is always the same.
        while not is_stopped.is_set() and (place := next(places, None)) is not None:
            try:
                results[place] = work(items[place])
            except BaseException as failure:  # raised below, in the order of the items
                failures[place] = failure
                is_stopped.set()

    workers = min(at_once or os.cpu_count() or 1, len(items))
    with ThreadPoolExecutor(max_workers=workers) as threads:
        try:
            for running in [threads.submit(copy_context().run, run) for _ in range(workers)]:
                running.result()
        finally:
            is_stopped.set()  # an interrupt of the caller ends the threads after the items at hand
    if failures:
        raise failures[min(failures)]
    return [results[place] for place in range(len(items))]


def ahead(work: Callable[[A], B], items: Sequence[A], at_once: int) -> Iterator[B]:
    """Yield results in the order of the items, while threads work on the next ones.

    An error ends the iteration in the place of its item. Where it ends early, no further item begins.

    Args:
        work: what is done with an item.
        items: they begin in this order.
        at_once: how many items are begun and not yet taken; with 1, each is worked on when it is asked for.
    """
    if at_once < 2 or len(items) < 2:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(min(at_once, len(items))) as threads:
        begun: deque[Future[B]] = deque()
        try:
            for item in items:
                if len(begun) == at_once:
                    yield begun.popleft().result()
                begun.append(threads.submit(copy_context().run, work, item))
            while begun:
                yield begun.popleft().result()
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
