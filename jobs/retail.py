"""Retail: every day lands in the morning after, a corrected day as soon as its file changes."""

from datetime import timedelta

import dagster as dg

from assets.retail import FORMAT
from foldhouse.dagster import landing_sensor
from resources.landing import daily

retail = dg.define_asset_job(
    "retail",
    selection=dg.AssetSelection.groups("retail"),
    executor_def=dg.in_process_executor,
    description="Lands days of sales and folds all retail tables, with one Spark session a run.",
)


@dg.schedule(cron_schedule="0 6 * * *", execution_timezone="UTC", job=retail)
def retail_daily(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
    """Lands yesterday at 6:00 UTC, with or without a file; a file that comes later is for the sensor."""
    yesterday = (context.scheduled_execution_time - timedelta(days=1)).date().isoformat()
    if not daily.has_partition_key(yesterday):
        return dg.SkipReason(f"{yesterday} is not among the days of this deployment")
    return dg.RunRequest(run_key=yesterday, partition_key=yesterday)


retail_landing = landing_sensor("retail_landing", job_name="retail", format=FORMAT, partitions_def=daily)
