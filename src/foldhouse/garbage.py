"""Leaves what a process imports, what it holds once it is ready, and what it ends with out of garbage collection.

After some dozens of small refreshes, Python looks through all objects of the process. With what Arrow, Polars and
pyiceberg import, that takes longer than a refresh; with Dagster there are more of them.
"""

from __future__ import annotations

import atexit
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_COMPLAINING = {"duckdb"}
"""Extension modules that print a list of objects of theirs that were not freed."""


def set_aside() -> None:
    """Look through no object again that exists now, until the process ends.

    For processes of foldhouse alone, once what they need is imported: cycles of objects that exist now stay in memory,
    even if nothing uses them any more.
    """
    gc.freeze()
    end_quickly()


def end_quickly() -> None:
    """Free no cycles of objects when the process ends, which takes a quarter of the time of a short command.

    For processes of foldhouse alone. What is registered with `atexit` is called as ever.
    """
    atexit.unregister(_leave)
    atexit.register(_leave)


def _leave() -> None:
    if _COMPLAINING & sys.modules.keys():
        gc.unfreeze()
    else:
        gc.freeze()


@contextmanager
def uncollected() -> Iterator[None]:
    """Collect no garbage within the block, for what makes many objects that stay.

    Of several threads, the first that leaves the block has garbage collected again.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def importing() -> Iterator[None]:
    """Collect no garbage while modules are imported, and make what they have old objects.

    Modules leave next to no garbage, and Python would look through ever more objects for it: a fifth of the time in
    which Dagster is imported. Only a full collection looks through old objects.
    """
    is_outermost = gc.isenabled()
    with uncollected():
        try:
            yield
        finally:
            if is_outermost and not gc.get_freeze_count():  # what was set aside would be looked through again
                gc.freeze()
                gc.unfreeze()
