"""The lake: the one object that reads and changes anything outside of the process."""

from __future__ import annotations

from pathlib import Path

from foldhouse.lake.looking import Looking
from foldhouse.lake.proving import Proving
from foldhouse.lake.reading import Reading
from foldhouse.lake.upkeep import Upkeep
from foldhouse.lake.writing import Writing
from foldhouse.spark.starter import Starter
from foldhouse.storage.catalog import open_local_catalog
from foldhouse.storage.configuration import check_is_folder
from foldhouse.storage.configured import open_catalog
from foldhouse.storage.register import Registered, register
from foldhouse.values.tuning import DEFAULT, Tuning


class Lake(Writing, Reading, Proving, Looking, Upkeep):
    """A catalog of Iceberg tables and the Spark session that folds into them.

    Args:
        catalog: a pyiceberg catalog with compare-and-swap commits. The lake uses a guarded copy of it, which takes file
            system, endpoints and credentials only from its configuration, never from a table's properties.
        session: returns the Spark session; called when it is first needed, so that reading as Arrow starts no JVM.
        in_process_rows: windows of up to so many source rows are folded in this process instead of in Spark's tasks.
            The limit is ten times higher for a table without `rows` that folds plain columns. It is five hundred times
            higher, with a spill to a temporary folder, if also no event is delivered twice. By default the value in
            `tuning`.
        tuning: costs, sizes and limits, see `Tuning`; no row of any table depends on them.
        run_id: identifies the run in the summary of every commit; random by default.
    """

    @classmethod
    def local(
        cls,
        path: str | Path = "lake",
        *,
        master: str = "",
        in_process_rows: int | None = None,
        tuning: Tuning = DEFAULT,
    ) -> Lake:
        """Open or create a lake in a folder, with a SQLite catalog, local files and local Spark.

        Args:
            path: the folder; created if it is missing.
            master: Spark's master URL, or `sc://host:port`; by default $FOLDHOUSE_SPARK_MASTER, else `local[*]`.
            in_process_rows: see `Lake`.
            tuning: see `Lake`.

        Raises:
            LostTables: the folder's warehouse contains tables, but its catalog is missing or empty.
            CorruptCatalog: the catalog is damaged, or not a database.
            StorageError: the catalog cannot be read, or the folder cannot be created.
            ConfigurationError: the path is an address such as `s3://bucket`.
        """
        check_is_folder(path)
        catalog = open_local_catalog(Path(path))
        return cls(catalog, Starter(master), in_process_rows=in_process_rows, tuning=tuning)

    @classmethod
    def open(
        cls,
        name: str,
        *,
        master: str = "",
        in_process_rows: int | None = None,
        tuning: Tuning = DEFAULT,
    ) -> Lake:
        """Open the lake of a catalog that pyiceberg's own configuration names, such as one on Postgres or REST.

            lake = fh.Lake.open("prod")   -> PYICEBERG_CATALOG__PROD__URI, or `.pyiceberg.yaml`

        Args:
            name: of the catalog.
            master: Spark's master URL, or `sc://host:port`; by default $FOLDHOUSE_SPARK_MASTER, else `local[*]`.
            in_process_rows: see `Lake`.
            tuning: see `Lake`.

        Raises:
            ConfigurationError: no such catalog is configured, or its configuration cannot be used.
            StorageError: the catalog cannot be reached, or refuses the credentials.
        """
        catalog = open_catalog(name)
        return cls(catalog, Starter(master), in_process_rows=in_process_rows, tuning=tuning)

    @staticmethod
    def register(
        path: str | Path = "lake", *names: str, metadata_file: str | None = None, dry_run: bool = True
    ) -> list[Registered]:
        """Register the tables of a lake in a folder again, after its catalog was lost, emptied, or restored.

        Each table is registered at its newest whole metadata file, with its whole history and its position, so that the
        next refresh continues from there. Only `catalog.db` is written. A second call changes nothing.

        Args:
            path: the lake's folder.
            names: only these tables; by default all below `warehouse/`.
            metadata_file: the name of the file to use for a single table, for example if two files are the newest.
            dry_run: only return the plan, and write nothing.

        Returns:
            The plan or result of each table.

        Raises:
            UnknownTable: the warehouse has no folder for one of the names.
            CorruptCatalog: `catalog.db` is damaged; the message says what to do.
        """
        return register(Path(path), names, metadata_file, dry_run=dry_run)
