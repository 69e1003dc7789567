"""Dagster's runs as metrics: how many there are by job and status, and which tables failed in the last day."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg

from foldhouse.dagster.foreground import home_of, instance_of
from foldhouse.errors import CannotStart
from foldhouse.health.metrics import GAUGE, Family, Sample

_RECENT = timedelta(days=1)
_PAGE = 500


def run_families() -> list[Family]:
    """Return the runs that Dagster created within a day, by job and status, and failed steps by table.

    Raises:
        CannotStart: there is no $DAGSTER_HOME, or Dagster cannot use it.
    """
    home = home_of(Path.cwd())
    if home is None:
        raise CannotStart("there is no dagster.yaml here, so there are no runs to count; set DAGSTER_HOME")
    with instance_of(home) as instance:
        runs = _recent(instance)
        failed = _failures(instance, runs)
    by_status = Counter((run.job_name, run.status.value.lower()) for run in runs)
    return [
        Family(
            "foldhouse_runs_of_a_day",
            GAUGE,
            "Runs of Dagster that were created within 24 hours.",
            tuple(Sample({"job": job, "status": status}, count) for (job, status), count in sorted(by_status.items())),
        ),
        Family(
            "foldhouse_table_failures_of_a_day",
            GAUGE,
            "Runs that were created within 24 hours and failed in the step of this table or stream.",
            tuple(Sample({"table": table}, count) for table, count in sorted(failed.items())),
        ),
    ]


def _recent(instance: dg.DagsterInstance) -> list[dg.DagsterRun]:
    filters = dg.RunsFilter(created_after=datetime.now(UTC) - _RECENT)
    found: list[dg.DagsterRun] = []
    cursor: str | None = None
    while page := instance.get_runs(filters, cursor=cursor, limit=_PAGE):
        found += page
        cursor = page[-1].run_id
    return found


def _failures(instance: dg.DagsterInstance, runs: list[dg.DagsterRun]) -> Counter[str]:
    """Count the failed steps of failed runs by table; a step is named for its asset: `retail__products`."""
    failed: Counter[str] = Counter()
    for run in runs:
        if run.status != dg.DagsterRunStatus.FAILURE:
            continue
        events = instance.all_logs(run.run_id, of_type=dg.DagsterEventType.STEP_FAILURE)
        steps = {one.step_key for one in events if one.step_key}
        failed.update({step.partition(".")[0].replace("__", ".") for step in steps})
    return failed
