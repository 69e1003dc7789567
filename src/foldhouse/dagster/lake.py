"""The resource `lake`: a lake in a folder or of a configured catalog, and the Spark session that folds into it."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import dagster as dg
from pyiceberg.catalog import Catalog

from foldhouse.errors import ConfigurationError
from foldhouse.lake import Lake
from foldhouse.spark.starter import Starter
from foldhouse.storage.catalog import open_local_catalog
from foldhouse.storage.configuration import check_is_folder
from foldhouse.storage.configured import open_catalog


@dataclass(frozen=True)
class LakeFolder:
    """A lake in a folder or of a configured catalog, with one Spark session a process, started when it is first needed.

    Args:
        path: the folder; by default $FOLDHOUSE_LAKE, else ./lake.
        spark_master: Spark's master URL; by default $FOLDHOUSE_SPARK_MASTER, else `local[*]`.
        spark_driver_host: the name or address at which the executors of a cluster reach this process; by default
            $FOLDHOUSE_SPARK_DRIVER_HOST, else what Spark finds.
        spark_remote: a Spark Connect server that sees the same folder, as sc://host:port; by default
            $FOLDHOUSE_SPARK_REMOTE, else none: Spark runs in this process.
        run_id: the run that every commit names.
        catalog: a catalog of pyiceberg's configuration, instead of a folder; by default $FOLDHOUSE_CATALOG, else none.
            Its credentials stay in that configuration: Dagster records none of them.

    Raises:
        ConfigurationError: a folder and a catalog are both given, as arguments or as variables.
    """

    path: str = ""
    spark_master: str = field(default="", repr=False)  # the address of a Connect server may contain a token
    spark_remote: str = field(default="", repr=False)
    run_id: str | None = None
    catalog: str = ""
    spark_driver_host: str = ""

    def open(self) -> Lake:
        """The lake, always the same one."""
        return self._lake

    def exists(self) -> bool:
        """Whether opening it creates nothing: a configured catalog, or a folder with a lake in it."""
        folder, name = self._given()
        return bool(name) or (Path(folder or "lake") / "catalog.db").exists()

    def again(self) -> "LakeFolder":
        """Return the same resource, not opened yet."""
        return replace(self)

    @cached_property
    def _lake(self) -> Lake:
        remote = self.spark_remote or ("" if self.spark_master else os.environ.get("FOLDHOUSE_SPARK_REMOTE", ""))
        start = Starter(remote or self.spark_master, self.spark_driver_host)
        return Lake(self._catalog(), start, run_id=self.run_id)

    def _given(self) -> tuple[str, str]:
        """Return the folder and the catalog as they are given; at most one of them is not empty."""
        folder, name = self.path, self.catalog
        if not folder and not name:  # an argument overrides both variables
            folder, name = os.environ.get("FOLDHOUSE_LAKE", ""), os.environ.get("FOLDHOUSE_CATALOG", "")
        if folder and name:
            raise ConfigurationError(
                f"the lake is given as the folder {folder} and as the catalog {name}; give one of them, or set one of "
                "FOLDHOUSE_LAKE and FOLDHOUSE_CATALOG"
            )
        return folder, name

    def _catalog(self) -> Catalog:
        folder, name = self._given()
        if name:
            return open_catalog(name)
        check_is_folder(folder)
        return open_local_catalog(Path(folder or "lake"))

    def close(self) -> None:
        """Let go of the catalog, if it was opened; the Spark session stays for the next run of this process."""
        if "_lake" in self.__dict__:
            self._lake.close()


def lake_resource(folder: LakeFolder | None = None) -> dg.ResourceDefinition:
    """The resource `lake`. Its configuration is code: a run on the page cannot name another lake or Spark server.

    Args:
        folder: which lake; by default what the environment names.
    """

    @dg.resource(config_schema={}, description="The lake, and the Spark session that folds into it.")
    def lake(context: dg.InitResourceContext) -> Iterator[LakeFolder]:
        opened = replace(folder or LakeFolder(), run_id=context.run.run_id if context.run else None)
        try:
            yield opened
        finally:
            opened.close()

    return lake
