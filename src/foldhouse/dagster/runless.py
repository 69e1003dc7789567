"""Reports commits that no run of Dagster made, as materializations of their assets."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg

from foldhouse.dagster.foreground import home_of, instance_of
from foldhouse.dagster.records import explained
from foldhouse.dagster.report import materialization
from foldhouse.dagster.tables import commit_metadata_of, day_metadata_of, whole_commit_of
from foldhouse.errors import InvalidCall, StorageError
from foldhouse.values.definition import Table
from foldhouse.values.results import Refreshed


@contextmanager
def reporter(folder: Path) -> Iterator[Callable[[Table, Refreshed], None]]:
    """Yield a function that reports a commit: the table, or each changed day of a table with days.

    It raises `StorageError` if Dagster's records cannot be written; the commit is made all the same.

    Args:
        folder: the folder of the code location, whose `dagster.yaml` says where records are kept.

    Raises:
        FoldhouseError: there is no Dagster home.
    """
    home = home_of(folder)
    if home is None:
        raise InvalidCall(f"there is no dagster.yaml in {folder} and DAGSTER_HOME is not set; nothing can be reported")
    with instance_of(home) as instance:

        def report(table: Table, done: Refreshed) -> None:
            try:
                for one in _materializations(table, done):
                    instance.report_runless_asset_event(one)
            except Exception as failure:  # of any storage of Dagster
                said = explained(home, failure) or f"{type(failure).__name__}: {failure}".partition("\n")[0]
                raise StorageError(
                    f"the commit {done.snapshot_id} of {table.name} is made, but not reported to Dagster: {said}"
                ) from failure

        yield report


def _materializations(table: Table, done: Refreshed) -> Iterator[dg.AssetMaterialization]:
    if table.partition_by is None:
        yield materialization(table.name, commit_metadata_of(done))
        return
    whole = whole_commit_of(done)
    for day in done.partitions:
        yield materialization(table.name, day_metadata_of(done, day, whole), day.isoformat())
