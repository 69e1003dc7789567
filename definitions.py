"""Where assets, resources and jobs meet: what `foldhouse dev` and `foldhouse backfill` load."""

import warnings

import dagster as dg

for category in (dg.BetaWarning, dg.PreviewWarning):  # Dagster's own, at every use of a backfill policy
    warnings.filterwarnings("ignore", category=category)

import assets  # noqa: E402
from foldhouse.dagster import operation_jobs  # noqa: E402
from jobs.commits import commits  # noqa: E402
from jobs.days import days  # noqa: E402
from jobs.lag import TABLES, lag  # noqa: E402
from jobs.lag import checks as lag_checks  # noqa: E402
from jobs.maintenance import maintenance, maintenance_daily  # noqa: E402
from jobs.proofs import checks as proof_checks  # noqa: E402
from jobs.retail import retail, retail_daily, retail_landing  # noqa: E402
from jobs.shop import shop, shop_daily  # noqa: E402
from jobs.wallet import wallet, wallet_daily  # noqa: E402
from resources.lake import lake_resource  # noqa: E402
from resources.landing import landing_resource  # noqa: E402

defs = dg.Definitions(
    assets=dg.load_assets_from_package_module(assets),
    asset_checks=[*dg.load_asset_checks_from_package_module(assets), *lag_checks, *proof_checks],
    jobs=[maintenance, retail, shop, wallet, *operation_jobs(TABLES)],
    schedules=[maintenance_daily, retail_daily, shop_daily, wallet_daily],
    sensors=[commits, days, lag, retail_landing],
    resources={"lake": lake_resource(), "landing": landing_resource()},
    executor=dg.in_process_executor,  # one Spark session a run, also for runs of single assets from the page
)
