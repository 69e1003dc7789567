"""Checks that are steps of their own, such as `gapless`: what they say if the step of their table fails.

Dagster skips such a check if its table was not published, and the page shows a skipped check as failed. So the step
that fails evaluates the checks that its run has, and reports them: the table is as it was before, and so are they.
"""

from collections.abc import Callable
from typing import Any

import dagster as dg

from foldhouse.dagster.report import key_of
from foldhouse.dagster.resources import LakeOpener
from foldhouse.errors import FoldhouseError
from foldhouse.lake import Lake
from foldhouse.values.definition import Table

Outcome = Callable[[Lake], dict[str, Any]]
"""Evaluates a check: its outcome, as results and evaluations take it."""

_outcomes: dict[tuple[dg.AssetKey, str], Outcome] = {}


def known(table: Table, name: str, outcome: Outcome) -> None:
    """Keep how a check is evaluated, for a step of its table that fails."""
    _outcomes[key_of(table.name), name] = outcome


def report_skipped(context: dg.AssetExecutionContext, table: Table, opener: LakeOpener) -> None:
    """Evaluate and report the checks of a table that this run has as steps, and will skip."""
    planned = context.instance.all_logs(context.run.run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED)
    checks = [entry.dagster_event.asset_check_planned_data for entry in planned if entry.dagster_event]
    for key, name in dict.fromkeys((one.asset_key, one.check_name) for one in checks):
        outcome = _outcomes.get((key, name)) if key == key_of(table.name) else None
        if outcome is None:
            continue
        try:
            found = outcome(opener.open())
        except FoldhouseError as failure:  # the error of the step matters more
            context.log.warning(f"the check {name} of {table.name} could not be evaluated: {failure}")
            continue
        context.log_event(dg.AssetCheckEvaluation(asset_key=key, check_name=name, **found))
