"""Shows that a long call is at work, if a person waits for it: in a notebook, or at the prompt of Python."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

AFTER_SECONDS = 2.0
_EVERY_SECONDS = 1.0
_CALL = threading.local()


@contextmanager
def shown_if_long(what: str) -> Iterator[None]:
    """Say on standard error for how long a call has run, once that is more than two seconds.

    Only the outermost call of a thread is shown, and only in an interactive session. The commands show their own.

    Args:
        what: the call, for people.
    """
    if getattr(_CALL, "is_shown", False) or not is_interactive():
        yield
        return
    done = threading.Event()
    told = threading.Thread(target=_tell, args=(what, done), daemon=True)
    _CALL.is_shown = True
    told.start()
    try:
        yield
    finally:
        _CALL.is_shown = False
        done.set()
        told.join()


def is_interactive() -> bool:
    """Whether somebody types into this process; IPython and Jupyter set the prompt, too."""
    return hasattr(sys, "ps1")


def _tell(what: str, done: threading.Event) -> None:
    began = time.monotonic()
    if done.wait(AFTER_SECONDS):
        return
    while True:
        _say(f"{what}: {time.monotonic() - began:.0f} s")
        if done.wait(_EVERY_SECONDS):
            break
    _say(f"{what}: took {time.monotonic() - began:.1f} s", end="\n")


def _say(text: str, end: str = "") -> None:
    """Write over the line before; the carriage return works in terminals and notebooks."""
    print(f"\r{text}", end=end, file=sys.stderr, flush=True)
