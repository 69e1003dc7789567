"""Jobs for what is otherwise done in a terminal: roll a table back, fold it again, publish a rebuild."""

from collections.abc import Sequence

import dagster as dg
from pydantic import Field

from foldhouse.dagster.report import key_of
from foldhouse.dagster.resources import LakeOpener
from foldhouse.errors import UnknownTable
from foldhouse.lake import Lake
from foldhouse.values.definition import Table
from foldhouse.values.metadata_names import REBUILD_BRANCH


class RollbackConfig(dg.Config):
    """Which table goes back, and to where."""

    table: str = Field(description="The table or stream, such as shop.orders.")
    to: str = Field(description="A snapshot id, a time such as 2024-03-18T09:00:00Z, a tag or a branch.")
    dry_run: bool = Field(default=True, description="Only say what would be undone.")


class RebuildConfig(dg.Config):
    """Which table is folded again."""

    table: str = Field(description="The table, such as shop.orders.")
    publish: bool = Field(default=True, description="Make it the head at once; else it stays in its branch.")
    dry_run: bool = Field(default=True, description="Only say what would be read.")


class PublishConfig(dg.Config):
    """Which rebuild becomes the head."""

    table: str = Field(description="The table that was rebuilt without publishing.")
    dry_run: bool = Field(default=True, description="Only say what would change.")


def operation_jobs(tables: Sequence[Table], *, lake_resource_key: str = "lake") -> list[dg.JobDefinition]:
    """Make the jobs `rollback`, `rebuild` and `publish`.

    Each says its plan first, in the run's log and in the metadata of its step, and does nothing else as long as
    `dry_run` is set, which is the default. What is done is observed on the asset of the table.

    Args:
        tables: the declarations; a rebuild needs one.
        lake_resource_key: the resource that opens the lake, a `LakeOpener`.
    """
    needed = {lake_resource_key}

    def opened(context: dg.OpExecutionContext) -> Lake:
        opener: LakeOpener = getattr(context.resources, lake_resource_key)
        return opener.open()

    @dg.op(name="roll_back", required_resource_keys=needed)
    def roll_back(context: dg.OpExecutionContext, config: RollbackConfig) -> None:
        lake = opened(context)
        planned = lake.plan_rollback(config.table, to=config.to)
        _say(context, {name: str(value) for name, value in vars(planned).items()}, dry_run=config.dry_run)
        if not config.dry_run:
            _observe(context, config.table, lake.rollback(config.table, to=config.to), "rollback")

    @dg.op(name="fold_again", required_resource_keys=needed)
    def fold_again(context: dg.OpExecutionContext, config: RebuildConfig) -> None:
        lake, table = opened(context), _declared(config.table, tables)
        sources = {f"rows of {source.name}": str(lake.count(source)) for source in table.sources}
        downstream = ", ".join(lake.consumers(table))
        _say(context, {"table": table.name, **sources, "consumers": downstream}, dry_run=config.dry_run)
        if not config.dry_run:
            rebuilt = lake.rebuild(table, publish=config.publish)
            _observe(context, table.name, rebuilt.snapshot_id, "rebuild")

    @dg.op(name="publish_rebuild", required_resource_keys=needed)
    def publish_rebuild(context: dg.OpExecutionContext, config: PublishConfig) -> None:
        lake = opened(context)
        rows = len(lake.to_arrow(config.table, as_of=REBUILD_BRANCH))
        plan = {"table": config.table, "rows now": str(lake.count(config.table)), "rows afterwards": str(rows)}
        _say(context, {**plan, "consumers": ", ".join(lake.consumers(config.table))}, dry_run=config.dry_run)
        if not config.dry_run:
            _observe(context, config.table, lake.publish(config.table), "publish")

    return [
        _job("rollback", roll_back, "Makes an older snapshot of a table its head again."),
        _job("rebuild", fold_again, "Folds a table again from the beginning, as it is declared now."),
        _job("publish", publish_rebuild, "Makes a rebuild that was not published the head of its table."),
    ]


def _job(name: str, op: dg.OpDefinition, description: str) -> dg.JobDefinition:
    @dg.job(name=name, description=f"{description} With dry_run, the default, it only says its plan.")
    def of_one_op() -> None:
        op()

    return of_one_op


def _say(context: dg.OpExecutionContext, plan: dict[str, str], *, dry_run: bool) -> None:
    context.log.info(f"{'would do' if dry_run else 'does'}: {', '.join(f'{n}={v}' for n, v in plan.items() if v)}")
    context.add_output_metadata({**plan, "dry_run": dry_run})


def _observe(context: dg.OpExecutionContext, table: str, snapshot_id: int | None, what: str) -> None:
    metadata = {"operation": what, "snapshot_id": str(snapshot_id)}
    context.log_event(dg.AssetObservation(key_of(table), metadata=metadata))


def _declared(name: str, tables: Sequence[Table]) -> Table:
    found = next((table for table in tables if table.name == name), None)
    if found is None:
        raise UnknownTable(f"no table {name} is declared; choose from {', '.join(sorted(one.name for one in tables))}")
    return found
