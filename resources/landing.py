"""The landing folder of this deployment, and the days it may have files for."""

import os
from dataclasses import dataclass
from datetime import date, timedelta

import dagster as dg

from foldhouse.dagster import found_days, stream_days
from foldhouse.dagster.found_days import ARRIVING
from foldhouse.errors import LandingError
from foldhouse.landing import CsvFormat, Landing
from foldhouse.values.definition import Source, Stream

OPENED = date(2010, 12, 1)


@dataclass(frozen=True)
class LandingFolder:
    """A folder with one file a day, `YYYY-MM-DD.csv` or `.csv.gz`.

    Args:
        path: the folder, or `s3://bucket/prefix`; by default $FOLDHOUSE_LANDING.
    """

    path: str = ""

    def open(self, format: CsvFormat) -> Landing:
        """The folder, read by a format.

        Raises:
            LandingError: neither `path` nor $FOLDHOUSE_LANDING names a folder.
        """
        return Landing(self.path, format) if self.path else Landing.from_environment(format)


def landing_resource(folder: LandingFolder | None = None) -> dg.ResourceDefinition:
    """The resource `landing`. Its configuration is code: a run on the page cannot name another folder.

    Args:
        folder: which folder; by default what the environment names.
    """

    @dg.resource(config_schema={}, description="The folder in which files land.")
    def landing(context: dg.InitResourceContext) -> LandingFolder:
        return folder or LandingFolder()

    return landing


def given_days() -> dg.DailyPartitionsDefinition | None:
    """The days, in UTC, from $FOLDHOUSE_FIRST_DAY (2010-12-01) to $FOLDHOUSE_LAST_DAY (today), if one of them is set.

    Today is a day from its first minute, so that a file that lands on its own day does not have to wait for midnight.

    Raises:
        LandingError: a variable is no date, or the first day is after the last.
    """
    first, last = _day_of("FOLDHOUSE_FIRST_DAY"), _day_of("FOLDHOUSE_LAST_DAY")
    if first is None and last is None:
        return None
    first = first or OPENED
    if last is not None and first > last:
        raise LandingError(f"FOLDHOUSE_FIRST_DAY is {first}, after FOLDHOUSE_LAST_DAY, {last}; exchange them")
    end = None if last is None else (last + timedelta(days=1)).isoformat()
    return dg.DailyPartitionsDefinition(
        start_date=first.isoformat(), end_date=end, end_offset=0 if end else 1, timezone="UTC"
    )


def landed_days(format: CsvFormat, stream: Stream) -> dg.DailyPartitionsDefinition:
    """The days of the files in $FOLDHOUSE_LANDING and of their stream, unless the environment gives the days."""
    return given_days() or found_days(LandingFolder(), format, stream=stream)


def generated_days(*sources: Source) -> dg.DailyPartitionsDefinition:
    """The days of streams and tables whose events are generated, unless the environment gives the days.

    They begin on a Monday, because a week of wallets begins with nothing. The last weeks can always be asked for.
    """
    return given_days() or stream_days(*sources, reach=ARRIVING.days, since=_monday)


def opened() -> date:
    """The day on which the generated shop opened; what arrives on a day depends on it."""
    return _day_of("FOLDHOUSE_FIRST_DAY") or OPENED


def _monday(day: date) -> date:
    return day - timedelta(days=day.weekday())


def _day_of(variable: str) -> date | None:
    """Return the day that an environment variable has; `None` if it is not set."""
    text = os.environ.get(variable)
    try:
        return date.fromisoformat(text) if text else None
    except ValueError:
        raise LandingError(f"{variable} is {text!r}; a day such as 2024-03-18 is needed") from None
