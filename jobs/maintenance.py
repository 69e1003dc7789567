"""Maintenance: once a day, off until it is switched on."""

import dagster as dg

from foldhouse.dagster import maintenance_job

maintenance = maintenance_job()

maintenance_daily = dg.ScheduleDefinition(
    "maintenance_daily",
    job=maintenance,
    cron_schedule="0 4 * * *",
    execution_timezone="UTC",
    description="Compacts and expires every table at 4:00 UTC.",
)
