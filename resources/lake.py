"""The lake of this deployment, and the Spark session that folds into it."""

import os
from pathlib import Path

import dagster as dg
from pydantic import Field, PrivateAttr

from foldhouse.lake import Lake
from foldhouse.spark.session import connect_session
from foldhouse.storage.catalog import open_local_catalog


class LakeResource(dg.ConfigurableResource):
    """A lake in a folder, with one Spark session a process, started when it is first needed."""

    path: str = Field(default="", description="The folder; by default $FOLDHOUSE_LAKE, else ./lake.")
    spark_master: str = Field(default="local[*]", description="Spark's master URL.")
    spark_remote: str = Field(
        default="",
        description="A Spark Connect server that sees the same folder, as sc://host:port; "
        "by default $FOLDHOUSE_SPARK_REMOTE, else none: Spark runs in this process.",
    )

    _lake: Lake | None = PrivateAttr(None)

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        """Name the run in every commit it makes."""
        self._lake = self._opened(context.run.run_id if context.run else None)

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """Let go of the catalog; the Spark session stays for the next run of this process."""
        if self._lake:
            self._lake.close()
        self._lake = None

    def open(self) -> Lake:
        """The lake, the same one for all of a run."""
        self._lake = self._lake or self._opened(None)
        return self._lake

    def _opened(self, run_id: str | None) -> Lake:
        path = Path(self.path or os.environ.get("FOLDHOUSE_LAKE") or "lake")
        remote = self.spark_remote or os.environ.get("FOLDHOUSE_SPARK_REMOTE")
        if remote:
            return Lake(open_local_catalog(path), lambda: connect_session(remote), run_id=run_id)
        lake = Lake.local(path, master=self.spark_master)
        lake.run_id = run_id or lake.run_id
        return lake
