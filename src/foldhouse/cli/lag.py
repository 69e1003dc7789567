"""The lag of each table behind its sources, and of the sources behind theirs, up to the streams."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from foldhouse.errors import UnknownTable
from foldhouse.lake import Lake, SnapshotInfo, position_of

Source = Mapping[str, Any]


@dataclass
class Lags:
    """The histories of a lake's tables, each read once."""

    lake: Lake
    names: frozenset[str]
    _histories: dict[str, list[SnapshotInfo]] = field(default_factory=dict)

    def sources(self, name: str, above: tuple[str, ...] = ()) -> list[dict[str, Any]]:
        """Return how far a table has folded each of its sources.

        Args:
            name: the table; a stream has no sources.
            above: the tables on the way to it, so that no circle is followed.

        Returns:
            Of each source: `name`; `position`, a snapshot id as text, or null; `commits_behind`, or null if the
            position is not in the source's history; `sources`, the same of the source's own sources.
        """
        history = self._history(name)
        head = next((info for info in history if position_of(info)), None)
        return [
            {
                "name": source,
                "position": None if position is None else str(position),
                "commits_behind": self._behind(source, position),
                # Tables folded from each other in a circle would have no end.
                "sources": [] if source in above else self.sources(source, (*above, name)),
            }
            for source, position in (position_of(head) if head else {}).items()
        ]

    def _behind(self, source: str, position: int | None) -> int | None:
        if source not in self.names:
            return None
        history = [info.id for info in self._history(source)]
        if position is None:
            return len(history)
        return history.index(position) if position in history else None

    def _history(self, name: str) -> list[SnapshotInfo]:
        if name not in self._histories:
            try:
                self._histories[name] = self.lake.history(name) if name in self.names else []
            except UnknownTable:  # dropped since the names were listed
                self._histories[name] = []
        return self._histories[name]


def is_behind(sources: list[dict[str, Any]]) -> bool:
    """Whether a table is behind its streams, or behind the tables in between."""
    return any(one["commits_behind"] != 0 or is_behind(one["sources"]) for one in sources)


def in_short(sources: list[dict[str, Any]]) -> str:
    """Describe in one line how far a table is behind.

    2 commits behind s.orders; up to date with s.rates
    up to date with s.orders, which is 3 commits behind s.events
    """
    parts = [*_said(sources)]
    return "; ".join(parts)


def _said(sources: list[dict[str, Any]]) -> list[str]:
    behind = [one for one in sources if one["commits_behind"] != 0]
    level = [one for one in sources if one["commits_behind"] == 0]
    stale = [one for one in level if is_behind(one["sources"])]
    fresh = [one["name"] for one in level if not is_behind(one["sources"])]
    said = [_lag(one) + _above(one) for one in behind]
    said += [f"up to date with {one['name']}{_above(one)}" for one in stale]
    return said + ([f"up to date with {', '.join(fresh)}"] if fresh else [])


def _lag(one: Source) -> str:
    behind = one["commits_behind"]
    if behind is None:
        return f"elsewhere in {one['name']}"
    return f"{behind} commit{'s' if behind > 1 else ''} behind {one['name']}"


def _above(one: Source) -> str:
    """Describe how far a source is behind its own sources; empty if it is not."""
    late = [source for source in one["sources"] if source["commits_behind"] != 0 or is_behind(source["sources"])]
    if not late:
        return ""
    parts = [_lag(source) if source["commits_behind"] != 0 else source["name"] for source in late]
    texts = [
        f"{'' if source['commits_behind'] != 0 else 'up to date with '}{part}{_above(source)}"
        for source, part in zip(late, parts, strict=True)
    ]
    return f", which is {' and '.join(texts)}"
