"""A cache that keeps what was used last, up to a total weight."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

V = TypeVar("V")


class WeightedCache(Generic[V]):
    """Key -> value, for values that never change under their key; threads may share it.

    Args:
        most: the total weight that is kept.
        weigh: returns the weight of a value.
    """

    def __init__(self, most: int, weigh: Callable[[V], int]) -> None:
        self._most, self._weigh = most, weigh
        self._held: OrderedDict[Hashable, V] = OrderedDict()
        self._weight = 0
        self._lock = threading.Lock()

    def peek(self, key: Hashable) -> V | None:
        """Return a value if it is kept; this does not count as a use."""
        with self._lock:
            return self._held.get(key)

    def of(self, key: Hashable, make: Callable[[], V]) -> V:
        """Return the value of a key, and make it if it is not kept."""
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)
                return self._held[key]
        found = make()  # without the lock, so that threads make different values at once
        self.put(key, found)
        return found

    def put(self, key: Hashable, value: V) -> None:
        """Keep the value of a key, unless it is kept already."""
        with self._lock:
            if key not in self._held:
                self._held[key] = value
                self._weight += self._weigh(value)
            while self._weight > self._most:
                self._weight -= self._weigh(self._held.popitem(last=False)[1])

    def clear(self) -> None:
        """Keep nothing."""
        with self._lock:
            self._held.clear()
            self._weight = 0
