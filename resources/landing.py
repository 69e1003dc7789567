"""The landing folder of this deployment, and the days it may have files for."""

import os
from dataclasses import dataclass
from datetime import date, timedelta

import dagster as dg

from foldhouse.dagster import found_days
from foldhouse.errors import LandingError
from foldhouse.landing import CsvFormat, Landing
from foldhouse.values.definition import Stream


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


def days() -> dg.DailyPartitionsDefinition:
    """The days, in UTC, from $FOLDHOUSE_FIRST_DAY (2010-12-01) to $FOLDHOUSE_LAST_DAY, else to today.

    Today is a day from its first minute, so that a file that lands on its own day does not have to wait for midnight.

    Raises:
        LandingError: a variable is no date, or the first day is after the last.
    """
    first = _day_of("FOLDHOUSE_FIRST_DAY") or date(2010, 12, 1)
    last = _day_of("FOLDHOUSE_LAST_DAY")
    if last is not None and first > last:
        raise LandingError(f"FOLDHOUSE_FIRST_DAY is {first}, after FOLDHOUSE_LAST_DAY, {last}; exchange them")
    end = None if last is None else (last + timedelta(days=1)).isoformat()
    return dg.DailyPartitionsDefinition(
        start_date=first.isoformat(), end_date=end, end_offset=0 if end else 1, timezone="UTC"
    )


def landed_days(format: CsvFormat, stream: Stream) -> dg.DailyPartitionsDefinition:
    """The days of the files in $FOLDHOUSE_LANDING and of their stream.

    They are `days()` if that variable is not set, or if $FOLDHOUSE_FIRST_DAY or $FOLDHOUSE_LAST_DAY says otherwise.
    """
    given = [os.environ.get(name) for name in ("FOLDHOUSE_FIRST_DAY", "FOLDHOUSE_LAST_DAY")]
    if any(given) or not os.environ.get("FOLDHOUSE_LANDING"):
        return days()
    return found_days(LandingFolder(), format, stream=stream)


def _day_of(variable: str) -> date | None:
    """Return the day that an environment variable has; `None` if it is not set."""
    text = os.environ.get(variable)
    try:
        return date.fromisoformat(text) if text else None
    except ValueError:
        raise LandingError(f"{variable} is {text!r}; a day such as 2024-03-18 is needed") from None


daily = days()
