"""Positions, windows and coverage: how far a table is folded, and which of its days exist."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta

from foldhouse.errors import InvalidData
from foldhouse.values.metadata_names import AFTER, COVERAGE, POSITION
from foldhouse.values.stored import is_id, is_text, said

ONE_DAY = timedelta(days=1)


@dataclass(frozen=True)
class Position:
    """The snapshot of one source up to which a table is folded.

    Args:
        uuid: the source's table uuid. A source that is dropped and created again has another uuid.
        snapshot_id: the last folded snapshot; `None` if the source had no snapshot.
        schema_id: the source's schema that was read; `None` if it was not recorded. Comparisons ignore it, because a
            change of columns alone is no reason to fold.
    """

    uuid: str
    snapshot_id: int | None
    schema_id: int | None = field(default=None, compare=False)


def positions_to_json(positions: Mapping[str, Position]) -> str:
    """Return positions by source name as the JSON text of a snapshot summary."""
    return json.dumps({name: _plain(position) for name, position in sorted(positions.items())})


def _plain(position: Position) -> dict[str, str | int | None]:
    read_at = {} if position.schema_id is None else {"schema": position.schema_id}
    return {"uuid": position.uuid, "snapshot": position.snapshot_id, **read_at}


def positions_from_json(text: str, key: str = POSITION) -> dict[str, Position]:
    """Parse the text of `positions_to_json`.

    Args:
        text: of the summary.
        key: the entry of the summary.

    Raises:
        ForeignCommit: another tool wrote the text.
    """
    with said(key, text):
        found = {name: Position(p["uuid"], p["snapshot"], p.get("schema")) for name, p in json.loads(text).items()}
        for name, one in found.items():
            if not is_text(one.uuid) or not is_id(one.snapshot_id) or not is_id(one.schema_id):
                raise ValueError(f"the position in {name} has other types")
        return found


def after_to_json(positions: Mapping[str, Position]) -> str:
    """Return the text of `foldhouse.after`: per source, the snapshot after which a commit begins."""
    return json.dumps({name: one.snapshot_id for name, one in positions.items()}, separators=(",", ":"))


def after_from_json(text: str) -> dict[str, int | None]:
    """Parse the text of `after_to_json`.

    Raises:
        ForeignCommit: another tool wrote the text.
    """
    with said(AFTER, text):
        found = dict(json.loads(text).items())
        if not all(map(is_id, found.values())):
            raise ValueError("it contains something other than ids")
        return found


@dataclass(frozen=True)
class DayRange:
    """The days from `first` to `last`, both included."""

    first: date
    last: date

    def __post_init__(self) -> None:
        if self.last < self.first:
            raise InvalidData(f"a range of days ends on {self.last}, before it begins on {self.first}")

    def __contains__(self, day: object) -> bool:
        return isinstance(day, date) and self.first <= day <= self.last

    def __iter__(self) -> Iterator[date]:
        for offset in range((self.last - self.first).days + 1):
            yield self.first + timedelta(days=offset)

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}..{self.last}"


@dataclass(frozen=True)
class Coverage:
    """The partitions of a table that exist: everything, or a set of days as disjoint ranges.

    Coverage.of(days 1, 2, 3, 7)   -> 1..3,7
    Coverage.everything()          -> *
    Coverage.of(())                -> (the empty text)
    """

    ranges: tuple[DayRange, ...] = ()
    is_everything: bool = False

    @classmethod
    def everything(cls) -> Coverage:
        """Return the coverage of all partitions, including future ones; a table without partitions has no other."""
        return cls(is_everything=True)

    @classmethod
    def of(cls, days: Iterable[date]) -> Coverage:
        """Return the coverage of some days, merged into ranges.

        Raises:
            InvalidData: something that is not a day.
        """
        days = list(days)
        strange = [day for day in days if isinstance(day, datetime) or not isinstance(day, date)]
        if strange:
            raise InvalidData(f"{strange[0]!r} is not a day; partitions are dates, such as date(2024, 3, 4)")
        ranges: list[DayRange] = []
        for day in sorted(set(days)):
            if ranges and ranges[-1].last + ONE_DAY == day:
                ranges[-1] = DayRange(ranges[-1].first, day)
            else:
                ranges.append(DayRange(day, day))
        return cls(tuple(ranges))

    @classmethod
    def parse(cls, text: str) -> Coverage:
        """Parse the text of `str`.

        Raises:
            ForeignCommit: another tool wrote the text.
        """
        if text == "*":
            return cls.everything()
        ranges = []
        with said(COVERAGE, text):
            for part in filter(None, text.split(",")):
                first, _, last = part.partition("..")
                ranges.append(DayRange(date.fromisoformat(first), date.fromisoformat(last or first)))
        return cls(tuple(ranges))

    def __str__(self) -> str:
        return "*" if self.is_everything else ",".join(map(str, self.ranges))

    def __bool__(self) -> bool:
        return self.is_everything or bool(self.ranges)

    def __contains__(self, day: object) -> bool:
        return self.is_everything or any(day in days for days in self.ranges)

    def days(self) -> list[date]:
        """Return every covered day in order.

        Raises:
            InvalidData: the coverage is everything.
        """
        if self.is_everything:
            raise InvalidData("a coverage of everything has no list of days")
        return [day for days in self.ranges for day in days]

    def union(self, other: Coverage) -> Coverage:
        """Return the partitions that either coverage contains."""
        if self.is_everything or other.is_everything:
            return Coverage.everything()
        return Coverage.of([*self.days(), *other.days()])

    def minus(self, other: Coverage) -> Coverage:
        """Return the partitions that `self` contains and `other` does not."""
        if other.is_everything:
            return Coverage()
        if self.is_everything:
            raise InvalidData("days cannot be taken out of a coverage of everything")
        return Coverage.of(set(self.days()) - set(other.days()))

    def overlaps(self, first: date, last: date) -> bool:
        """Whether any day of `first..last` (both included) is covered."""
        return self.is_everything or any(days.first <= last and first <= days.last for days in self.ranges)
