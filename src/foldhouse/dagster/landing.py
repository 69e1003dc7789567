"""A landing folder becomes a stream and its quarantine: one asset each, landed together, day by day.

| a file of the run | its day | the other days | the tables | the run |
|---|---|---|---|---|
| can be read | lands, green | land | are folded | succeeds |
| cannot be read, or is mostly bad | stays as it was, red | land, green | are folded | fails at its end |

The check `every_day_landed` fails until no day is red, whichever run it was of.
"""

from collections.abc import Iterator
from datetime import date

import dagster as dg

from foldhouse.dagster.again import trying_again
from foldhouse.dagster.calendar_days import check_are_days, check_counts
from foldhouse.dagster.early_spark import start_spark_early
from foldhouse.dagster.land_days import LandingTarget, land_days
from foldhouse.dagster.queue import policy_of, pool_of
from foldhouse.dagster.quiet import without_beta_warnings
from foldhouse.dagster.report import days_of, group_of, key_of, reporting_days
from foldhouse.dagster.resources import LakeOpener, LandingFolder
from foldhouse.dagster.streams import DAYS_PER_COMMIT, chunks, spec_of
from foldhouse.errors import DaysNotLanded
from foldhouse.landing import CsvFormat
from foldhouse.storage.log import failed
from foldhouse.values.definition import Stream

CHECK = "every_day_landed"

# Dagster starts the steps of a higher priority first, so the check comes after the tables.
_LAST = {"dagster/priority": "-1000000"}
_REASONS_SHOWN = 10


def landing_asset(
    stream: Stream,
    quarantine: Stream,
    format: CsvFormat,
    *,
    partitions_def: dg.DailyPartitionsDefinition,
    group: str | None = None,
    days_per_commit: int = DAYS_PER_COMMIT,
    days_per_run: int | None = None,
    lake_resource_key: str = "lake",
    landing_resource_key: str = "landing",
) -> dg.AssetsDefinition:
    """Make assets of a stream and its quarantine: a run replaces its days by what their files hold now.

    Days are read and committed in chunks. A file that is not readable or has too many bad lines leaves its day as it
    was; the other days of its chunk land. Once everything else of the run is done, the asset check `every_day_landed`
    fails the run with the days that did not land and why. Running it again lands the files that were corrected.

    The quarantine is committed first: a run killed between the two commits may leave a line in both, never one in
    neither, and running it again repairs it. Days that did not change are not committed again. A day without a file is
    an empty day, and is recorded as such.

    Args:
        stream: the events, partitioned by day.
        quarantine: the lines that cannot be events, partitioned by day.
        format: what a file holds.
        partitions_def: the days, in UTC.
        group: the assets' group, by default the namespace of the stream.
        days_per_commit: how many days are committed together, at most; fewer once their events take `event_bytes` of
            the format's limits in memory.
        days_per_run: how many days of a launched backfill one run takes, see `fold_asset`.
        lake_resource_key: the resource that opens the lake, a `LakeOpener`.
        landing_resource_key: the resource that opens the folder, a `LandingFolder`.

    Raises:
        DefinitionError: a partition is not one day, or a number of days is not a whole number from 1.
    """
    check_are_days(stream.name, partitions_def)
    check_counts(stream.name, days_per_commit=days_per_commit, days_per_run=days_per_run)
    name = "__".join(stream.name.split("."))
    with without_beta_warnings():

        @dg.op(
            name=f"{name}__land",
            out={"stream": dg.Out(dg.Nothing), "quarantine": dg.Out(dg.Nothing)},
            required_resource_keys={lake_resource_key, landing_resource_key},
            pool=pool_of(stream.name),
        )
        def land(context: dg.AssetExecutionContext) -> Iterator[dg.Output]:
            opener: LakeOpener = getattr(context.resources, lake_resource_key)
            folder: LandingFolder = getattr(context.resources, landing_resource_key)
            refused: dict[date, str] = {}
            with trying_again(context, stream.name), reporting_days(context) as report:
                lake, wanted = opener.open(), days_of(context)
                start_spark_early(context, lake, len(wanted))
                target = LandingTarget(lake, folder.open(format), stream, quarantine)
                for days in report.parts(chunks(wanted, days_per_commit)):
                    refused |= land_days(target, days, report)
                if refused:
                    report.hand_over_nothing()
            for day, reason in refused.items():
                context.log_event(dg.AssetObservation(key_of(stream.name), partition=str(day), description=reason))
            for output in ("stream", "quarantine"):
                yield dg.Output(None, output, metadata=report.output_metadata)

        @dg.op(
            name=f"{name}__{CHECK}",
            ins={"stream": dg.In(dg.Nothing), "quarantine": dg.In(dg.Nothing)},
            out={"checked": dg.Out(dg.Nothing)},
            tags=_LAST,
        )
        def check(context: dg.AssetExecutionContext) -> Iterator[dg.AssetCheckResult]:
            refused = _refused(context, land.name, key_of(stream.name))
            earlier = _red_before(context, key_of(stream.name), partitions_def)
            told = refused | dict.fromkeys(earlier[:_REASONS_SHOWN], "did not land in an earlier run; run it again")
            yield dg.AssetCheckResult(
                passed=not refused and not earlier,
                asset_key=key_of(stream.name),
                check_name=CHECK,
                description="\n\n".join(f"{day}: {reason}" for day, reason in told.items()),
                metadata={
                    "days_not_landed": len(refused) + len(earlier),
                    "days": ", ".join(sorted([*refused, *earlier])) or "none",
                },
            )
            if refused:
                failure = DaysNotLanded(_message(stream, refused))
                failed("step", failure, table=stream.name, run_id=context.run.run_id)
                raise dg.Failure(description=str(failure)) from failure

        return dg.AssetsDefinition(
            node_def=_graph(name, land, check),
            keys_by_output_name={"stream": key_of(stream.name), "quarantine": key_of(quarantine.name)},
            specs=[spec_of(one, partitions_def, group or group_of(stream.name)) for one in (stream, quarantine)],
            check_specs_by_output_name={
                "checked": dg.AssetCheckSpec(
                    CHECK,
                    asset=key_of(stream.name),
                    description="Fails while a day has not landed: its file cannot be read, or has too many bad lines. "
                    "Such a day of a run fails the run at its end.",
                )
            },
            backfill_policy=policy_of(days_per_run),
        )


def _graph(name: str, land: dg.OpDefinition, check: dg.OpDefinition) -> dg.GraphDefinition:
    """Two steps: tables wait for the first alone, so that a day that did not land fails the run and no table."""
    outputs = ("stream", "quarantine")
    return dg.GraphDefinition(
        name,
        node_defs=[land, check],
        dependencies={check.name: {output: dg.DependencyDefinition(land.name, output) for output in outputs}},
        output_mappings=[
            *(dg.OutputMapping(output, land.name, output) for output in outputs),
            dg.OutputMapping("checked", check.name, "checked"),
        ],
    )


def _refused(context: dg.AssetExecutionContext, landing_op: str, key: dg.AssetKey) -> dict[str, str]:
    """Day -> why it did not land, as the step before reported it; the two may run in different processes.

    A run that was started again from its failure does not land again, so what the run before it reported still holds.
    """
    asked = {dg.DagsterEventType.ASSET_OBSERVATION, dg.DagsterEventType.STEP_START}
    run: dg.DagsterRun | None = context.run
    while run is not None:
        told = context.instance.all_logs(run.run_id, of_type=asked)
        events = [entry.get_dagster_event() for entry in told if entry.is_dagster_event]
        seen = [one.asset_observation_data.asset_observation for one in events if one.asset_key == key]
        if any((one.step_key or "").endswith(landing_op) for one in events):
            return {one.partition: one.description or "" for one in seen if one.partition}
        run = context.instance.get_run_by_id(run.parent_run_id) if run.parent_run_id else None
    return {}


def _red_before(
    context: dg.AssetExecutionContext, key: dg.AssetKey, partitions_def: dg.DailyPartitionsDefinition
) -> list[str]:
    """The days that did not land in an earlier run, and are not of this one; the page shows them in red."""
    others = sorted(set(partitions_def.get_partition_keys()) - set(context.partition_keys))
    found = context.instance.get_status_by_partition(key, others, partitions_def) or {}
    return [day for day in others if found.get(day) == dg.AssetPartitionStatus.FAILED]


def _message(stream: Stream, refused: dict[str, str]) -> str:
    shown = [f"{day}: {reason}" for day, reason in list(refused.items())[:_REASONS_SHOWN]]
    more = len(refused) - len(shown)
    days = "1 day" if len(refused) == 1 else f"{len(refused)} days"
    first = f"{days} of {stream.name} did not land, the other days of the run did; correct the files and run these days"
    return f"{first} again. {' | '.join(shown)}{f' | and {more} more days' if more else ''}"
