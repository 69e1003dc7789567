"""A landing folder becomes a stream and its quarantine: one asset each, landed together, day by day."""

from collections.abc import Iterator
from datetime import date
from typing import Any

import dagster as dg
import pyarrow as pa

from foldhouse.dagster.quiet import without_beta_warnings
from foldhouse.dagster.report import DayReport, days_of, group_of, key_of, reporting_days
from foldhouse.dagster.resources import LakeOpener, LandingFolder
from foldhouse.dagster.streams import DAYS_PER_COMMIT, chunks, commit_metadata, spec_of
from foldhouse.lake import Lake
from foldhouse.landing import CsvFormat, Landed, Landing
from foldhouse.values.definition import Stream


def landing_asset(
    stream: Stream,
    quarantine: Stream,
    format: CsvFormat,
    *,
    partitions_def: dg.DailyPartitionsDefinition,
    group: str | None = None,
    days_per_commit: int = DAYS_PER_COMMIT,
    lake_resource_key: str = "lake",
    landing_resource_key: str = "landing",
) -> dg.AssetsDefinition:
    """Make assets of a stream and its quarantine: a run replaces its days by what their files hold now.

    The days are read in chunks. A chunk is read whole before anything of it is committed, so that a file that is not
    readable or has too many bad lines leaves nothing of its chunk behind; chunks before it stay. The quarantine is
    committed first: a run killed between the two commits may leave a line in both, never one in neither, and running it
    again repairs it. Days that did not change are not committed again. A day without a file is an empty day, and is
    recorded as such.

    Args:
        stream: the events, partitioned by day.
        quarantine: the lines that cannot be events, partitioned by day.
        format: what a file holds.
        partitions_def: the days, in UTC.
        group: the assets' group, by default the namespace of the stream.
        days_per_commit: how many days are read, and then committed together.
        lake_resource_key: the resource that opens the lake, a `LakeOpener`.
        landing_resource_key: the resource that opens the folder, a `LandingFolder`.
    """
    with without_beta_warnings():

        @dg.multi_asset(
            name="__".join(stream.name.split(".")),
            specs=[spec_of(one, partitions_def, group or group_of(stream.name)) for one in (stream, quarantine)],
            backfill_policy=dg.BackfillPolicy.single_run(),
            required_resource_keys={lake_resource_key, landing_resource_key},
        )
        def landed(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult]:
            opener: LakeOpener = getattr(context.resources, lake_resource_key)
            folder: LandingFolder = getattr(context.resources, landing_resource_key)
            lake, landing = opener.open(), folder.open(format)
            with reporting_days(context) as report:
                for days in chunks(days_of(context), days_per_commit):
                    _land(lake, landing, stream, quarantine, days, report)
            for one in (stream, quarantine):
                yield dg.MaterializeResult(asset_key=key_of(one.name))

    return landed


def _land(
    lake: Lake, landing: Landing, stream: Stream, quarantine: Stream, days: list[date], report: DayReport
) -> None:
    files = {day: landing.path(day) for day in days}
    landed = {day: landing.read(day) for day in days}
    bad = pa.concat_tables([one.quarantined for one in landed.values()])
    events = pa.concat_tables([one.events for one in landed.values()])
    commits = {
        quarantine: lake.replace(quarantine, bad, partitions=days),
        stream: lake.replace(stream, events, partitions=days),
    }
    for one, commit in commits.items():
        for day in days:
            file = files[day]
            name = file.name if file else "no file, an empty day"
            rows = len(landed[day].quarantined if one is quarantine else landed[day].events)
            report.committed(one.name, day, {**_metadata(landed[day], name, rows), **commit_metadata(commit, day)})


def _metadata(landed: Landed, file: str, rows: int) -> dict[str, Any]:
    return {
        "dagster/partition_row_count": rows,
        "lines": landed.lines,
        "events": len(landed.events),
        "quarantined": len(landed.quarantined),
        "file": file,
        "digest": landed.digest,
    }
