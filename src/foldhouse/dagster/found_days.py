"""The days of a landing folder, or of streams, as partitions, found when the code location loads.

| newest day | the partitions go |
|---|---|
| none yet | from `reach` days ago: each new day is one without a reload |
| at most a month ago: days arrive | from the oldest day on, or from `reach` days ago, the same |
| longer ago: a history | from the oldest day to the newest, and `reach` days more; further ones are found at a reload |

A day before the year 1000 is no partition; `lake.backfill` takes it.

A day that is found later, older or newer, needs the location loaded again. The daemon of Dagster does so each minute,
and `days_sensor` asks the page to do so when the days are other ones than before.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, date, datetime, timedelta

import dagster as dg

from foldhouse.dagster.lake import LakeFolder
from foldhouse.dagster.resources import LandingFolder
from foldhouse.errors import FoldhouseError, StorageError
from foldhouse.lake import Lake
from foldhouse.landing import CsvFormat
from foldhouse.values.definition import Source, Stream, Table

EARLIEST = date(1000, 1, 1)
"""Dagster writes the keys of earlier days without zeros, such as `1-01-01`, so that they are no days. Events have such
days if their time is wrong or unset; the page would show hundreds of thousands of empty days."""
ARRIVING = timedelta(days=31)
"""Days arrive, if the newest is not older."""

Finding = Callable[[date], dg.DailyPartitionsDefinition]
"""Today -> the partitions."""

_findings: dict[str, tuple[Finding, dg.DailyPartitionsDefinition]] = {}
"""What the days are of -> how they are found, and what was found at loading."""
_asked: ContextVar[Sequence[date]] = ContextVar("asked", default=())


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

    def find(today: date) -> dg.DailyPartitionsDefinition:
        of_stream = _of_lake([stream], lake or LakeFolder()) if stream is not None else []
        return days_between([*_of_files(folder, format), *of_stream], today)

    return _found(files_of(stream) if stream is not None else f"the files in {folder}", find, today)


def stream_days(
    *sources: Source,
    lake: LakeFolder | None = None,
    reach: int = 0,
    since: Callable[[date], date] | None = None,
    today: date | None = None,
) -> dg.DailyPartitionsDefinition:
    """Return the days of streams and tables, in UTC, from the partitions that they have.

        stream_days(payments)                       -> the days of payments
        stream_days(revenue)                        -> the days of this table, of its sources, and of theirs
        stream_days(payments, reach=31)             -> of an empty stream the last 31 days, which can then be asked for

    A day is a partition as soon as it is in the range, with or without events. No lake is created.

    Args:
        sources: streams and tables with `partition_by`; one without has no days of its own.
        lake: where they are; by default the one of `$FOLDHOUSE_LAKE` or `$FOLDHOUSE_CATALOG`, else `./lake`.
        reach: how many days can be asked for although the streams do not have them: those before today while days
            arrive, or before there are any, and those that follow the newest day of a history. A stream of
            `stream_asset` would never begin or go on without. `foldhouse backfill` then takes any days from the year
            1000 to today.
        since: the first day with events -> the first day that can be asked for.
        today: by default the day it is, in UTC.
    """
    every = list(dict.fromkeys(_with_sources(sources)))
    asked = _asked.get() if reach else ()

    def find(today: date) -> dg.DailyPartitionsDefinition:
        return days_between([*_of_lake(every, lake or LakeFolder()), *asked], today, reach=reach, since=since)

    return _found(", ".join(one.name for one in every), find, today)


def days_between(
    found: Iterable[date], today: date, *, reach: int = 0, since: Callable[[date], date] | None = None
) -> dg.DailyPartitionsDefinition:
    """Return the partitions of days that were found; see the table of this module."""
    days, further = sorted(day for day in found if day >= EARLIEST), timedelta(days=reach)
    first, last = (days[0], days[-1]) if days else (today, today)
    is_history = last < today - max(ARRIVING, further)
    first = first if is_history else min(first, today - further)
    first = since(first) if since is not None else first
    if is_history:
        end = (last + further + timedelta(days=1)).isoformat()
        return dg.DailyPartitionsDefinition(start_date=first.isoformat(), end_date=end, timezone="UTC")
    # Today is a day from its first minute; a file of a later day is one as soon as that day begins.
    return dg.DailyPartitionsDefinition(start_date=first.isoformat(), end_offset=1, timezone="UTC")


@contextmanager
def asking_for(first: date, last: date) -> Iterator[None]:
    """Have `stream_days` with a reach take the days from a first to a last one for partitions within the block."""
    token = _asked.set((first, last))
    try:
        yield
    finally:
        _asked.reset(token)


def found_at_loading() -> Mapping[str, str]:
    """Return all days that this process found when it loaded its definitions: what they are of -> their range."""
    return {name: _range_text(found) for name, (_, found) in _findings.items()}


def are_found(days: dg.DailyPartitionsDefinition) -> bool:
    """Whether some days are what `found_days` or `stream_days` returned."""
    return any(days == found for _, found in _findings.values())


def files_of(stream: Stream) -> str:
    """Return what the days are of that `found_days` returns for the files of a stream."""
    return f"the files of {stream.name}"


def found_again(only: str | None = None) -> Mapping[str, str]:
    """Look for the same days again.

    Args:
        only: look for the days of this alone.
    """
    today = datetime.now(UTC).date()
    return {name: _range_text(find(today)) for name, (find, _) in _findings.items() if only in (None, name)}


def _found(name: str, find: Finding, today: date | None) -> dg.DailyPartitionsDefinition:
    found = find(today or datetime.now(UTC).date())
    _findings[name] = find, found
    return found


def _range_text(days: dg.DailyPartitionsDefinition) -> str:
    last = f"to {(days.end - timedelta(days=1)).date()}" if days.end is not None else "on"
    return f"from {days.start.date()} {last}"


def _with_sources(sources: Iterable[Source]) -> Iterator[Source]:
    for one in sources:
        yield one
        if isinstance(one, Table):
            yield from _with_sources(one.sources)


def _of_files(folder: LandingFolder, format: CsvFormat) -> list[date]:
    try:
        return folder.open(format).days()
    except StorageError as failure:
        dg.get_dagster_logger().warning(f"the days of the landing files are unknown: {failure}")
        return []
    except FoldhouseError:  # no folder yet: a run says so, and the location loads
        return []


def _of_lake(sources: Sequence[Source], folder: LakeFolder) -> list[date]:
    opened = folder.again()
    try:
        if not opened.exists():
            return []
        return [day for one in sources for day in _of_source(opened.open(), one)]
    except FoldhouseError as failure:
        names = ", ".join(one.name for one in sources)
        dg.get_dagster_logger().warning(f"the days of {names} are unknown for now: {failure}")
        return []
    finally:
        opened.close()


def _of_source(lake: Lake, source: Source) -> list[date]:
    try:
        return lake.days(source)
    except FoldhouseError as failure:  # of this one; those of the others count
        dg.get_dagster_logger().warning(f"the days of {source.name} are unknown for now: {failure}")
        return []


def beyond(days: Iterable[str], known: Iterable[str]) -> list[str]:
    """Return the days before the first known day or after the last, in order; all of them if none is known."""
    seen = sorted(known)
    return sorted(day for day in days if not seen or not seen[0] <= day <= seen[-1])
