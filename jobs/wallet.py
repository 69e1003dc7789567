"""Wallet: every morning what moved yesterday, and whether the balances agree with it."""

import dagster as dg

from assets.wallet import days
from jobs.mornings import each_morning

wallet = dg.define_asset_job(
    "wallet",
    selection=dg.AssetSelection.groups("wallet"),
    executor_def=dg.in_process_executor,
    description="Lands days of movements, folds the balances, and checks that they agree with the movements.",
)

wallet_daily = each_morning("wallet", hour=8, days=days)
