"""Tells whether the rows of a day are still those of one file, without reading them.

Each landing commit stores, per day, a proof: a digest of the file's origin and of the names of the day's data files.
Data files never change and no name is used twice, so equal proofs mean equal rows, whatever happened in between.

| since a day landed | its proof |
|---|---|
| nothing; a rollback and back; another lake and back | is found: the day has the file's rows |
| an append, another writer's commit, a compaction, a rollback | does not fit the day's data files any more |
| its commit expired | is found in a table property |
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date

_DIGITS = 32


@dataclass(frozen=True)
class LandedDays:
    """What a stream's head holds of some days, and the proofs in its history.

    Args:
        table_id: the uuid of the stored table; empty if there is none yet.
        sequence: the number of its newest commit, also if that was rolled back since.
        states: covered day -> a text that identifies its data files.
        proofs: number of a commit -> its proofs by day; 0 for those of expired commits.
    """

    table_id: str = ""
    sequence: int = 0
    states: Mapping[date, str] = field(default_factory=dict)
    proofs: Mapping[int, Mapping[date, str]] = field(default_factory=dict)

    def may_hold(self, day: date) -> bool:
        """Whether some origin could be the one of the day's rows."""
        return day in self.states and any(day in one for one in self.proofs.values())

    def holds(self, day: date, origin: str) -> bool:
        """Whether the day's rows are proven to be those that landed from this origin."""
        if day not in self.states:
            return False
        wanted = proof_of(origin, self.states[day])
        return any(one.get(day) == wanted for one in self.proofs.values())

    def since(self, sequence: int) -> set[date]:
        """Return the days that landed in commits after one."""
        return {day for number, one in self.proofs.items() if number > sequence for day in one}


def state_of(paths: Iterable[str]) -> str:
    """Return a text that identifies the data files of a day."""
    return _digest(sorted(paths))


def proof_of(origin: str, state: str) -> str:
    """Return the text that connects a day's data files with the origin of their rows."""
    return _digest([origin, state])


def _digest(texts: Iterable[str]) -> str:
    # Lengths first, so that no two lists of texts are alike.
    told = "".join(f"{len(text)}:{text}" for text in texts)
    return hashlib.sha256(told.encode()).hexdigest()[:_DIGITS]
