"""Starts Spark while files land, in a run that folds them in the same process.

A landing keeps one core busy with Python, and Spark needs seconds to start. It is started only if a table of the run
has `rows` that no earlier process has compiled, because compiling them needs a session, or if the run has many days,
whose rows Spark may have to evaluate. Steps that have processes of their own start it there.
"""

import dagster as dg

from foldhouse.dagster.report import key_of
from foldhouse.lake import Lake
from foldhouse.values.definition import Table

_FEW_DAYS = 7
"""The rows of so many days are mostly few enough for this process."""
_IN_ONE_PROCESS = (dg.in_process_executor.name, "execute_in_process_executor")

_with_rows: dict[dg.AssetKey, Table] = {}


def known(table: Table) -> None:
    """Keep whether a table, which is an asset, has `rows`."""
    if table.rows is not None:
        _with_rows[key_of(table.name)] = table


def start_spark_early(context: dg.AssetExecutionContext, lake: Lake, days: int) -> None:
    """Start Spark beside a step that does not need it, if a later step of this process does.

    Args:
        context: of the step.
        lake: the lake of the run.
        days: how many the run lands.
    """
    job = context.job_def
    selected = job.asset_layer.selected_asset_keys
    tables = [table for key, table in _with_rows.items() if key in selected]
    if tables and job.executor_def.name in _IN_ONE_PROCESS:
        lake.start_spark_early(tables if days <= _FEW_DAYS else ())
