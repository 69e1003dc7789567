"""A sensor that follows commits: whoever commits to a source, the tables downstream are refreshed."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

import dagster as dg

from foldhouse.calls.declared import after_sources
from foldhouse.dagster.calendar_days import check_are_days
from foldhouse.dagster.queue import LIVE, PRIORITY
from foldhouse.dagster.readable import Readable
from foldhouse.dagster.report import CHANGES_ALONE, COVERED_ALONE, key_of
from foldhouse.dagster.resources import LakeOpener
from foldhouse.lake import Lake
from foldhouse.values.definition import Table
from foldhouse.values.proofs import SourceLag

Days = Mapping[str, dg.DailyPartitionsDefinition]
"""Table -> the days of its asset."""
_LONGEST_NAMES = 200
_RANGE_START, _RANGE_END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"
_MOST_RUNS = 1_000
_FAILED = [dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]
_UNFINISHED = [
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def commit_sensor(
    name: str,
    tables: Sequence[Table],
    *,
    partitions_def: dg.DailyPartitionsDefinition | Mapping[str, dg.DailyPartitionsDefinition] | None = None,
    every_seconds: int = 30,
    lake_resource_key: str = "lake",
) -> dg.SensorDefinition:
    """Make a sensor that asks for one run of all tables that are behind their sources, each after its sources.

        somebody appends to a stream        -> a run of every table that is folded from it, directly or not
        a late event for a covered day      -> a run of the newest day; it reports the days that changed alone
        events of days that are new         -> a run of these days, if the stream is partitioned by day: see `new_days`
        the run it asked for is not done    -> nothing, until it is
        of several such runs, one fails     -> its days again, once the table has another commit
        nothing was committed               -> nothing
        a table, or its source, is damaged  -> nothing for it, and the others as ever; the tick names it

    Positions in the lake say what is behind, so no event of Dagster is needed. The same state is asked for once: after
    a run that failed, the next commit, a rollback or a run by hand goes on. The cursor has the states that were asked
    for and are still behind, and the days that runs were to add and that are still missing; if it is lost, or reset on
    the page, the days of runs that failed are those of Dagster's records. A table that comes back to
    such a state later, by a rollback or because its pause ended, is asked for again: no run has a run key, because
    Dagster never starts a second run for the same key.

    Which days a late event changes is known only once it is folded, and Dagster has no run of a table with days without
    a day. So such a run has the newest day. It reports that day too if it changed, or if the page shows it as missing
    or failed.

    Args:
        name: the sensor's name. It waits for runs of every sensor of that name, so give those of other code locations
            other names.
        tables: the declarations; each has an asset made by `fold_asset`.
        partitions_def: the days of the assets of tables with `partition_by`; by table, if they differ, and then there
            is a run for each; `None` if their assets have none.
        every_seconds: between two looks, at least.
        lake_resource_key: the resource that opens the lake, a `LakeOpener`.

    Raises:
        DefinitionError: a partition is not one day.
    """
    days = _days_by_table(name, tables, partitions_def)

    @dg.sensor(
        name=name,
        asset_selection=dg.AssetSelection.assets(*(key_of(table.name) for table in tables)),
        minimum_interval_seconds=every_seconds,
        description="Refreshes the tables that are behind their sources, whoever committed.",
        required_resource_keys={lake_resource_key},
    )
    def look(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        unfinished = context.instance.get_runs(
            dg.RunsFilter(tags={"dagster/sensor_name": name}, statuses=_UNFINISHED), limit=1
        )
        if unfinished:
            return dg.SensorResult(skip_reason=f"the run {unfinished[0].run_id} that it asked for is not done")
        opener: LakeOpener = getattr(context.resources, lake_resource_key)
        lake = opener.open()
        before = _Before.of(context.cursor) or _Before(ranges=_ranges_of_failed(context.instance, name, tables))
        found = Readable.of(lake, tables)
        readable = [table for table in tables if table.name not in found.unreadable]
        # The days of a table that cannot be read now stay in the cursor.
        lacking = {table.name: _days_of_ranges(before.ranges.get(table.name, ())) for table in tables}
        lacking |= {table.name: _lacking(lake, table, lacking[table.name]) for table in readable}
        late = _behind(lake, readable, found.lags, lacking)
        if found.unreadable:
            context.log.warning(_not_followed(found.unreadable))
        if not late:
            why = f"none of {len(readable)} tables is behind its sources"
            why += f"; {_not_followed(found.unreadable)}" if found.unreadable else ""
            return dg.SensorResult(skip_reason=why, cursor=_cursor([], lacking))
        behind = {
            _state(lake, group, asked): (group, asked)
            for group, asked in ((group, _days_of(lake, group, own, lacking)) for own, group in _by_days(late, days))
        }
        requests = [
            request
            for state, (group, asked) in behind.items()
            if state not in before.states
            for request in _requests(context.instance, group, asked)
        ]
        for group, asked in behind.values():
            if asked.are_new:
                of_runs = {day for one in asked.ranges for day in _days_in(one)}
                lacking |= {one.name: {*lacking[one.name], *of_runs} for one in group if one.partition_by is not None}
        cursor = _cursor(list(behind), lacking)
        if not requests:
            return dg.SensorResult(skip_reason=_waits_for_a_commit(late), cursor=cursor)
        return dg.SensorResult(run_requests=requests, cursor=cursor)

    return look


@dataclass(frozen=True)
class _Before:
    """What the sensor asked for at its earlier looks.

    Args:
        states: those that were asked for and are still behind.
        ranges: table -> the first and last days of runs that were to add days.
    """

    states: Set[str] = frozenset()
    ranges: Mapping[str, Sequence[Sequence[str]]] = field(default_factory=dict)

    @staticmethod
    def of(cursor: str | None) -> "_Before | None":
        """Read a cursor; `None` if it is lost, damaged, or was reset, so that all is asked for again."""
        try:
            found = json.loads(cursor or "")
            states = found["states"] if isinstance(found, dict) else found  # of earlier versions
            ranges = found["days"] if isinstance(found, dict) else {}
            for one in (one for each in ranges.values() for one in each):
                _days_in(one)
            return _Before({one for one in states if isinstance(one, str)}, ranges)
        except (ValueError, RecursionError, TypeError, LookupError, AttributeError):
            return None


def _ranges_of_failed(
    instance: dg.DagsterInstance, name: str, tables: Sequence[Table]
) -> Mapping[str, Sequence[Sequence[str]]]:
    """Return the days of this sensor's runs that failed or were cancelled, by table: what a cursor would have said."""
    runs = instance.get_runs(dg.RunsFilter(tags={"dagster/sensor_name": name}, statuses=_FAILED), limit=_MOST_RUNS)
    found: dict[str, list[Sequence[str]]] = {}
    for run in runs:
        ends = run.tags.get(_RANGE_START), run.tags.get(_RANGE_END)
        for table in tables if None not in ends else ():
            if not run.asset_selection or key_of(table.name) in run.asset_selection:
                found.setdefault(table.name, []).append([str(one) for one in ends])
    return found


def _cursor(states: Sequence[str], lacking: Mapping[str, Set[date]]) -> str:
    ranges = {
        name: [[one[0], one[-1]] for one in _ranges(sorted(day.isoformat() for day in days))]
        for name, days in lacking.items()
        if days
    }
    return json.dumps({"states": list(states), "days": ranges} if ranges else list(states))


def _days_in(given: Sequence[str]) -> list[date]:
    """Return the days from the first to the last one of a range."""
    first, last = date.fromisoformat(given[0]), date.fromisoformat(given[-1])
    return [first + timedelta(days=number) for number in range((last - first).days + 1)]


def _days_of_ranges(ranges: Sequence[Sequence[str]]) -> Set[date]:
    return {day for one in ranges for day in _days_in(one)}


def _not_followed(unreadable: Mapping[str, str]) -> str:
    """Name the tables that cannot be read, and why the first one cannot."""
    return f"not followed: {', '.join(unreadable)[:_LONGEST_NAMES]}; {next(iter(unreadable.values()))}"


def _lacking(lake: Lake, table: Table, asked: Set[date]) -> Set[date]:
    """Return the days of which a source has rows, and that an earlier run was to add to a table, but did not.

    Where several runs were asked for, one that succeeds moves the table's position; `new_days` then takes the days of
    one that failed for days that were left out on purpose.
    """
    if not asked or table.partition_by is None:
        return set()
    if any(lake.head(source) is None for source in table.sources):
        return asked  # the lake is not there now, or the source is about to be made again
    there = {day for source in table.sources for day in lake.days(source)}
    return (asked & there) - set(lake.covered(table, asked))


def _waits_for_a_commit(late: Sequence[Table]) -> str:
    names = ", ".join(table.name for table in late)[:_LONGEST_NAMES]
    return (
        f"{names} are behind, and a run was asked for that did not change this; see the last run of this sensor. "
        "The next commit of a source or a run by hand goes on"
    )


def _days_by_table(name: str, tables: Sequence[Table], given: Any) -> Days:
    if isinstance(given, dg.PartitionsDefinition):
        check_are_days(name, given)
    if isinstance(given, dg.DailyPartitionsDefinition):
        return {table.name: given for table in tables if table.partition_by is not None}
    for of_table, one in (given or {}).items():
        check_are_days(of_table, one)
    return given or {}


def _by_days(tables: Sequence[Table], days: Days) -> list[tuple[dg.DailyPartitionsDefinition | None, list[Table]]]:
    """Divide tables by their days. All of one set of days, tables without days run in the same run."""
    different = list(dict.fromkeys(repr(days[table.name]) for table in tables if table.name in days))
    if len(different) < 2:
        return [(next((days[table.name] for table in tables if table.name in days), None), list(tables))]
    groups: dict[str, tuple[dg.DailyPartitionsDefinition | None, list[Table]]] = {}
    for table in tables:
        own = days.get(table.name)
        groups.setdefault(repr(own), (own, []))[1].append(table)
    return list(groups.values())


def _behind(
    lake: Lake,
    tables: Sequence[Table],
    lags: Mapping[str, Sequence[SourceLag]],
    lacking: Mapping[str, Set[date]],
) -> list[Table]:
    """Return the tables that have something to fold: a commit of a source, days, or all of it for a new table."""
    names = set(lake.tables())
    found: list[Table] = []
    comes = {table.name for table in tables}
    paused = {name for name in lags if lake.paused(name) is not None}
    for table in after_sources(tables):
        if table.name in paused:
            continue
        if lags.get(table.name):
            has_days = bool(lacking[table.name] or lake.new_days(table))
            is_late = has_days or any(_moves(one, paused) for one in lags[table.name])
        else:  # never folded: it can be if each source has rows, or is folded by the same run
            late = {one.name for one in found}
            is_late = all(
                source.name in names or (source.name in comes and source.name in late) for source in table.sources
            )
        if is_late:
            found.append(table)
    return found


def _moves(one: SourceLag, paused: Set[str]) -> bool:
    """Whether a source has commits to fold, or will have, because what it waits for is not paused."""
    if one.commits_behind != 0:
        return True
    return one.name not in paused and any(_moves(above, paused) for above in one.sources)


@dataclass(frozen=True)
class _Asked:
    """The days of runs to ask for.

    Args:
        partitions_def: the days of the assets; `None` if they have none.
        ranges: days that follow one another, as Dagster's keys; none if there is no partition yet.
        are_new: whether the days are asked for because they do not exist.
    """

    partitions_def: dg.DailyPartitionsDefinition | None = None
    ranges: Sequence[list[str]] = ()
    are_new: bool = False


def _days_of(
    lake: Lake,
    tables: Sequence[Table],
    partitions_def: dg.DailyPartitionsDefinition | None,
    lacking: Mapping[str, Set[date]],
) -> _Asked:
    """Return the days to ask for: new ones, those that an earlier run did not add, or else one that exists.

    A run of any day refreshes every day that exists.
    """
    partitioned = [table for table in tables if table.partition_by is not None]
    if not partitioned or partitions_def is None:
        return _Asked()
    new = {day.isoformat() for one in partitioned for day in {*lake.new_days(one), *lacking[one.name]}}
    asked = sorted(day for day in new if partitions_def.has_partition_key(day))
    if asked:
        return _Asked(partitions_def, list(_ranges(asked)), are_new=True)
    there = sorted((day.isoformat() for table in partitioned for day in lake.days(table)), reverse=True)
    known = [day for day in there if partitions_def.has_partition_key(day)]
    first, last = partitions_def.get_first_partition_key(), partitions_def.get_last_partition_key()
    if known or first is None or last is None:
        return _Asked(partitions_def, [known[:1]] if known else [])
    if any(source.partition_by is not None for table in partitioned for source in table.sources):
        return _Asked(partitions_def, [[first]])
    # Sources without days do not say of which days their rows are.
    return _Asked(partitions_def, [[first, last]], are_new=True)


def _ranges(days: Sequence[str]) -> Iterator[list[str]]:
    following: list[str] = []
    for day in days:
        if following and date.fromisoformat(day) - date.fromisoformat(following[-1]) != timedelta(days=1):
            yield following
            following = []
        following.append(day)
    if following:
        yield following


def _state(lake: Lake, tables: Sequence[Table], asked: _Asked) -> str:
    """Return a text that changes with each commit to the tables and their sources, each rollback, and the days."""
    names = sorted({source.name for table in tables for source in table.sources} | {table.name for table in tables})
    # A rolled-back head has the id it had before, but is the head since another time.
    heads = [(name, (one.id, one.committed_at) if (one := lake.head(name)) is not None else None) for name in names]
    behind = [table.name for table in tables]
    return hashlib.sha256(repr((heads, behind, asked.ranges)).encode()).hexdigest()[:16]


def _requests(instance: dg.DagsterInstance, tables: Sequence[Table], asked: _Asked) -> Iterator[dg.RunRequest]:
    keys = [key_of(table.name) for table in tables]
    tags = {"foldhouse/behind": ", ".join(table.name for table in tables)[:_LONGEST_NAMES], PRIORITY: LIVE}
    if asked.partitions_def is None:
        yield dg.RunRequest(asset_selection=keys, tags=tags)
    for one in asked.ranges:
        of_run = {_RANGE_START: one[0], _RANGE_END: one[-1]}
        of_run |= COVERED_ALONE
        if not asked.are_new and _are_green(instance, tables, one, asked.partitions_def):
            of_run |= CHANGES_ALONE
        yield dg.RunRequest(asset_selection=keys, tags={**tags, **of_run})


def _are_green(
    instance: dg.DagsterInstance,
    tables: Sequence[Table],
    days: Sequence[str],
    partitions_def: dg.DailyPartitionsDefinition | None,
) -> bool:
    """Whether the page shows some days of all tables as materialized."""
    keys = [key_of(table.name) for table in tables if table.partition_by is not None]
    assert partitions_def is not None, "days are of partitions"
    found = [
        (instance.get_status_by_partition(key, days, partitions_def) or {}).get(day) for key in keys for day in days
    ]
    return all(status == dg.AssetPartitionStatus.MATERIALIZED for status in found)
