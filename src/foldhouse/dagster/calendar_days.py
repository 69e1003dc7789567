"""Which partitions of Dagster are the days of a table or stream.

| partitions | a key such as 2024-03-03 is | |
|---|---|---|
| daily, `%Y-%m-%d`, from midnight | this day | taken, in any time zone |
| weekly, monthly, or every other day | the first of several days, of which one would be folded | refused |
| daily, from 6:00 | parts of two days | refused |
| daily, of another format, such as `%Y-%d-%m` | another day | refused |
| hourly, static, dynamic or of several dimensions | maybe no day | refused |
"""

from collections.abc import Iterable
from datetime import date
from typing import Any

import dagster as dg

from foldhouse.errors import DefinitionError
from foldhouse.values.given import shown

_MIDNIGHT = "0 0 * * *"
_FORMAT = "%Y-%m-%d"
_WANTED = 'give dg.DailyPartitionsDefinition("2024-03-01"), whose keys are days'


def check_are_days(name: str, partitions_def: Any) -> None:
    """Refuse partitions that are not one day each.

    Args:
        name: of the table, stream or sensor.
        partitions_def: what somebody declared.

    Raises:
        DefinitionError: a run of such a partition would fold other days than the page shows as materialized.
    """
    if not isinstance(partitions_def, dg.DailyPartitionsDefinition):
        given = type(partitions_def).__name__
        raise DefinitionError(f"{name}: a partition of a {given} is not one day; {_WANTED} as partitions_def")
    if partitions_def.cron_schedule != _MIDNIGHT:
        raise DefinitionError(
            f"{name}: days that begin at {partitions_def.cron_schedule!r}, not at midnight, are parts of two days; "
            f"{_WANTED}, without an offset of hours or minutes"
        )
    if partitions_def.fmt != _FORMAT:
        raise DefinitionError(
            f"{name}: partitions with keys such as {partitions_def.fmt!r} are not found by day; {_WANTED}, without fmt"
        )


def check_counts(name: str, **counts: Any) -> None:
    """Refuse numbers of days that are not `None` or a whole number of at least 1.

    Args:
        name: of the table or stream.
        counts: argument -> what somebody declared.

    Raises:
        DefinitionError: a run would be divided into parts of no days, and fold none of them.
    """
    for argument, days in counts.items():
        if days is not None and (isinstance(days, bool) or not isinstance(days, int) or days < 1):
            raise DefinitionError(f"{name}: {argument} is {shown(days)}; give a whole number of days from 1, or None")


def days_of_keys(keys: Iterable[str]) -> list[date]:
    """Return the days of Dagster's keys, in their order.

    Raises:
        DefinitionError: a key is no day, because the partitions of an asset were replaced.
    """
    found = []
    for key in keys:
        try:
            day = date.fromisoformat(key)
        except ValueError:
            day = None
        if day is None or day.isoformat() != key:
            raise DefinitionError(f"the partition {key!r} is not a day; {_WANTED}")
        found.append(day)
    return found
