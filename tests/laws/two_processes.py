"""Lets two processes that live long do the steps of a history in turns, each with what it keeps in memory.

They are one process with two sets of caches, two catalogs and two lakes on one folder, so that a history stays quick.
Caches of functions by all that they depend on (`lru_cache`) are shared, apart from that of live files.
"""

from __future__ import annotations

import contextlib
import functools
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from laws.history import History

import foldhouse as fh
from foldhouse.storage import live, opened_file, snapshot_texts
from foldhouse.storage.cache import WeightedCache
from foldhouse.storage.catalog import open_local_catalog
from foldhouse.storage.decoded import DECODED
from foldhouse.storage.deleted import _COUNTS, _DELETES
from foldhouse.storage.kept import HANDLES, KEPT, PARTS
from foldhouse.storage.listed import _PARSED

CACHES: tuple[Any, ...] = (DECODED, HANDLES, KEPT, PARTS, _COUNTS, _DELETES, _PARSED)
"""The objects in which a process keeps what it read."""
_GLOBALS = ((opened_file, "_FOOTERS"), (snapshot_texts, "_KNOWN"), (live, "_live"))
"""Module and name of what a process keeps in other ways."""

Step = Callable[[History], None]


class Process:
    """A lake, and what its process keeps in memory."""

    def __init__(self, lake: fh.Lake) -> None:
        self.lake = lake
        self._caches = [_empty(one) for one in CACHES]
        self._globals: list[Any] = [{}, {}, functools.lru_cache(maxsize=32)(live._live.__wrapped__)]

    def runs(self) -> None:
        """From now on, code runs in this process."""
        for cache, kept in zip(CACHES, self._caches, strict=True):
            cache.__dict__ = kept
        for (module, name), value in zip(_GLOBALS, self._globals, strict=True):
            setattr(module, name, value)


def _empty(cache: Any) -> dict[str, Any]:
    """The attributes of an empty cache of that kind."""
    given = (cache._most, cache._weigh) if isinstance(cache, WeightedCache) else ()
    return vars(type(cache)(*given))


@contextlib.contextmanager
def two_processes(lake: fh.Lake, chance: random.Random) -> Iterator[tuple[fh.Lake, Callable[[Step], Step]]]:
    """Yield the lake of the second process, and what turns a step into one that either of them does.

    Args:
        lake: of the first process, in a folder.
        chance: decides which process does a step, and which one checks it.
    """
    second = fh.Lake(open_local_catalog(Path(str(lake.catalog.engine.url.database)).parent), lambda: None)
    processes = [Process(lake), Process(second)]
    before = [vars(one) for one in CACHES], [getattr(module, name) for module, name in _GLOBALS]

    def by_either(step: Step) -> Step:
        @functools.wraps(step)
        def done(history: History) -> None:
            doing, checking = chance.choices(processes, k=2)
            doing.runs()
            history.lake = history.ledger.lake = doing.lake
            history.tell(f"[{processes.index(doing) + 1}]")
            step(history)
            checking.runs()
            history.ledger.lake = checking.lake

        return done

    try:
        yield second, by_either
    finally:
        for cache, kept in zip(CACHES, before[0], strict=True):
            cache.__dict__ = kept
        for (module, name), value in zip(_GLOBALS, before[1], strict=True):
            setattr(module, name, value)
        second.close()
