"""Shop: every morning what arrived yesterday, whatever day it is about."""

import dagster as dg

from assets.shop import days
from jobs.mornings import each_morning

shop = dg.define_asset_job(
    "shop",
    selection=dg.AssetSelection.groups("shop"),
    executor_def=dg.in_process_executor,
    description="Lands days of events and payments, and folds orders, revenue and what was paid.",
)

shop_daily = each_morning("shop", hour=7, days=days)
