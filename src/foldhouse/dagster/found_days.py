"""The days of a landing folder and its stream as partitions, found when the code location loads.

| newest day | the partitions go |
|---|---|
| none yet | from today on: each new day is one without a reload |
| at most a month ago: days arrive | from the oldest day on, the same |
| longer ago: a history | from the oldest day to the newest; further files are found when the location is loaded again |

A day that is found later, older or newer, needs the location loaded again. The daemon of Dagster does so each minute,
and `landing_sensor(reloads_page=True)` asks the page to do so when it sees such a file.
"""

from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta

import dagster as dg

from foldhouse.dagster.lake import LakeFolder
from foldhouse.dagster.resources import LandingFolder
from foldhouse.errors import FoldhouseError, StorageError
from foldhouse.landing import CsvFormat
from foldhouse.values.definition import Stream

ARRIVING = timedelta(days=31)
"""Days arrive, if the newest is not older."""


def found_days(
    folder: LandingFolder,
    format: CsvFormat,
    *,
    stream: Stream | None = None,
    lake: LakeFolder | None = None,
    today: date | None = None,
) -> dg.DailyPartitionsDefinition:
    """Return the days of a landing folder, in UTC, from its file names and from what the stream holds.

        files of 1 to 5 March two years ago     -> 1 to 5 March
        and the file of 1 March is archived     -> the same, because the stream has its day
        files of the last week                  -> from the first of them on, today and each following day too
        no file, no folder, no lake             -> from today on

    A day is a partition as soon as it is in the range, with or without a file. No file is opened, and no lake created.

    Args:
        folder: the resource `landing`.
        format: what a file holds.
        stream: the stream that the files land in; its days stay partitions when their files are gone.
        lake: where the stream is; by default the one of `$FOLDHOUSE_LAKE` or `$FOLDHOUSE_CATALOG`, else `./lake`.
        today: by default the day it is, in UTC.
    """
    today = today or datetime.now(UTC).date()
    found = [*_of_files(folder, format), *(_of_stream(stream, lake or LakeFolder()) if stream is not None else [])]
    return days_between(found, today)


def days_between(found: Iterable[date], today: date) -> dg.DailyPartitionsDefinition:
    """Return the partitions of days that were found; see the table of this module."""
    days = sorted(found)
    first, last = (days[0], days[-1]) if days else (today, today)
    first = min(first, today) if last >= today - ARRIVING else first
    if last < today - ARRIVING:
        end = (last + timedelta(days=1)).isoformat()
        return dg.DailyPartitionsDefinition(start_date=first.isoformat(), end_date=end, timezone="UTC")
    # Today is a day from its first minute; a file of a later day is one as soon as that day begins.
    return dg.DailyPartitionsDefinition(start_date=first.isoformat(), end_offset=1, timezone="UTC")


def _of_files(folder: LandingFolder, format: CsvFormat) -> list[date]:
    try:
        return folder.open(format).days()
    except StorageError as failure:
        dg.get_dagster_logger().warning(f"the days of the landing files are unknown: {failure}")
        return []
    except FoldhouseError:  # no folder yet: a run says so, and the location loads
        return []


def _of_stream(stream: Stream, folder: LakeFolder) -> list[date]:
    opened = folder.again()
    try:
        if not opened.exists():
            return []
        return opened.open().days(stream)
    except FoldhouseError as failure:
        dg.get_dagster_logger().warning(f"the days of {stream.name} are unknown, its files alone count: {failure}")
        return []
    finally:
        opened.close()


def beyond(days: Iterable[str], known: Iterable[str]) -> list[str]:
    """Return the days before the first known day or after the last, in order; all of them if none is known."""
    seen = sorted(known)
    return sorted(day for day in days if not seen or not seen[0] <= day <= seen[-1])
