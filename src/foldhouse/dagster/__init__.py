"""Dagster: a table becomes an asset, and so does a stream; a landing folder its asset and a sensor.

No other package of foldhouse imports Dagster.
"""

from foldhouse.garbage import importing

with importing():
    from foldhouse.calls.declared import tables_in
    from foldhouse.dagster.automation import when_sources_change
    from foldhouse.dagster.commits import commit_sensor
    from foldhouse.dagster.components_folder import components_of
    from foldhouse.dagster.days_sensor import days_sensor
    from foldhouse.dagster.foreground import ForegroundRun, run_in_foreground, terminal
    from foldhouse.dagster.found_days import found_days, stream_days
    from foldhouse.dagster.lag import lag_check, lag_sensor
    from foldhouse.dagster.lake import LakeFolder, lake_resource
    from foldhouse.dagster.landing import landing_asset
    from foldhouse.dagster.maintenance import maintenance_job
    from foldhouse.dagster.operations import operation_jobs
    from foldhouse.dagster.project import definitions_of
    from foldhouse.dagster.proofs import gapless_check, proof_check, reconcile_check
    from foldhouse.dagster.sensor import landing_sensor
    from foldhouse.dagster.streams import stream_asset
    from foldhouse.dagster.subjects import days_by_table
    from foldhouse.dagster.tables import fold_asset

__all__ = [
    "ForegroundRun",
    "LakeFolder",
    "commit_sensor",
    "components_of",
    "days_by_table",
    "days_sensor",
    "definitions_of",
    "fold_asset",
    "found_days",
    "gapless_check",
    "lag_check",
    "lag_sensor",
    "lake_resource",
    "landing_asset",
    "landing_sensor",
    "maintenance_job",
    "operation_jobs",
    "proof_check",
    "reconcile_check",
    "run_in_foreground",
    "stream_asset",
    "stream_days",
    "tables_in",
    "terminal",
    "when_sources_change",
]
