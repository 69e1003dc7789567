"""Partitions that are days, as foldhouse reads their keys."""

import dagster as dg

from foldhouse.errors import DefinitionError

_FORM = "%Y-%m-%d"


def check_days(name: str, partitions_def: object) -> None:
    """Refuse partitions of which a run would fold another time than the one on the page.

    The key of a week or a month is its first day, so a run would fold that day alone, and report the week as done.

    Args:
        name: the table or stream.
        partitions_def: what was given as its days.

    Raises:
        DefinitionError: the partitions are no days, do not begin at midnight, or have keys of another form.
    """
    if not isinstance(partitions_def, dg.DailyPartitionsDefinition):
        raise DefinitionError(
            f"{name}: its partitions are days, and {type(partitions_def).__name__} was given; use "
            "dg.DailyPartitionsDefinition. A run may have a range of days, such as a week or a month"
        )
    if partitions_def.hour_offset or partitions_def.minute_offset:
        raise DefinitionError(
            f"{name}: its days begin at midnight, but the partitions at {partitions_def.hour_offset:02}:"
            f"{partitions_def.minute_offset:02}; leave out hour_offset and minute_offset, and move the hours in `rows`"
        )
    if partitions_def.fmt != _FORM:
        raise DefinitionError(f"{name}: its days are written {_FORM!r}, not {partitions_def.fmt!r}; leave out fmt")
