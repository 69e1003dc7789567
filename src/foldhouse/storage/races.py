"""A lost race is started over: how often, and after what wait, is said here alone."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from foldhouse.errors import CommitConflict

T = TypeVar("T")
ATTEMPTS = 10
_FIRST_WAIT_SECONDS = 0.05
_LONGEST_WAIT_SECONDS = 2.0


def until_won(attempt: Callable[[], T], after_a_loss: Callable[[], None] | None = None) -> T:
    """Try until no other writer commits in between, with a random wait that grows, so that two do not meet again.

    Args:
        attempt: reads what it needs, or what `after_a_loss` read; commits once.
        after_a_loss: keeps what is still right of the work done, so that it need not be done again.

    Raises:
        CommitConflict: the race was lost each time; nothing was committed.
    """
    for number in range(1, ATTEMPTS + 1):
        try:
            return attempt()
        except CommitConflict as failure:
            if number == ATTEMPTS:
                raise CommitConflict(f"{failure} (it was tried {ATTEMPTS} times)") from failure
            time.sleep(random.uniform(0, min(_FIRST_WAIT_SECONDS * 2**number, _LONGEST_WAIT_SECONDS)))
            if after_a_loss is not None:
                after_a_loss()
    raise AssertionError("unreachable")
