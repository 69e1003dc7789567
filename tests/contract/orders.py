"""Orders in which the same rows may arrive, some of them taken away again."""

from __future__ import annotations

import random
from typing import Any


def permuted(chance: random.Random, events: list[tuple[Any, bool]]) -> list[tuple[int, Any]]:
    """Adding and taking away in any order, but nothing is taken away before it was added.

    `events` are rows, and whether each is taken away again.
    """
    places = [(chance.random(), 1, row) for row, _ in events]
    going = [place for place, (_, goes) in zip(places, events, strict=True) if goes]
    places += [(chance.uniform(place, 1), -1, row) for place, _, row in going]
    return [(weight, row) for _, weight, row in sorted(places, key=lambda one: one[:2])]


def sizes(steps: int, batches: int) -> list[slice]:
    """So many steps cut into so many batches, as equal as can be."""
    return [slice(number * steps // batches, (number + 1) * steps // batches) for number in range(batches)]
