"""Retries after a lost race; the number of attempts and the waits are defined only here."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from foldhouse.errors import CommitConflict, DaysChanged

T = TypeVar("T")
ATTEMPTS = 10
_FIRST_WAIT_SECONDS = 0.05
_LONGEST_WAIT_SECONDS = 2.0


def until_won(attempt: Callable[[], T], after_a_loss: Callable[[], None] | None = None) -> T:
    """Retry until no other writer commits in between.

    The wait between attempts is random and grows, so that two writers do not collide again.

    Args:
        attempt: reads its input, or uses the input that `after_a_loss` read, and commits once.
        after_a_loss: keeps the part of the work that is still right, so that it is not repeated.

    Raises:
        CommitConflict: every attempt lost the race; nothing was committed.
        DaysChanged: at once.
    """
    for number in range(1, ATTEMPTS + 1):
        try:
            return attempt()
        except DaysChanged:  # what is to be committed is older than what is there, so it must be read again
            raise
        except CommitConflict as failure:
            if number == ATTEMPTS:
                raise CommitConflict(f"{failure} (it was tried {ATTEMPTS} times)") from failure
            time.sleep(random.uniform(0, min(_FIRST_WAIT_SECONDS * 2**number, _LONGEST_WAIT_SECONDS)))
            if after_a_loss is not None:
                after_a_loss()
    raise AssertionError("unreachable")
