"""When Dagster's declarative automation runs a table: for each day of a source that changed, however old."""

from typing import Any

import dagster as dg


def when_sources_change(cron_schedule: str | None = None, *, cron_timezone: str = "UTC") -> dg.AutomationCondition[Any]:
    """Return the condition of a table that Dagster is to run whenever a day of a source was committed.

        fold_asset(revenue, partitions_def=days, automation_condition=when_sources_change())
        a day of the source landed, new or again          -> a run of this day, at the next look
        it landed while a run of this day is under way    -> a run of this day once that one ended
        when_sources_change("0 * * * *")                  -> at each full hour, the days that landed since

    It looks when the automation sensor of the page does, each 30 seconds, and that sensor is off until it is switched
    on. A commit that no run of Dagster made is not seen; `commit_sensor` sees it. A run of a source and the table
    together may be followed by one of the table alone, which commits nothing.

    A source without days has no day that changed, so Dagster asks for all days of a table that has them. For such a
    table, use `commit_sensor`, whose runs report the days that changed.

    Args:
        cron_schedule: when to ask, instead of at once.
        cron_timezone: of the schedule.
    """
    condition = dg.AutomationCondition
    # `any_deps_updated`, and `eager`, forget a source that changes while the table's own run is under way: what changed
    # counts at one look, and that look is over when the run ends. Here it counts until a later run was asked for.
    changed = condition.any_deps_match(condition.newly_updated()).since(condition.newly_requested())
    if cron_schedule is None:
        return (changed & ~condition.in_progress()).with_label("a source changed since the last run was asked for")
    at = condition.cron_tick_passed(cron_schedule, cron_timezone)
    return (changed & at).with_label(f"a source changed, at {cron_schedule} {cron_timezone}")
