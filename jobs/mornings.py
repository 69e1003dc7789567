"""A schedule that asks for yesterday each morning, and for the days of the mornings that were missed."""

from datetime import date, timedelta

import dagster as dg

from foldhouse.dagster.queue import LIVE, PRIORITY

_FIRST, _LAST = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"
_RUNS_LOOKED_AT = 50
"""A run that somebody started again has the schedule's tags too, and may be of an older day."""


def each_morning(job_name: str, hour: int, days: dg.DailyPartitionsDefinition) -> dg.ScheduleDefinition:
    """Run a job on yesterday at a full hour, UTC; off until it is switched on.

        each morning                             -> a run of the day before
        the daemon was stopped for three weeks   -> one run of these weeks: Dagster makes up one morning only
        the schedule never asked for a run       -> a run of the day before

    Args:
        job_name: a job over the days of this deployment; the schedule is named `<job_name>_daily`.
        hour: 0 to 23.
        days: the days of the job.
    """
    name = f"{job_name}_daily"

    @dg.schedule(
        name=name,
        cron_schedule=f"0 {hour} * * *",
        execution_timezone="UTC",
        job_name=job_name,
        description=f"Lands yesterday at {hour}:00 UTC, with or without events, and the days since its last run.",
    )
    def morning(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        yesterday = (context.scheduled_execution_time - timedelta(days=1)).date()
        if not days.has_partition_key(str(yesterday)):
            return dg.SkipReason(f"{yesterday} is not among the days of this deployment{_how_they_end(days)}")
        asked = _last_asked(context.instance, name)
        first = yesterday if asked is None else min(asked + timedelta(days=1), yesterday)
        while not days.has_partition_key(str(first)):
            first += timedelta(days=1)
        if first == yesterday:
            return dg.RunRequest(run_key=str(yesterday), partition_key=str(yesterday), tags={PRIORITY: LIVE})
        tags = {_FIRST: str(first), _LAST: str(yesterday), PRIORITY: LIVE}
        return dg.RunRequest(run_key=f"{first}..{yesterday}", tags=tags)

    return morning


def _last_asked(instance: dg.DagsterInstance, schedule: str) -> date | None:
    """Return the last day that a schedule asked for; `None` if there is no run of it."""
    runs = instance.get_runs(dg.RunsFilter(tags={"dagster/schedule_name": schedule}), limit=_RUNS_LOOKED_AT)
    found = [run.tags.get(_LAST) or run.tags.get("dagster/partition") for run in runs]
    return max((date.fromisoformat(day) for day in found if day), default=None)


def _how_they_end(days: dg.DailyPartitionsDefinition) -> str:
    """Say how to go on after a pause of more than a month, in which no day landed."""
    if days.end is None:
        return ""
    last = (days.end - timedelta(days=1)).date()
    return f", which end on {last}; land that day and those after it first, by hand or by `foldhouse backfill`"
