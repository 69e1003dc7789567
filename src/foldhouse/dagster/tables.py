"""A table value and one call: an asset that refreshes it, or backfills the days of a partitioned run."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Any

import dagster as dg

from foldhouse.dagster.again import trying_again
from foldhouse.dagster.calendar_days import check_are_days, check_counts
from foldhouse.dagster.checks import reporting_failed_checks, results_of, results_of_nothing, specs_of
from foldhouse.dagster.columns import columns_of_commit, declared_columns
from foldhouse.dagster.early_spark import known
from foldhouse.dagster.looks import looks_of
from foldhouse.dagster.queue import policy_of, pool_of
from foldhouse.dagster.quiet import without_beta_warnings
from foldhouse.dagster.report import (
    Metadata,
    days_of,
    group_of,
    key_of,
    leaves_out_uncovered,
    reporting_days,
    reports_changes_alone,
    tell,
)
from foldhouse.dagster.resources import LakeOpener
from foldhouse.errors import DaysNotCovered, DefinitionError, FoldhouseError, InvalidCall, Paused
from foldhouse.lake import Lake
from foldhouse.values.checks import ChangedAtMost
from foldhouse.values.definition import Table
from foldhouse.values.metadata_names import COVERAGE
from foldhouse.values.results import Checked, PartitionCounts, Refreshed
from foldhouse.values.window import Coverage

_MOST_DAYS = 31


def fold_asset(
    table: Table,
    *,
    partitions_def: dg.DailyPartitionsDefinition | None = None,
    group: str | None = None,
    deps: Sequence[Any] = (),
    automation_condition: dg.AutomationCondition | None = None,
    days_per_commit: int | None = None,
    days_per_run: int | None = None,
    lake_resource_key: str = "lake",
) -> dg.AssetsDefinition:
    """Make an asset of a table.

        fold_asset(products)                              -> `retail/products`, each run refreshes it
        fold_asset(daily_revenue, partitions_def=daily)   -> a run, of a day or a range, folds its days in one commit

    A run of some days refreshes the table first, so that days it did not ask for may change; those are reported too.
    A day that a source table does not cover is not folded, and the run fails at its end: see `lake.uncovered`.
    Each check of the table is an asset check. If a blocking check fails, the run fails, and the table stays as it was.
    Exactly once: doing it twice changes nothing, and a run killed at any moment is repaired by running it again.

    Args:
        table: the declaration; its name is the asset's key, its source what the asset depends on.
        partitions_def: days, in UTC unless the table's days are those of another zone, for a table with `partition_by`.
            None: the whole table at each run.
        group: the asset's group, by default the name's namespace.
        deps: further assets that have to come first.
        automation_condition: when Dagster is to run it without being asked.
        days_per_commit: how many days of a range one commit takes; by default all of them. Fewer show a long range's
            progress, and keep what is done when a later part fails; each commit costs a second or two.
        days_per_run: how many days of a launched backfill one run takes; by default all of them. Between two such runs,
            runs of new data go first, which otherwise wait for the whole backfill. Assets that are launched together
            need the same number. Each run costs the start of a process.
        lake_resource_key: the resource that opens the lake, a `LakeOpener`.

    Raises:
        DefinitionError: days for a table without `partition_by`, partitions that are not one day each, or a number of
            days that is not a whole number from 1.
    """
    if partitions_def is not None and table.partition_by is None:
        raise DefinitionError(
            f"{table.name} has no partition_by, so it has no days; declare one, or leave partitions_def out"
        )
    if partitions_def is not None:
        check_are_days(table.name, partitions_def)
    check_counts(table.name, days_per_commit=days_per_commit, days_per_run=days_per_run)
    known(table)
    with without_beta_warnings():

        @dg.asset(
            key=key_of(table.name),
            deps=[*(key_of(name) for name in _read_by(table)), *deps],
            group_name=group or group_of(table.name),
            description=table.description or f"The fold of {_sources(table)}, by {', '.join(table.keys)}.",
            kinds={"iceberg", "spark"},
            metadata=_definition_metadata(table),
            partitions_def=partitions_def,
            backfill_policy=policy_of(days_per_run) if partitions_def else None,
            automation_condition=automation_condition,
            check_specs=specs_of(table),
            required_resource_keys={lake_resource_key},
            pool=pool_of(table.name),
        )
        def folded(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
            opener: LakeOpener = getattr(context.resources, lake_resource_key)
            with trying_again(context, table.name), reporting_failed_checks(context, table, opener):
                if partitions_def is None:
                    return _refresh(opener.open(), table)
                return _backfill(opener.open(), table, context, days_per_commit)

    return folded


def _refresh(lake: Lake, table: Table) -> dg.MaterializeResult:
    try:
        refreshed = _with_new_days(lake, table)
    except Paused as held:
        return _left_as_it_is(lake, table, {"paused": str(held.pause)})
    tell(table.name, None)
    looks = looks_of(lake, table, refreshed)
    metadata = {**looks.whole, **commit_metadata_of(refreshed), **columns_of_commit(lake, table)}
    return dg.MaterializeResult(
        metadata=metadata, data_version=_version(refreshed), check_results=_checked(lake, table, refreshed)
    )


def _with_new_days(lake: Lake, table: Table) -> Refreshed:
    """Refresh a table; one that has been folded by days, before its asset had none, gets the days that are new."""
    days = lake.new_days(table) if table.partition_by is not None and lake.head(table) is not None else []
    return lake.backfill(table, days) if days else lake.refresh(table)


def _backfill(
    lake: Lake, table: Table, context: dg.AssetExecutionContext, days_per_commit: int | None
) -> dg.MaterializeResult:
    asked, changes_alone = days_of(context), reports_changes_alone(context)
    if not asked:
        raise InvalidCall(f"{table.name}: the run has no day; its range ends before it begins, so ask for another one")
    missing = _uncovered(lake, table, asked)
    ready = [day for day in asked if not any(day in days for days in missing.values())]
    may_leave_out, refreshed = leaves_out_uncovered(context), None
    found: list[Checked] = []
    parts = list(_chunks(ready, days_per_commit)) if ready else [[]] if may_leave_out and lake.head(table) else []
    with reporting_days(context) as report:
        if changes_alone or missing:
            report.hand_over_nothing()
        for days in report.parts(parts):
            try:
                refreshed = lake.backfill(table, days)
            except Paused as held:
                _check_days_exist(lake, table, asked, held)
                return _left_as_it_is(lake, table, {"paused": str(held.pause), **report.output_metadata})
            found += refreshed.checks
            looks, whole = looks_of(lake, table, refreshed), whole_commit_of(refreshed)
            told = _changed(refreshed) if changes_alone else sorted({*days, *refreshed.partitions})
            newest = max(told, default=None) if changes_alone or missing else asked[-1]
            for day in told:
                metadata = {**looks.of_day(day), **day_metadata_of(refreshed, day, whole)}
                if day == newest:  # the page takes it from the newest event
                    metadata = {**looks.whole, **metadata, **columns_of_commit(lake, table)}
                report.committed(table.name, day, metadata)
        if missing and not may_leave_out:
            raise DaysNotCovered(_message(table, missing))
    if missing:
        context.log.warning(_message(table, missing))
    if refreshed is None:
        return _left_as_it_is(lake, table, report.output_metadata)
    return dg.MaterializeResult(
        metadata=report.output_metadata,
        data_version=_version(refreshed),
        check_results=_checked(lake, table, refreshed, found),
    )


def _changed(refreshed: Refreshed) -> list[date]:
    return sorted(day for day, counts in refreshed.partitions.items() if counts.rows_written or counts.rows_deleted)


def _uncovered(lake: Lake, table: Table, days: Sequence[date]) -> dict[str, list[date]]:
    try:
        return lake.uncovered(table, days)
    except FoldhouseError:  # the backfill says so
        return {}


def _message(table: Table, missing: Mapping[str, Sequence[date]]) -> str:
    said = []
    for source, days in missing.items():
        more = f" and {len(days) - _MOST_DAYS:,} more days" if len(days) > _MOST_DAYS else ""
        said.append(f"{source} does not cover {', '.join(map(str, days[:_MOST_DAYS]))}{more}")
    return (
        f"{table.name} was not folded for all days, because its source {'; '.join(said)}: the rows of such a day would "
        "be missing. Run these days of the source first, then of this table. The other days are folded"
    )


def _left_as_it_is(lake: Lake, table: Table, metadata: Mapping[str, Any]) -> dg.MaterializeResult:
    """Return the outcome of a run that folded nothing, such as of a paused table; nothing downstream becomes stale.

    Args:
        lake: of the table.
        table: the declaration.
        metadata: of the output; it says why.
    """
    head = lake.head(table)
    audited = head is not None and bool(table.checks)
    results = results_of(table, lake.audit(table)) if audited else results_of_nothing(table)
    return dg.MaterializeResult(
        metadata={"committed": False, **metadata},
        data_version=None if head is None else dg.DataVersion(str(head.id)),
        check_results=results,
    )


def _check_days_exist(lake: Lake, table: Table, asked: Sequence[date], held: Paused) -> None:
    """Fail the step of a paused table if a day does not exist yet, because its materialization would be a lie."""
    head = lake.head(table)
    covered = Coverage.parse(head.summary.get(COVERAGE, "")) if head is not None else Coverage()
    missing = [] if covered.is_everything else list(Coverage.of(asked).minus(covered).days())
    if missing:
        days = f"{missing[0]}" if len(missing) == 1 else f"{missing[0]} to {missing[-1]}"
        raise dg.Failure(description=f"{held}. The days {days} are not there yet", allow_retries=False) from held


def _checked(
    lake: Lake, table: Table, refreshed: Refreshed, found: Sequence[Checked] = ()
) -> list[dg.AssetCheckResult]:
    """Return the results of the table's checks; Dagster needs them from each run, also from one with nothing new.

    Args:
        lake: of the table.
        table: the declaration.
        refreshed: the last commit of the run.
        found: the results of all commits of the run. A check of what a commit changed, and not of the rows that it
            left, is the first one that failed: a later commit cannot make up for it.
    """
    if not table.checks:
        return []
    of_a_commit = {check.name for check in table.checks if isinstance(check, ChangedAtMost)}
    failed = {one.name: one for one in reversed(found) if not one.passed and one.name in of_a_commit}
    last = refreshed.checks if refreshed.committed else lake.audit(table)
    return results_of(table, [failed.get(one.name, one) for one in last])


def _chunks(days: list[date], size: int | None) -> Iterator[list[date]]:
    size = size or len(days)
    for start in range(0, len(days), size):
        yield days[start : start + size]


def _definition_metadata(table: Table) -> Metadata:
    return {
        "dagster/table_name": table.name,
        "keys": ", ".join(table.keys),
        "fold": repr(table.fold),
        "source": _sources(table),
        **declared_columns(table),
    }


def _read_by(table: Table) -> list[str]:
    """Return the names of the table's sources, and of the tables that its checks read, which have to come first too."""
    names = [source.name for source in table.sources]
    for check in table.checks:
        names += [one.name for one in check.others if one.name not in (*names, table.name)]
    return names


def _sources(table: Table) -> str:
    return ", ".join(source.name for source in table.sources)


def commit_metadata_of(refreshed: Refreshed) -> dict[str, Any]:
    """Return the metadata of a commit."""
    return {
        "dagster/row_count": refreshed.rows,
        **_identity(refreshed),
        **_figures(refreshed),
        "rows_written": refreshed.rows_written,
        "rows_deleted": refreshed.rows_deleted,
    }


def whole_commit_of(refreshed: Refreshed) -> dict[str, Any]:
    """Return the figures of a commit that each of its days has as one value."""
    corrected = [str(one) for one, changed in sorted(refreshed.partitions.items()) if changed.rows_deleted]
    return {
        "rows": refreshed.rows,
        "rows_written": refreshed.rows_written,
        "rows_deleted": refreshed.rows_deleted,
        **_figures(refreshed),
        "corrected_days": corrected[:_MOST_DAYS],
    }


def day_metadata_of(refreshed: Refreshed, day: date, whole: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of one day of a commit. Its numbers are the day's, because the page plots each number by day.

    Args:
        refreshed: the commit.
        day: the day.
        whole: what `whole_commit_of` returns for the commit, computed once for all of its days.
    """
    counts = refreshed.partitions.get(day) or PartitionCounts()
    return {
        "dagster/partition_row_count": counts.rows,
        "rows_written": counts.rows_written,
        "rows_deleted": counts.rows_deleted,
        **_identity(refreshed),
        "commit": dict(whole),
    }


def _identity(refreshed: Refreshed) -> dict[str, Any]:
    """Return which commit it is. Ids are text, because a page that parses numbers as doubles would round them."""
    return {
        "committed": refreshed.committed,
        "snapshot_id": str(refreshed.snapshot_id),
        "position": {name: str(snapshot_id) for name, snapshot_id in refreshed.position.items()},
    }


def _figures(refreshed: Refreshed) -> dict[str, Any]:
    """Return what is known of a commit as a whole only."""
    return {
        **({"restored_id": str(refreshed.restored_id)} if refreshed.restored_id is not None else {}),
        "rows_read": refreshed.rows_read,
        "files_read": refreshed.files_read,
        "rows_recomputed": refreshed.rows_recomputed,
        "rows_carried": refreshed.rows_carried,
        "null_key_rows": refreshed.null_key_rows,
        "null_sequence_rows": refreshed.null_sequence_rows,
        "seconds": round(refreshed.seconds, 3),
    }


def _version(refreshed: Refreshed) -> dg.DataVersion | None:
    """Return the snapshot as the data version, so that a run without a commit makes nothing downstream stale."""
    return dg.DataVersion(str(refreshed.snapshot_id)) if refreshed.snapshot_id is not None else None
