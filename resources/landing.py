"""The landing folder of this deployment, and the days it may have files for."""

import os
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

import dagster as dg

from foldhouse.landing import CsvFormat, Landing


@dataclass(frozen=True)
class LandingFolder:
    """A folder with one file a day, `YYYY-MM-DD.csv` or `.csv.gz`.

    Args:
        path: the folder; by default $FOLDHOUSE_LANDING.
    """

    path: str = ""

    def open(self, format: CsvFormat) -> Landing:
        """The folder, read by a format.

        Raises:
            LandingError: neither `path` nor $FOLDHOUSE_LANDING names a folder.
        """
        return Landing(Path(self.path), format) if self.path else Landing.from_environment(format)


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
    """
    first = os.environ.get("FOLDHOUSE_FIRST_DAY") or "2010-12-01"
    last = os.environ.get("FOLDHOUSE_LAST_DAY")
    end = (date.fromisoformat(last) + timedelta(days=1)).isoformat() if last else None
    return dg.DailyPartitionsDefinition(start_date=first, end_date=end, end_offset=0 if end else 1, timezone="UTC")


daily = days()
