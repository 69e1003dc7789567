"""A schedule that asks for yesterday each morning."""

from datetime import timedelta

import dagster as dg

from foldhouse.dagster.queue import LIVE, PRIORITY


def each_morning(job_name: str, hour: int, days: dg.DailyPartitionsDefinition) -> dg.ScheduleDefinition:
    """Run a job on yesterday at a full hour, UTC; off until it is switched on.

    Args:
        job_name: a job over the days of this deployment; the schedule is named `<job_name>_daily`.
        hour: 0 to 23.
        days: the days of the job.
    """

    @dg.schedule(
        name=f"{job_name}_daily",
        cron_schedule=f"0 {hour} * * *",
        execution_timezone="UTC",
        job_name=job_name,
        description=f"Lands yesterday at {hour}:00 UTC, with or without events.",
    )
    def morning(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        yesterday = (context.scheduled_execution_time - timedelta(days=1)).date().isoformat()
        if not days.has_partition_key(yesterday):
            return dg.SkipReason(f"{yesterday} is not among the days of this deployment{_how_they_end(days)}")
        return dg.RunRequest(run_key=yesterday, partition_key=yesterday, tags={PRIORITY: LIVE})

    return morning


def _how_they_end(days: dg.DailyPartitionsDefinition) -> str:
    """Say how to go on after a pause of more than a month, in which no day landed."""
    if days.end is None:
        return ""
    last = (days.end - timedelta(days=1)).date()
    return f", which end on {last}; land that day and those after it first, by hand or by `foldhouse backfill`"
