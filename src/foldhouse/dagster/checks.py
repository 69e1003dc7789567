"""The checks of a table as asset checks of its asset."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import dagster as dg

from foldhouse.dagster.own_steps import report_skipped
from foldhouse.dagster.report import key_of
from foldhouse.dagster.resources import LakeOpener
from foldhouse.errors import ChecksFailed
from foldhouse.storage.log import failed
from foldhouse.values.definition import Table
from foldhouse.values.results import Checked


def specs_of(table: Table) -> list[dg.AssetCheckSpec]:
    """Return one asset check for each check of a table."""
    return [
        dg.AssetCheckSpec(
            name=check.name,
            asset=key_of(table.name),
            blocking=check.blocks,
            description=str(check)
            + ("; rows that fail are not published" if check.blocks else "; rows that fail are published all the same"),
        )
        for check in table.checks
    ]


def results_of(table: Table, results: Sequence[Checked]) -> list[dg.AssetCheckResult]:
    """Return the results of checks as Dagster takes them."""
    return [
        dg.AssetCheckResult(
            asset_key=key_of(table.name),
            check_name=one.name,
            passed=one.passed,
            severity=_severity(one),
            description=one.said,
            metadata=_metadata(one),
        )
        for one in results
    ]


def results_of_nothing(table: Table) -> list[dg.AssetCheckResult]:
    """Return results for a table that was never folded; Dagster needs a result of each check from each step."""
    said = "the table was never folded, so it has no rows to check"
    return [
        dg.AssetCheckResult(asset_key=key_of(table.name), check_name=one.name, passed=True, description=said)
        for one in table.checks
    ]


@contextmanager
def reporting_failed_checks(context: dg.AssetExecutionContext, table: Table, opener: LakeOpener) -> Iterator[None]:
    """Report all checks of a table if a blocking one fails inside, and fail the step with their message."""
    try:
        yield
    except ChecksFailed as failure:
        failed("step", failure, table=table.name, run_id=context.run.run_id)
        for one in failure.results:
            context.log_event(
                dg.AssetCheckEvaluation(
                    asset_key=key_of(table.name),
                    check_name=one.name,
                    passed=one.passed,
                    severity=_severity(one),
                    description=one.said,
                    metadata=_metadata(one),
                )
            )
        report_skipped(context, table, opener)
        raise dg.Failure(description=str(failure), allow_retries=False) from failure


def _severity(one: Checked) -> dg.AssetCheckSeverity:
    return dg.AssetCheckSeverity.ERROR if one.blocks else dg.AssetCheckSeverity.WARN


def _metadata(one: Checked) -> dict[str, Any]:
    metadata: dict[str, Any] = {"failing_rows": one.failing}
    if one.against:  # one text, because the page hides an object behind a click
        at = {name: "nothing" if snapshot_id is None else snapshot_id for name, snapshot_id in one.against.items()}
        metadata["against"] = ", ".join(f"{name}@{snapshot_id}" for name, snapshot_id in at.items())
    if one.sample:
        metadata["sample"] = dg.MetadataValue.table(
            [dg.TableRecord({name: _cell(value) for name, value in row.items()}) for row in one.sample]
        )
    return metadata


def _cell(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool | None) else str(value)
