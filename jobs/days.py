"""Days: the page shows days of streams and files that came since it was loaded; on from the start, it starts no run."""

from foldhouse.dagster import days_sensor

days = days_sensor()
