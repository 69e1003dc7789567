"""A schedule that asks for yesterday each morning, and for the days of the mornings that were missed or failed."""

from datetime import date, timedelta

import dagster as dg

from foldhouse.dagster.landing import CHECK
from foldhouse.dagster.queue import LIVE, PRIORITY

_FIRST, _LAST = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"
_RUNS_LOOKED_AT = 50
"""A run that somebody started again has the schedule's tags too, and may be of an older day."""
_ENDED_EARLY = (dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED, dg.DagsterRunStatus.CANCELING)


def each_morning(job_name: str, hour: int, days: dg.DailyPartitionsDefinition) -> dg.ScheduleDefinition:
    """Run a job on yesterday at a full hour, UTC; off until it is switched on.

        each morning                             -> a run of the day before
        the daemon was stopped for three weeks   -> one run of these weeks: Dagster makes up one morning only
        the last run failed or was cancelled     -> one run of its days and the day before
        an earlier one failed after that morning -> one run from its first day on
        it failed because a file cannot be read  -> a run of the day before: the other days and all tables are done
        the schedule never asked for a run       -> a run of the day before

    A table would else stay without the days of a failed run: once it has a later day, they count as left out on
    purpose. Running days again that are done changes nothing.

    Two code locations of one Dagster need different names of jobs: a schedule cannot tell its runs from those of a
    schedule of the same name in another location, and would take their days for its own.

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
        description=f"Lands yesterday at {hour}:00 UTC, with or without events, and the days since its last good run.",
    )
    def morning(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        yesterday = (context.scheduled_execution_time - timedelta(days=1)).date()
        if not days.has_partition_key(str(yesterday)):
            return dg.SkipReason(f"{yesterday} is not among the days of this deployment{_how_they_end(days)}")
        first = min(_first_open(context.instance, name) or yesterday, yesterday)
        while not days.has_partition_key(str(first)):
            first += timedelta(days=1)
        if first == yesterday:
            return dg.RunRequest(run_key=str(yesterday), partition_key=str(yesterday), tags={PRIORITY: LIVE})
        tags = {_FIRST: str(first), _LAST: str(yesterday), PRIORITY: LIVE}
        return dg.RunRequest(run_key=f"{first}..{yesterday}", tags=tags)

    return morning


def _first_open(instance: dg.DagsterInstance, schedule: str) -> date | None:
    """Return the first day that a run of a schedule was to do and none did, else the day after the last that one did.

    `None` if there is no run of it.
    """
    runs = instance.get_runs(dg.RunsFilter(tags={"dagster/schedule_name": schedule}), limit=_RUNS_LOOKED_AT)
    done, failed = set[date](), set[date]()
    for run in runs:
        if (of_run := _days_of(run)) is not None:
            first, last = of_run
            days = {first + timedelta(days=number) for number in range((last - first).days + 1)}
            (done if _did_its_work(instance, run) else failed).update(days)
    # A run that was still going when a later day was asked for may have failed since.
    return min([*failed - done, *([max(done) + timedelta(days=1)] if done else [])], default=None)


def _days_of(run: dg.DagsterRun) -> tuple[date, date] | None:
    only = run.tags.get("dagster/partition", "")
    first, last = run.tags.get(_FIRST, only), run.tags.get(_LAST, only)
    return (date.fromisoformat(first), date.fromisoformat(last)) if first and last else None


def _did_its_work(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    """Whether a run is done, or is to be: also if it failed at its end alone, because of files that did not land."""
    if run.status not in _ENDED_EARLY:
        return True
    if run.status != dg.DagsterRunStatus.FAILURE:
        return False
    failures = instance.all_logs(run.run_id, of_type=dg.DagsterEventType.STEP_FAILURE)
    steps = [one.step_key or "" for one in failures]
    return bool(steps) and all(step.endswith(CHECK) for step in steps)


def _how_they_end(days: dg.DailyPartitionsDefinition) -> str:
    """Say how to go on after a pause of more than a month, in which no day landed."""
    if days.end is None:
        return ""
    last = (days.end - timedelta(days=1)).date()
    return f", which end on {last}; land that day and those after it first, by hand or by `foldhouse backfill`"
