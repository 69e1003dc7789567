"""Jobs for what is otherwise done in a terminal: roll a table back, fold it again, publish or drop a branch, tag it."""

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import Any

import dagster as dg
from pydantic import Field

from foldhouse.dagster.again import in_words
from foldhouse.dagster.report import key_of
from foldhouse.dagster.resources import LakeOpener
from foldhouse.errors import FoldhouseError, InvalidCall, UnknownSnapshot, UnknownTable
from foldhouse.lake import Lake
from foldhouse.storage.tags import check_name
from foldhouse.values.definition import Table
from foldhouse.values.job_names import DROP_BRANCH, OP_OF, PUBLISH, REBUILD, RESTATE, ROLLBACK, TAG
from foldhouse.values.metadata_names import REBUILD_BRANCH

_SHOWN = 31


class RollbackConfig(dg.Config):
    """Which table goes back, and to where."""

    table: str = Field(description="The table or stream, such as shop.orders.")
    to: str = Field(description="A snapshot id, a time such as 2024-03-18T09:00:00Z, a tag or a branch.")
    dry_run: bool = Field(default=True, description="Only say what would be undone.")


class RestateConfig(dg.Config):
    """Which days of a table are folded again."""

    table: str = Field(description="The table, such as shop.revenue_by_day.")
    first: str = Field(description="The first day, such as 2024-03-04.")
    last: str = Field(description="The last day, itself included.")
    dry_run: bool = Field(default=True, description="Only say what would be folded.")


class RebuildConfig(dg.Config):
    """Which table is folded again."""

    table: str = Field(description="The table, such as shop.orders.")
    publish: bool = Field(default=True, description="Make it the head at once; else it stays in its branch.")
    dry_run: bool = Field(default=True, description="Only say what would be read.")


class PublishConfig(dg.Config):
    """Which rebuild becomes the head."""

    table: str = Field(description="The table that was rebuilt without publishing.")
    dry_run: bool = Field(default=True, description="Only say what would change.")


class DropConfig(dg.Config):
    """Which branch goes."""

    table: str = Field(description="The table, such as shop.orders.")
    branch: str = Field(default=REBUILD_BRANCH, description="The branch, such as that of a rebuild or an audit.")
    dry_run: bool = Field(default=True, description="Only say what the branch has.")


class TagConfig(dg.Config):
    """Which snapshot gets a name."""

    table: str = Field(description="The table or stream, such as shop.orders.")
    tag: str = Field(description="The name: a letter, then letters, digits, underscores, dots and hyphens.")
    at: str = Field(default="", description="A snapshot id, a time, a tag or a branch; empty for the head.")
    move: bool = Field(default=False, description="Move a tag of that name that is at another snapshot.")
    dry_run: bool = Field(default=True, description="Only say which snapshot it would name.")


def operation_jobs(tables: Sequence[Table], *, lake_resource_key: str = "lake") -> list[dg.JobDefinition]:
    """Make the jobs `rollback`, `restate`, `rebuild`, `publish`, `drop_branch` and `tag`.

        rollback      an older snapshot is the head again
        restate       days that the table covers are folded again; then late events are folded and missing days added
        rebuild       the whole table is folded again, at once or into a branch
        publish       the branch of a rebuild is the head
        drop_branch   the branch of a rebuild or of an audit is gone
        tag           a snapshot has a name, and expiry keeps it

    Each says its plan first, in the run's log and in the metadata of its step, and does nothing else as long as
    `dry_run` is set, which is the default. What is done is observed on the asset of the table.

    Args:
        tables: the declarations; `restate` and `rebuild` need one.
        lake_resource_key: the resource that opens the lake, a `LakeOpener`.
    """
    needed = {lake_resource_key}

    def opened(context: dg.OpExecutionContext, config: dg.Config) -> Lake:
        _check_filled(config)
        opener: LakeOpener = getattr(context.resources, lake_resource_key)
        return opener.open()

    @dg.op(name=OP_OF[ROLLBACK], required_resource_keys=needed)
    @in_words
    def roll_back(context: dg.OpExecutionContext, config: RollbackConfig) -> None:
        lake = opened(context, config)
        _say(context, _planned_rollback(lake, config), dry_run=config.dry_run)
        if config.dry_run:
            return
        head, snapshot_id = lake.head(config.table), lake.rollback(config.table, to=config.to)
        if head is not None and head.id == snapshot_id:
            context.log.info(f"{config.table} stays at snapshot {snapshot_id}: it is the head")
        else:
            _observe(context, config.table, snapshot_id, "rollback")

    @dg.op(name=OP_OF[RESTATE], required_resource_keys=needed)
    @in_words
    def restate_days(context: dg.OpExecutionContext, config: RestateConfig) -> None:
        lake, table = opened(context, config), _declared(config.table, tables)
        days = _days(config.first, config.last)
        covered = lake.covered(table, days)
        plan: dict[str, str] = {"table": table.name, "days_again": _texts(covered)}
        planned = lake.plan_restate(table, covered) if covered else lake.plan(table, days)
        plan |= {name: _text(value) for name, value in vars(planned).items() if name != "days"}
        plan["days_added"] = _texts(sorted(set(days) - set(covered)))
        _say(context, plan, dry_run=config.dry_run)
        if not config.dry_run:
            again = lake.restate(table, covered) if covered else None
            done = lake.backfill(table, days)
            changed = {*(again.partitions if again else ()), *done.partitions}
            _observe(context, table.name, done.snapshot_id, "restate", days_changed=_texts(sorted(changed)))

    @dg.op(name=OP_OF[REBUILD], required_resource_keys=needed)
    @in_words
    def fold_again(context: dg.OpExecutionContext, config: RebuildConfig) -> None:
        lake, table = opened(context, config), _declared(config.table, tables)
        sources = {f"rows of {source.name}": str(lake.count(source)) for source in table.sources}
        downstream = ", ".join(lake.consumers(table))
        _say(context, {"table": table.name, **sources, "consumers": downstream}, dry_run=config.dry_run)
        if not config.dry_run:
            rebuilt = lake.rebuild(table, publish=config.publish)
            _observe(context, table.name, rebuilt.snapshot_id, "rebuild")

    @dg.op(name=OP_OF[PUBLISH], required_resource_keys=needed)
    @in_words
    def publish_rebuild(context: dg.OpExecutionContext, config: PublishConfig) -> None:
        lake = opened(context, config)
        lake.drop_branch(config.table, REBUILD_BRANCH, dry_run=True)  # says so if there is none
        rows = lake.count(config.table, as_of=REBUILD_BRANCH)
        plan = {"table": config.table, "rows now": str(lake.count(config.table)), "rows afterwards": str(rows)}
        _say(context, {**plan, "consumers": ", ".join(lake.consumers(config.table))}, dry_run=config.dry_run)
        if not config.dry_run:
            _observe(context, config.table, lake.publish(config.table), "publish")

    @dg.op(name=OP_OF[DROP_BRANCH], required_resource_keys=needed)
    @in_words
    def drop(context: dg.OpExecutionContext, config: DropConfig) -> None:
        lake = opened(context, config)
        lake.drop_branch(config.table, config.branch, dry_run=True)
        rows = lake.count(config.table, as_of=config.branch)
        plan = {"table": config.table, "branch": config.branch, "rows of the branch": str(rows)}
        plan |= {"rows of the table": str(lake.count(config.table))}
        _say(context, plan, dry_run=config.dry_run)
        if not config.dry_run:
            _observe(context, config.table, lake.drop_branch(config.table, config.branch), "drop", branch=config.branch)

    @dg.op(name=OP_OF[TAG], required_resource_keys=needed)
    @in_words
    def set_tag(context: dg.OpExecutionContext, config: TagConfig) -> None:
        lake = opened(context, config)
        check_name(config.tag)
        held = next((str(one.snapshot_id) for one in lake.tags(config.table) if one.name == config.tag), "none")
        rows = lake.count(config.table, as_of=config.at or None)
        plan = {"table": config.table, "tag": config.tag, "at": config.at or "the head", "rows": str(rows)}
        _say(context, {**plan, "snapshot that has the tag": held}, dry_run=config.dry_run)
        if not config.dry_run:
            tag = lake.tag(config.table, config.tag, at=config.at or None, move=config.move)
            _observe(context, config.table, tag.snapshot_id, "tag", tag=tag.name)

    return [
        _job(ROLLBACK, roll_back, RollbackConfig, "Makes an older snapshot of a table its head again."),
        _job(
            RESTATE,
            restate_days,
            RestateConfig,
            "Folds days of a table again, with what came late, and adds those it does not have.",
        ),
        _job(REBUILD, fold_again, RebuildConfig, "Folds a table again from the beginning, as it is declared now."),
        _job(PUBLISH, publish_rebuild, PublishConfig, "Makes the branch of a rebuild the head of its table."),
        _job(
            DROP_BRANCH,
            drop,
            DropConfig,
            "Drops the branch of a rebuild or of an audit instead of publishing it.",
        ),
        _job(TAG, set_tag, TagConfig, "Names a snapshot, so that it is kept and can be read by that name."),
    ]


def _planned_rollback(lake: Lake, config: RollbackConfig) -> dict[str, str]:
    try:
        planned = lake.plan_rollback(config.table, to=config.to)
    except (UnknownSnapshot, UnknownTable):
        raise
    except FoldhouseError as failure:  # rolling back is what repairs a table that cannot be compared
        return {"table": config.table, "to": config.to, "changes": f"cannot be computed: {failure}"}
    return {name: _text(value) for name, value in vars(planned).items()}


def _job(name: str, op: dg.OpDefinition, config: type[dg.Config], description: str) -> dg.JobDefinition:
    # The launchpad shows these fields, of which it would show those with a default alone.
    shown = {field: "" if one.is_required() else one.default for field, one in config.model_fields.items()}
    said = f"{description} With dry_run, the default, it only says its plan."

    @dg.job(name=name, description=said, config={"ops": {op.name: {"config": shown}}})
    def of_one_op() -> None:
        op()

    return of_one_op


def _check_filled(config: dg.Config) -> None:
    """Refuse fields that are as empty as the launchpad shows them first.

    Raises:
        InvalidCall: a field without a default is empty.
    """
    fields = {name: one for name, one in type(config).model_fields.items() if one.is_required()}
    empty = [f"{name} ({one.description})" for name, one in fields.items() if not getattr(config, name)]
    if empty:
        raise InvalidCall(f"fields of the launchpad are empty; fill in {', '.join(empty)}")


def _say(context: dg.OpExecutionContext, plan: dict[str, str], *, dry_run: bool) -> None:
    known = {name: value for name, value in plan.items() if value}
    context.log.info(f"{'would do' if dry_run else 'does'}: {', '.join(f'{n}={v}' for n, v in known.items())}")
    context.add_output_metadata({**known, "dry_run": dry_run})


def _text(value: Any) -> str:
    """Return a value of a plan as a person writes it; an empty text for none."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {of:,}" for name, of in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return _texts(value)
    return "" if value is None else "yes" if value is True else "no" if value is False else str(value)


def _observe(context: dg.OpExecutionContext, table: str, snapshot_id: int | None, what: str, **more: str) -> None:
    metadata = {"operation": what, "snapshot_id": str(snapshot_id), **more}
    context.log_event(dg.AssetObservation(key_of(table), metadata=metadata))


def _days(first: str, last: str) -> list[date]:
    """Return the days from one to another, both included.

    Raises:
        InvalidCall: one is no day, or they are not in order.
    """
    try:
        one, other = date.fromisoformat(first), date.fromisoformat(last)
    except ValueError:
        raise InvalidCall(f"the days are {first!r} and {last!r}; give days such as 2024-03-04") from None
    if other < one:
        raise InvalidCall(f"the days are {first} to {last}, which ends before it begins")
    return [one + timedelta(days=number) for number in range((other - one).days + 1)]


def _texts(values: Sequence[Any]) -> str:
    more = f", and {len(values) - _SHOWN:,} more" if len(values) > _SHOWN else ""
    return ", ".join(map(str, values[:_SHOWN])) + more


def _declared(name: str, tables: Sequence[Table]) -> Table:
    found = next((table for table in tables if table.name == name), None)
    if found is None:
        raise UnknownTable(f"no table {name} is declared; choose from {', '.join(sorted(one.name for one in tables))}")
    return found
