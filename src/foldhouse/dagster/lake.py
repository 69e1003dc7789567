"""The resource `lake`: a lake in a folder, and the Spark session that folds into it."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import dagster as dg

from foldhouse.lake import Lake
from foldhouse.spark.session import connect_session
from foldhouse.storage.catalog import open_local_catalog


@dataclass(frozen=True)
class LakeFolder:
    """A lake in a folder, with one Spark session a process, started when it is first needed.

    Args:
        path: the folder; by default $FOLDHOUSE_LAKE, else ./lake.
        spark_master: Spark's master URL.
        spark_remote: a Spark Connect server that sees the same folder, as sc://host:port; by default
            $FOLDHOUSE_SPARK_REMOTE, else none: Spark runs in this process.
        run_id: the run that every commit names.
    """

    path: str = ""
    spark_master: str = "local[*]"
    spark_remote: str = ""
    run_id: str | None = None

    def open(self) -> Lake:
        """The lake, always the same one."""
        return self._lake

    def location(self) -> Path:
        """The lake's folder."""
        return Path(self.path or os.environ.get("FOLDHOUSE_LAKE") or "lake")

    @cached_property
    def _lake(self) -> Lake:
        path = self.location()
        remote = self.spark_remote or os.environ.get("FOLDHOUSE_SPARK_REMOTE")
        if remote:
            return Lake(open_local_catalog(path), lambda: connect_session(remote), run_id=self.run_id)
        lake = Lake.local(path, master=self.spark_master)
        lake.run_id = self.run_id or lake.run_id
        return lake

    def close(self) -> None:
        """Let go of the catalog, if it was opened; the Spark session stays for the next run of this process."""
        if "_lake" in self.__dict__:
            self._lake.close()


def lake_resource(folder: LakeFolder | None = None) -> dg.ResourceDefinition:
    """The resource `lake`. Its configuration is code: a run on the page cannot name another lake or Spark server.

    Args:
        folder: which lake; by default what the environment names.
    """

    @dg.resource(config_schema={}, description="A lake in a folder, and the Spark session that folds into it.")
    def lake(context: dg.InitResourceContext) -> Iterator[LakeFolder]:
        opened = replace(folder or LakeFolder(), run_id=context.run.run_id if context.run else None)
        try:
            yield opened
        finally:
            opened.close()

    return lake
