"""Leaves what a process holds once it is ready out of Python's garbage collection.

After some dozens of small refreshes, Python looks through all objects of the process. With what Arrow, Polars and
pyiceberg import, that takes longer than a refresh; with Dagster there are more of them.
"""

from __future__ import annotations

import atexit
import gc


def set_aside() -> None:
    """Look through no object again that exists now, until the process ends.

    For processes of foldhouse alone, once what they need is imported: cycles of objects that exist now stay in memory,
    even if nothing uses them any more.
    """
    gc.freeze()
    # At the end all are looked through, as without this: extension modules complain about objects that were not freed.
    atexit.unregister(gc.unfreeze)
    atexit.register(gc.unfreeze)
