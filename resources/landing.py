"""The landing folder of this deployment, and the days it may have files for."""

import os
from datetime import date, timedelta
from pathlib import Path

import dagster as dg
from pydantic import Field

from foldhouse.landing import CsvFormat, Landing


class LandingFolder(dg.ConfigurableResource):
    """A folder with one file a day, `YYYY-MM-DD.csv` or `.csv.gz`."""

    path: str = Field(default="", description="The folder; by default $FOLDHOUSE_LANDING.")

    def open(self, format: CsvFormat) -> Landing:
        """The folder, read by a format.

        Raises:
            LandingError: neither `path` nor $FOLDHOUSE_LANDING names a folder.
        """
        return Landing(Path(self.path), format) if self.path else Landing.from_environment(format)


def days() -> dg.DailyPartitionsDefinition:
    """The days, in UTC, from $FOLDHOUSE_FIRST_DAY (2010-12-01) to $FOLDHOUSE_LAST_DAY, else to today.

    Today is a day from its first minute, so that a file that lands on its own day does not have to wait for midnight.
    """
    first = os.environ.get("FOLDHOUSE_FIRST_DAY") or "2010-12-01"
    last = os.environ.get("FOLDHOUSE_LAST_DAY")
    end = (date.fromisoformat(last) + timedelta(days=1)).isoformat() if last else None
    return dg.DailyPartitionsDefinition(start_date=first, end_date=end, end_offset=0 if end else 1, timezone="UTC")


daily = days()
