"""Retail: every day lands in the morning after, a corrected day as soon as its file changes."""

import dagster as dg

from assets.retail import FORMAT, TABLES, days, sales, sales_quarantine
from foldhouse.dagster import landing_sensor
from jobs.mornings import each_morning

retail = dg.define_asset_job(
    "retail",
    selection=dg.AssetSelection.groups("retail"),
    executor_def=dg.in_process_executor,
    description="Lands days of sales and folds all retail tables, with one Spark session a run.",
)


retail_daily = each_morning("retail", hour=6, days=days)
"""With or without a file; a file that comes later is for the sensor."""

retail_landing = landing_sensor(
    "retail_landing",
    job_name="retail",
    format=FORMAT,
    partitions_def=days,
    stream=sales,
    quarantine=sales_quarantine,
    tables=TABLES,
    reloads_page=True,
)
