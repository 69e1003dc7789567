"""Find since when something is wrong, in as many steps as the number of states has bits."""

from __future__ import annotations

from collections.abc import Callable


def oldest_wrong(count: int, is_wrong: Callable[[int], bool]) -> int:
    """Return the place of the oldest state from which on all are wrong, if a state that is wrong stays wrong.

    Args:
        count: the number of states, the newest at 0; that one is wrong.
        is_wrong: whether the state at a place is wrong.
    """
    # The state at `wrong` is, and the one at `right` is not; none is beyond the oldest.
    wrong, right = 0, count
    while right - wrong > 1:
        middle = (wrong + right) // 2
        if is_wrong(middle):
            wrong = middle
        else:
            right = middle
    return wrong
