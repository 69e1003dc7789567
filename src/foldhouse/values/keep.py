"""Parses history policies such as `all for 1 hour, hourly for 1 week, daily for 1 year`.

    policy = clause, {", ", clause}
    clause = grain, " for ", span
    grain  = "all" | "every N minutes" | "hourly" | "every N hours" | "daily" | "weekly"
    span   = N, " ", ("minute" | "hour" | "day" | "week" | "year"), ["s"] | "ever"

`all` keeps every state of the span. `hourly` keeps the state at each full hour in UTC: the head at 10:00, at 11:00 and
so on, so that a table can be read as of each of these moments.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from foldhouse.errors import InvalidProperty

DEFAULT = "all for 1 hour, hourly for 1 week, daily for 1 year"
_MINUTE, _HOUR, _DAY = 60_000, 3_600_000, 86_400_000
_UNITS = {"minute": _MINUTE, "hour": _HOUR, "day": _DAY, "week": 7 * _DAY, "year": 365 * _DAY}
_GRAINS = {"all": 0, "hourly": _HOUR, "daily": _DAY, "weekly": 7 * _DAY}
# Matches `every 15 minutes`. Not `\d`, which also matches the digits of other scripts.
_EVERY = re.compile(r"every ([0-9]{1,2}) (minute|hour)s?")
_SPAN = re.compile(r"([0-9]{1,6}) (minute|hour|day|week|year)s?")
_MONDAY_MS = 4 * _DAY
"""The first Monday of 1970, where weeks begin; the other grains begin at 1970-01-01."""
_FOREVER_MS = 2**62


@dataclass(frozen=True)
class Clause:
    """One part of a policy.

    Args:
        grain_ms: keep one state per this many ms; 0 for every state.
        span_ms: applies to states up to this age, in ms.
    """

    grain_ms: int
    span_ms: int

    def places(self, since_ms: Sequence[int], now_ms: int) -> Iterator[int]:
        """The places of the states that are kept, among those that were the head since these moments, ascending."""
        oldest_ms = max(now_ms - self.span_ms, since_ms[0])
        if self.grain_ms == 0:
            yield from range(bisect_right(since_ms, oldest_ms) - 1, len(since_ms))
            return
        moment_ms = self._next(oldest_ms)
        while moment_ms <= now_ms:
            place = bisect_right(since_ms, moment_ms) - 1
            yield place
            if place + 1 == len(since_ms):
                return
            moment_ms = self._next(since_ms[place + 1])

    def _next(self, from_ms: int) -> int:
        """The first moment of the grain at this time or later."""
        begin_ms = _MONDAY_MS if self.grain_ms == _GRAINS["weekly"] else 0
        # Floor division of the negated difference rounds up.
        return -((begin_ms - from_ms) // self.grain_ms) * self.grain_ms + begin_ms


@dataclass(frozen=True)
class Keep:
    """A policy: its clauses, from the finest to the coarsest."""

    clauses: tuple[Clause, ...]

    def places(self, since_ms: Sequence[int], now_ms: int) -> set[int]:
        """The places of the states that are kept, among those that were the head since these moments, ascending."""
        return {place for clause in self.clauses if since_ms for place in clause.places(since_ms, now_ms)}


@lru_cache(maxsize=64)
def parse(text: str) -> Keep:
    """Parse a policy.

    Raises:
        InvalidProperty: the text is not a policy; the message names the wrong part and the grammar.
    """
    clauses = tuple(_clause(text, part) for part in text.strip().split(","))
    for finer, coarser in itertools.pairwise(clauses):
        if coarser.grain_ms <= finer.grain_ms or (finer.grain_ms and coarser.grain_ms % finer.grain_ms):
            raise _refused(text, "each part is coarser than the one before, by a whole number of times")
        if coarser.span_ms <= finer.span_ms:
            raise _refused(text, "each part reaches further back than the one before")
    return Keep(clauses)


def _clause(text: str, part: str) -> Clause:
    grain, separator, span = part.strip().partition(" for ")
    if not separator:
        raise _refused(text, f"{part.strip()!r} has no ' for '")
    return Clause(_grain(text, grain), _span(text, span))


def _grain(text: str, grain: str) -> int:
    if grain in _GRAINS:
        return _GRAINS[grain]
    found = _EVERY.fullmatch(grain)
    if found is None:
        raise _refused(text, f"{grain!r} is not how often")
    most = 60 if found[2] == "minute" else 24
    if int(found[1]) == 0 or most % int(found[1]):
        raise _refused(text, f"{grain!r} does not divide {'an hour' if most == 60 else 'a day'}")
    return int(found[1]) * _UNITS[found[2]]


def _span(text: str, span: str) -> int:
    if span == "ever":
        return _FOREVER_MS
    found = _SPAN.fullmatch(span)
    if found is None or int(found[1]) == 0:
        raise _refused(text, f"{span!r} is not how long")
    return int(found[1]) * _UNITS[found[2]]


def _refused(text: str, why: str) -> InvalidProperty:
    return InvalidProperty(
        f"{text!r} does not say what history to keep: {why}. It is written like {DEFAULT!r}: all, every N minutes, "
        "hourly, every N hours, daily or weekly, for N minutes, hours, days, weeks or years, or for ever"
    )
