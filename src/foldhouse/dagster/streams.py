"""A stream whose days come from a function becomes an asset: what a stream's days, and landing folders, have in common.

| a run of | what it does |
|---|---|
| a day or a range | replaces these days of the stream by what the function gives for them |
| the same again | commits nothing |
| a day that somebody else replaces meanwhile | asks for its events again: no older answer stays over a newer one |
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from typing import Any

import dagster as dg
import pyarrow as pa

from foldhouse.calls.events import Events, as_arrow, is_spark
from foldhouse.dagster.again import trying_again
from foldhouse.dagster.calendar_days import check_are_days, check_counts
from foldhouse.dagster.columns import table_schema
from foldhouse.dagster.queue import policy_of, pool_of
from foldhouse.dagster.quiet import without_beta_warnings
from foldhouse.dagster.report import Metadata, days_of, group_of, key_of, reporting_days
from foldhouse.dagster.resources import LakeOpener
from foldhouse.errors import DaysChanged, DefinitionError, InvalidData
from foldhouse.lake import Lake
from foldhouse.values.definition import Stream
from foldhouse.values.results import Appended

DAYS_PER_COMMIT = 31
_MOST_QUESTIONS = 5

EventsOfDay = Callable[[date], Events]
"""A day -> all events of it, in the stream's columns and in any form that `append` takes; no rows if it has none."""


def stream_asset(
    stream: Stream,
    events: EventsOfDay,
    *,
    partitions_def: dg.DailyPartitionsDefinition,
    group: str | None = None,
    days_per_commit: int = DAYS_PER_COMMIT,
    days_per_run: int | None = None,
    lake_resource_key: str = "lake",
) -> dg.AssetsDefinition:
    """Make an asset of a stream: a run replaces its days by what `events` gives for them now.

        stream_asset(order_events, lambda day: queue.between(day, day + one_day), partitions_def=daily)

    Exactly once: a day is replaced as a whole, so doing it twice changes nothing, and a run killed at any moment is
    repaired by running it again. `events` has to give a day's events in the same order each time, or the day is
    committed again.

    Args:
        stream: the events, partitioned by day: where events come late, by the day on which they arrive.
        events: what is asked for a day's events.
        partitions_def: the days, in UTC.
        group: the asset's group, by default the namespace of the stream.
        days_per_commit: how many days are read, and then committed together. Days turn green as they are committed.
        days_per_run: how many days of a launched backfill one run takes, see `fold_asset`.
        lake_resource_key: the resource that opens the lake, a `LakeOpener`.

    Raises:
        DefinitionError: the stream is not partitioned by day, a partition is not one day, or a number of days is not a
            whole number from 1.
    """
    if stream.partition_by is None:
        raise DefinitionError(f"{stream.name} has no partition_by, so it has no days that could be replaced")
    check_are_days(stream.name, partitions_def)
    check_counts(stream.name, days_per_commit=days_per_commit, days_per_run=days_per_run)
    with without_beta_warnings():

        @dg.multi_asset(
            name="__".join(stream.name.split(".")),
            specs=[spec_of(stream, partitions_def, group or group_of(stream.name))],
            backfill_policy=policy_of(days_per_run),
            required_resource_keys={lake_resource_key},
            pool=pool_of(stream.name),
        )
        def landed(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
            opener: LakeOpener = getattr(context.resources, lake_resource_key)
            with trying_again(context, stream.name), reporting_days(context) as report:
                lake = opener.open()
                for days in report.parts(chunks(days_of(context), days_per_commit)):
                    of_the_days, commit = _replaced(lake, stream, days, events)
                    for day, given in of_the_days.items():
                        rows = {"dagster/partition_row_count": given.num_rows}
                        report.committed(stream.name, day, {**rows, **commit_metadata(commit, day)})
            return dg.MaterializeResult(asset_key=key_of(stream.name), metadata=report.output_metadata)

    return landed


def _replaced(
    lake: Lake, stream: Stream, days: Sequence[date], events: EventsOfDay
) -> tuple[dict[date, pa.Table], Appended]:
    """Replace some days by what is given for them; ask again if somebody else replaced one of them meanwhile.

    Otherwise the run that asked first and commits last would put its older answer over a newer one.

    Raises:
        DaysChanged: that happened each of several times.
    """
    for _ in range(_MOST_QUESTIONS - 1):
        with contextlib.suppress(DaysChanged):
            return _replaced_once(lake, stream, days, events)
    return _replaced_once(lake, stream, days, events)


def _replaced_once(
    lake: Lake, stream: Stream, days: Sequence[date], events: EventsOfDay
) -> tuple[dict[date, pa.Table], Appended]:
    seen = lake.landed(stream, days).states
    of_the_days = {day: _rows(stream, day, events(day)) for day in days}
    return of_the_days, lake.replace(stream, _together(stream, of_the_days), partitions=days, seen=seen)


def _rows(stream: Stream, day: date, given: Any) -> pa.Table:
    rows = given.toArrow() if is_spark(given) else given
    return as_arrow(f"{stream.name}: what was given for {day}", rows, dict(stream.schema))


def _together(stream: Stream, of_the_days: Mapping[date, pa.Table]) -> pa.Table:
    """Return the events of some days in one table.

    Raises:
        InvalidData: two days have other columns, or one column has types that do not fit together.
    """
    (first, one), *others = of_the_days.items()
    for day, other in others:
        if set(other.column_names) != set(one.column_names):
            columns = f"{first} has {', '.join(one.column_names)}, {day} has {', '.join(other.column_names)}"
            raise InvalidData(f"{stream.name}: days have different columns: {columns}; give each day the same columns")
    try:
        return pa.concat_tables(of_the_days.values(), promote_options="permissive")
    except pa.ArrowException as failure:
        raise InvalidData(
            f"{stream.name}: the columns of {first} to {max(of_the_days)} do not have the same types: {failure}"
        ) from failure


def spec_of(stream: Stream, partitions_def: dg.DailyPartitionsDefinition, group: str) -> dg.AssetSpec:
    """Return the asset of a stream, with the metadata that the page shows."""
    return dg.AssetSpec(
        key_of(stream.name),
        group_name=group,
        description=stream.description or f"The stream {stream.name}, landed day by day.",
        kinds={"iceberg", "spark"},
        metadata={"dagster/table_name": stream.name, "dagster/column_schema": table_schema(stream.schema)},
        partitions_def=partitions_def,
    )


def commit_metadata(commit: Appended, day: date) -> Metadata:
    """Return the metadata of one replaced day, as the page shows it."""
    counts = commit.partitions.get(day)
    return {
        "committed": commit.committed,
        "snapshot_id": str(commit.snapshot_id),
        "rows_added": counts.rows_written if counts else 0,
        "rows_removed": counts.rows_deleted if counts else 0,
    }


def chunks(days: list[date], size: int) -> Iterator[list[date]]:
    """Days that follow one another, at most `size` of them."""
    chunk: list[date] = []
    for day in days:
        if chunk and (len(chunk) == size or day - chunk[-1] > timedelta(days=1)):
            yield chunk
            chunk = []
        chunk.append(day)
    if chunk:
        yield chunk
