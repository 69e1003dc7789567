"""The definitions of a whole project, from the package that declares its tables."""

from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import dagster as dg

from foldhouse.calls.declared import check_names, tables_in
from foldhouse.dagster.commits import commit_sensor
from foldhouse.dagster.components_folder import declared_in_components
from foldhouse.dagster.days_sensor import days_sensor
from foldhouse.dagster.found_days import are_found
from foldhouse.dagster.lag import lag_check, lag_sensor
from foldhouse.dagster.lake import LakeFolder, lake_resource
from foldhouse.dagster.maintenance import maintenance_job
from foldhouse.dagster.operations import operation_jobs
from foldhouse.dagster.proofs import gapless_check
from foldhouse.dagster.queue import LIVE, PRIORITY
from foldhouse.dagster.quiet import without_beta_warnings
from foldhouse.dagster.report import key_of
from foldhouse.dagster.subjects import days_by_table, job_selections, specs_in
from foldhouse.dagster.tables import fold_asset
from foldhouse.values.definition import Table
from foldhouse.values.job_names import REFRESH

MAINTAINED = "0 4 * * *"


def definitions_of(
    package: ModuleType,
    *,
    lake: LakeFolder | None = None,
    assets: Sequence[Any] = (),
    resources: dict[str, Any] | None = None,
    schedule: str | None = None,
    look_every_seconds: int = 30,
    components: dg.Definitions | None = None,
) -> dg.Definitions:
    """Make the Dagster definitions of a project.

        defs = definitions_of(shop)                                   -> what `definitions.py` of a project needs
        defs = definitions_of(shop, components=components_of(shop))   -> with the components in its folder `defs`

    It has every asset and asset check of the package's modules; an asset for every other declared table, which
    refreshes it as a whole; the lag of each table, as a check and a sensor, and the check `gapless`; a job over all
    assets, named as the package is, or a job for each set of days if there are several (`shop_orders`,
    `shop_payments`, by their first streams); a sensor `commits` that refreshes what is behind, whoever committed; and
    the jobs `maintenance` and those of `operation_jobs`; and a sensor `days` if its days are those of `found_days` or
    `stream_days`. The sensor `commits` and all schedules are off until
    they are switched on.

    Args:
        package: the package, or the module, with the declarations. A table needs an asset of its own only for other
            arguments, such as `fold_asset(daily, partitions_def=days)`.
        lake: the lake; by default the folder that `$FOLDHOUSE_LAKE` names, else `./lake`.
        assets: further assets and asset checks.
        resources: further resources.
        schedule: a cron expression in UTC at which the tables without partitions are refreshed; off until it is
            switched on.
        look_every_seconds: how often the sensors `commits` and `lag` look, at least.
        components: those of the package. They become part of the definitions: their tables are followed by the sensors
            `commits` and `lag`, have the check `gapless`, and can be chosen in the jobs of `operation_jobs`. The job
            over all assets leaves them out: a `LandingComponent` has a job of its own, and days of its own.

    Raises:
        DefinitionError: two declarations have one name.
    """
    name = package.__name__.rpartition(".")[2]
    tables = tables_in(package)
    further = list((components and components.assets) or ())
    in_components = declared_in_components(package) if further else []
    check_names(package, in_components)
    followed = [*tables, *(one for one in in_components if isinstance(one, Table))]
    with without_beta_warnings():
        in_modules, checks = _assets_and_checks(package)
        loaded = [*in_modules, *assets]
        checks += [*(lag_check(table) for table in tables), *(gapless_check(table) for table in followed)]
    known = set(specs_in(loaded))
    loaded += [fold_asset(table) for table in tables if key_of(table.name) not in known]
    maintenance = maintenance_job()
    schedules = [dg.ScheduleDefinition("maintenance_daily", job=maintenance, cron_schedule=MAINTAINED)]
    jobs: list[Any] = [*_asset_jobs(name, loaded), maintenance, *operation_jobs(followed)]
    if schedule is not None:
        unpartitioned = dg.AssetSelection.assets(
            *(key for key, spec in specs_in([*loaded, *further]).items() if spec.partitions_def is None)
        )
        refresh = dg.define_asset_job(REFRESH, selection=unpartitioned, executor_def=dg.in_process_executor)
        jobs.append(refresh)
        schedules.append(
            dg.ScheduleDefinition("refresh_tables", job=refresh, cron_schedule=schedule, tags={PRIORITY: LIVE})
        )
    days = days_by_table([*loaded, *further])
    made = dg.Definitions(
        assets=loaded,
        asset_checks=checks,
        jobs=jobs,
        schedules=schedules,
        sensors=[
            lag_sensor("lag", followed, every_seconds=look_every_seconds),
            commit_sensor("commits", followed, partitions_def=days, every_seconds=look_every_seconds),
            *([days_sensor()] if any(map(are_found, days_by_table(loaded).values())) else []),
        ],
        resources={"lake": lake_resource(lake), **(resources or {})},
        # One Spark session a run, also for runs of single assets from the page.
        executor=dg.in_process_executor,
    )
    return made if components is None else dg.Definitions.merge(made, components)


def _assets_and_checks(package: ModuleType) -> tuple[list[Any], list[Any]]:
    """Return the assets and asset checks of a package's modules, or of a module that is none."""
    if not hasattr(package, "__path__"):
        return [*dg.load_assets_from_modules([package])], [*dg.load_asset_checks_from_modules([package])]
    checks = dg.load_asset_checks_from_package_module(package)
    return [*dg.load_assets_from_package_module(package)], [*checks]


def _asset_jobs(name: str, assets: Sequence[Any]) -> Iterator[Any]:
    """One job; or one for each set of days, because a run of Dagster cannot take assets of different days."""
    selections = job_selections(name, assets)
    for job, keys in selections.items():
        declared = f"everything that {name} declares" if len(selections) == 1 else "the assets that have the same days"
        yield dg.define_asset_job(
            job,
            # Not all assets: other definitions may be merged with these, and have other days.
            selection=dg.AssetSelection.assets(*keys),
            executor_def=dg.in_process_executor,
            description=f"Lands and folds {declared}.",
        )
