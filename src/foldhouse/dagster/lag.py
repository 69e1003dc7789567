"""Lag on the page: an asset check for each table, and a sensor that keeps it true whoever commits.

| what happens | the check `up_to_date` of a table |
|---|---|
| a run folds it | passes, if the check is part of the run |
| anybody commits to a source of it, or to a source of that | warns, at the next look of the sensor |
| anybody folds it up to there | passes, at the next look of the sensor |
| a commit follows the check of a run | warns, at the next look of the sensor |
| it, or a source of it, cannot be read | warns, and says why; the other tables are looked at as ever |

Dagster's own staleness knows only what its runs did. This reads positions and histories, and no rows.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import dagster as dg

from foldhouse.dagster.again import in_words
from foldhouse.dagster.own_steps import known
from foldhouse.dagster.readable import Readable
from foldhouse.dagster.report import key_of
from foldhouse.dagster.resources import LakeOpener
from foldhouse.dagster.short_cursor import texts_of
from foldhouse.lake import Lake
from foldhouse.values.definition import Table
from foldhouse.values.proofs import SourceLag, in_short

UP_TO_DATE = "up_to_date"
_DESCRIPTION = "Every commit of its sources is folded, and every commit of theirs."

Lag = tuple[SourceLag, ...]


def lag_check(table: Table, *, lake_resource_key: str = "lake") -> dg.AssetChecksDefinition:
    """Make the asset check `up_to_date` of a table: it warns while a commit of a source is not folded.

    Args:
        table: the declaration.
        lake_resource_key: the resource that opens the lake, a `LakeOpener`.
    """

    def outcome(lake: Lake) -> dict[str, Any]:
        return _outcome(lake.lag(table))

    known(table, UP_TO_DATE, outcome)

    @dg.asset_check(
        asset=key_of(table.name),
        name=UP_TO_DATE,
        description=_DESCRIPTION,
        required_resource_keys={lake_resource_key},
    )
    @in_words
    def check(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        opener: LakeOpener = getattr(context.resources, lake_resource_key)
        return dg.AssetCheckResult(**outcome(opener.open()))

    return check


def lag_sensor(
    name: str, tables: Sequence[Table], *, every_seconds: int = 30, lake_resource_key: str = "lake"
) -> dg.SensorDefinition:
    """Make a sensor that reports the check `up_to_date` of tables whenever its outcome changes; it starts no run.

    It also reports it if the page shows another outcome. It is on by default. A table that was never folded is not
    reported.

    Args:
        name: the sensor's name.
        tables: the declarations; each has a `lag_check`.
        every_seconds: between two looks, at least.
        lake_resource_key: the resource that opens the lake, a `LakeOpener`.
    """

    @dg.sensor(
        name=name,
        minimum_interval_seconds=every_seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Reports which tables are behind their sources, whoever committed.",
        required_resource_keys={lake_resource_key},
    )
    def look(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        opener: LakeOpener = getattr(context.resources, lake_resource_key)
        read, seen = Readable.of(opener.open(), tables), texts_of(context.cursor)
        found = {table.name: _outcome(lag) for table in tables if (lag := read.lags.get(table.name))}
        found |= {name: _unreadable(why) for name, why in read.unreadable.items()}
        states = {name: one["description"] for name, one in found.items()}
        changed = [
            name
            for name, state in states.items()
            if seen.get(name) != state or _on_page(context.instance, name) not in (None, state)
        ]
        if not changed:
            return dg.SensorResult(skip_reason=f"no lag of {len(found)} tables changed")
        return dg.SensorResult(asset_events=list(_evaluations(found, changed)), cursor=json.dumps(states))

    return look


def _on_page(instance: dg.DagsterInstance, name: str) -> str | None:
    """Return the state of a table that its newest check says; `None` if there is none, or a run is about to say it.

    A commit may come between the check of a run and the next look, and leave the table as it was at the last look.
    """
    newest = instance.get_latest_asset_check_evaluation_record(dg.AssetCheckKey(key_of(name), UP_TO_DATE))
    event = None if newest is None or newest.event is None else newest.event.dagster_event
    said = None if event is None else event.event_specific_data
    return said.description if isinstance(said, dg.AssetCheckEvaluation) else None


def _evaluations(found: dict[str, dict[str, Any]], names: Sequence[str]) -> Iterator[dg.AssetCheckEvaluation]:
    for name in names:
        yield dg.AssetCheckEvaluation(asset_key=key_of(name), check_name=UP_TO_DATE, **found[name])


def _unreadable(why: str) -> dict[str, Any]:
    """Return the outcome of the check of a table that cannot be read, or whose sources cannot."""
    return {"passed": False, "severity": dg.AssetCheckSeverity.WARN, "description": f"cannot be read: {why}"}


def _outcome(lag: Lag) -> dict[str, Any]:
    """Return the outcome of a check, as results and evaluations take it."""
    late = [one for one in _all(lag) if one.is_behind]
    known = [one for one in late if one.seconds_behind is not None]
    return {
        "passed": not late,
        "severity": dg.AssetCheckSeverity.WARN,
        "description": in_short(lag),
        "metadata": {
            "commits_behind": sum(one.commits_behind or 0 for one in known),
            "rows_behind": sum(one.rows_behind or 0 for one in known),
            "seconds_behind": round(max((one.seconds_behind or 0 for one in known), default=0), 3),
        },
    }


def _all(lag: Lag) -> Iterator[SourceLag]:
    for one in lag:
        yield one
        yield from _all(one.sources)
