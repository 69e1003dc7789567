"""The days by which a table that is partitioned by day could be extended, so that no event is left out by accident.

    covered 1..3, the sources now have rows of 4 and 6     -> 4, 5 and 6: a late event of 5 is folded when it comes
    covered 1..3 and 9, the sources got first rows of 7    -> 7
    covered 1..3 and 9, the sources had rows of 7 before   -> nothing: somebody left 7 out

Days before the first covered one were left out on purpose. So is a day without rows that a source does not cover: it is
found once the source has rows of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from itertools import pairwise

from pyiceberg.table import Table as IcebergTable

from foldhouse.errors import UnknownSnapshot
from foldhouse.refresh.by_day import partition_days
from foldhouse.values.window import Coverage, Position

_LONGEST_GAP = 31
"""Days without rows that are added with the days around them; a longer gap is left by an event with a wrong day."""


def new_days(
    coverage: Coverage,
    positions: Mapping[str, Position],
    sources: Mapping[str, IcebergTable | None],
    coverages: Mapping[str, Coverage] | None = None,
) -> list[date]:
    """Return the days, in order.

    Args:
        coverage: the days that the table covers: not everything, and none before its first fold.
        positions: source name -> up to where it is folded.
        sources: name -> the source; `None` if it does not exist yet.
        coverages: name of a source that is a table with days -> its coverage.
    """
    limits = list((coverages or {}).values())
    now = {name: partition_days(one) if one is not None else [] for name, one in sources.items()}
    covered = coverage.days()
    if not covered:
        return _without_gaps(sorted({day for days in now.values() for day in days}), limits)
    first, last = covered[0], covered[-1]
    later = sorted({day for days in now.values() for day in days if day > last})
    found = set(_without_gaps([last, *later], limits)[1:])
    for name, source in sources.items():
        between = [day for day in now[name] if first < day < last and day not in coverage]
        if between and source is not None:
            found |= set(between) - _days_before(source, positions.get(name))
    return sorted(found)


def _days_before(source: IcebergTable, position: Position | None) -> set[date]:
    if position is None:
        return set()
    try:
        return set(partition_days(source, position.snapshot_id))
    except UnknownSnapshot:  # the refresh says so
        return set()


def _without_gaps(days: Sequence[date], limits: Sequence[Coverage]) -> list[date]:
    """Add the days between sorted days, unless there are too many of them, or a source does not cover them."""
    found = list(days[:1])
    for day, following in pairwise(days):
        gap = (following - day).days - 1
        between = [day + timedelta(days=number) for number in range(1, gap + 1)] if gap <= _LONGEST_GAP else []
        found += [one for one in between if all(one in limit for limit in limits)]
        found.append(following)
    return found
