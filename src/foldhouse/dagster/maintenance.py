"""A job that keeps a lake small: it compacts and expires every table and stream that foldhouse made."""

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import dagster as dg

from foldhouse.dagster.report import key_of
from foldhouse.dagster.resources import LakeOpener
from foldhouse.errors import FoldhouseError
from foldhouse.lake import Lake
from foldhouse.storage import log
from foldhouse.values.age import OlderThan
from foldhouse.values.job_names import MAINTENANCE


def maintenance_job(
    name: str = MAINTENANCE,
    *,
    older_than: OlderThan = None,
    keep_last: int | None = None,
    lake_resource_key: str = "lake",
) -> dg.JobDefinition:
    """Make a job that compacts, then expires, every table and stream of the lake.

    No row changes, and no asset becomes stale. What it came to is observed on each table's asset. A table that fails
    does not keep the others from their turn; the run fails at the end and says which. While a table cannot be read,
    no history is expired, because it may need any snapshot; files are compacted all the same.

    Args:
        name: of the job.
        older_than: see `Lake.expire`; by default the table's properties say what goes.
        keep_last: see `Lake.expire`.
        lake_resource_key: the resource that opens the lake, a `LakeOpener`.
    """

    @dg.op(name=f"{name}_of_every_table", out={}, required_resource_keys={lake_resource_key})
    def tidy(context: dg.OpExecutionContext) -> Iterator[dg.AssetObservation]:
        opener: LakeOpener = getattr(context.resources, lake_resource_key)
        lake = opener.open()
        failed = []
        for table in _ours(lake):
            metadata: dict[str, Any] = {}
            try:
                metadata |= _metadata(asdict(lake.compact(table)))
                metadata |= _metadata(asdict(lake.expire(table, older_than=older_than, keep_last=keep_last)))
            except (FoldhouseError, OSError) as failure:
                log.failed("step", failure, table=table, run_id=context.run.run_id)
                context.log.error(f"{table}: {failure}")
                failed.append(table)
            if metadata:  # also of a table that was compacted, and then not expired
                yield dg.AssetObservation(key_of(table), metadata=metadata)
        if failed:
            raise dg.Failure(f"{', '.join(failed)} could not be tidied; the log says why. The others are done")

    @dg.job(name=name, executor_def=dg.in_process_executor, description="Compacts and expires every table of the lake.")
    def tidying() -> None:
        tidy()

    return tidying


def _ours(lake: Lake) -> list[str]:
    return [table for table in lake.tables() if _is_ours(lake, table)]


def _is_ours(lake: Lake, table: str) -> bool:
    try:
        return lake.kind(table) != "foreign"
    except FoldhouseError:  # its turn says so
        return True


_SHOWN: dict[str, Callable[[Any], Any]] = {
    "files_removed": int,
    "files_added": int,
    "bytes_removed": int,
    "bytes_added": int,
    "snapshots_removed": int,
    "snapshots_left": int,
    "files_deleted": int,
    "bytes_freed": int,
    "held": lambda held: {tag: str(snapshot_id) for tag, snapshot_id in held.items()},
}


def _metadata(came_to: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata on the page. Ids are text, because a page that parses numbers as doubles would round them."""
    return {name: shown(came_to[name]) for name, shown in _SHOWN.items() if name in came_to}
