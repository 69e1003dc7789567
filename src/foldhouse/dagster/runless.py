"""Reports commits that no run of Dagster made, as materializations of their assets."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from foldhouse.dagster.foreground import home_of, instance_of
from foldhouse.dagster.report import materialization
from foldhouse.dagster.tables import commit_metadata_of, day_metadata_of, whole_commit_of
from foldhouse.errors import InvalidCall
from foldhouse.values.definition import Table
from foldhouse.values.results import Refreshed


@contextmanager
def reporter(folder: Path) -> Iterator[Callable[[Table, Refreshed], None]]:
    """Yield a function that reports a commit: the table, or each changed day of a table with days.

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
            if table.partition_by is None:
                instance.report_runless_asset_event(materialization(table.name, commit_metadata_of(done)))
                return
            whole = whole_commit_of(done)
            for day in done.partitions:
                metadata = day_metadata_of(done, day, whole)
                instance.report_runless_asset_event(materialization(table.name, metadata, day.isoformat()))

        yield report
