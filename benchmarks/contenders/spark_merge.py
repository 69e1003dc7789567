"""Spark and a table format of the JVM: Iceberg's `MERGE INTO`, both ways, and Delta's."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from pathlib import Path

import pyarrow as pa

from benchmarks.contenders import sql
from benchmarks.contenders.protocol import Sums
from benchmarks.contenders.spark_session import session

FILES = 16
TYPES = {
    "latest": "key bigint, sequence bigint, name string, amount decimal(12,2), happened timestamp_ntz, units int",
    "totals": "key bigint, total decimal(22,2), events bigint",
}


class _Merge(ABC):
    """One table, loaded in the order of its keys into some sixteen files; a change is one `MERGE INTO`."""

    table = "lake.bench.merged"
    using = ""

    def __init__(self, folder: Path, workload: str) -> None:
        self.folder, self.workload = folder, workload
        folder.mkdir(parents=True, exist_ok=True)
        self.spark = session(**self.settings(folder))

    @abstractmethod
    def settings(self, folder: Path) -> dict[str, str]:
        """Spark's settings for the table format, with its tables below a folder."""

    def load(self, base: Path) -> None:
        self.spark.read.parquet(str(base)).createOrReplaceTempView("base")
        self.spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.bench")
        self.spark.sql(f"CREATE TABLE {self.table} ({TYPES[self.workload]}) {self.using}")
        loaded = self.spark.sql(sql.first_load(self.workload, "base"))
        loaded.repartitionByRange(FILES, "key").sortWithinPartitions("key").writeTo(self.table).append()

    def apply(self, changes: Path) -> None:
        self.spark.read.parquet(str(changes)).createOrReplaceTempView("changes")
        self.spark.sql(sql.merge_into(self.workload, self.table, "changes"))

    def read(self) -> Sums:
        columns = sql.COLUMNS[self.workload]
        summed = [sql.summed(name).replace("(happened)", "(CAST(happened AS timestamp))") for name in columns]
        found = self.spark.table(self.table).selectExpr("count(*)", *summed).first()
        assert found is not None
        return dict(zip(["rows", *columns], found, strict=True))

    def rows(self) -> pa.Table:
        return self.spark.table(self.table).toArrow()

    def close(self) -> None:
        self.spark.stop()


class IcebergCopyOnWrite(_Merge):
    """Files with a changed row are written again."""

    mode = "copy-on-write"

    def __init__(self, folder: Path, workload: str) -> None:
        modes = ", ".join(f"'write.{what}.mode' = '{self.mode}'" for what in ("merge", "delete", "update"))
        self.using = f"USING iceberg TBLPROPERTIES ('format-version' = '2', {modes})"
        super().__init__(folder, workload)

    def settings(self, folder: Path) -> dict[str, str]:
        return {
            "spark__jars": os.environ["FOLDHOUSE_BENCH_ICEBERG_JARS"],
            "spark__sql__extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            "spark__sql__catalog__lake": "org.apache.iceberg.spark.SparkCatalog",
            "spark__sql__catalog__lake__type": "hadoop",
            "spark__sql__catalog__lake__warehouse": str(folder / "warehouse"),
        }

    def changelog(self) -> int:
        """Iceberg's own changelog view of the last snapshot, computed in full."""
        snapshots = self.spark.sql(f"SELECT snapshot_id FROM {self.table}.snapshots ORDER BY committed_at")
        before, last = [row[0] for row in snapshots.collect()[-2:]]
        self.spark.sql(
            f"CALL lake.system.create_changelog_view(table => '{self.table.partition('.')[2]}', "
            f"options => map('start-snapshot-id', '{before}', 'end-snapshot-id', '{last}'), "
            "changelog_view => 'changelog', identifier_columns => array('key'))"
        )
        found = self.spark.table("changelog").selectExpr("count(*)", "sum(length(name))", "sum(amount)").first()
        assert found is not None
        return int(found[0])


class IcebergMergeOnRead(IcebergCopyOnWrite):
    """Position delete files, and files of the new rows."""

    mode = "merge-on-read"
    changelog = None  # its procedure refuses snapshots with delete files


class DeltaMerge(_Merge):
    """Deletion vectors on, as Delta's documentation advises for changes of few rows a file."""

    table = "bench.merged"

    def __init__(self, folder: Path, workload: str) -> None:
        self.using = (
            f"USING delta LOCATION '{folder / 'merged'}' TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
        )
        super().__init__(folder, workload)
        if (folder / "merged").is_dir():
            self._name()

    def _name(self) -> None:
        """The catalog is in memory: a new session has to be told where the table is."""
        self.spark.sql("CREATE NAMESPACE IF NOT EXISTS bench")
        self.spark.sql(f"CREATE TABLE IF NOT EXISTS {self.table} USING delta LOCATION '{self.folder / 'merged'}'")

    def settings(self, folder: Path) -> dict[str, str]:
        return {
            "spark__jars": os.environ["FOLDHOUSE_BENCH_DELTA_JARS"],
            "spark__sql__extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark__sql__catalog__spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        }

    def load(self, base: Path) -> None:
        self.spark.read.parquet(str(base)).createOrReplaceTempView("base")
        self.spark.sql("CREATE NAMESPACE IF NOT EXISTS bench")
        self.spark.sql(f"CREATE TABLE {self.table} ({TYPES[self.workload]}) {self.using}")
        loaded = self.spark.sql(sql.first_load(self.workload, "base"))
        loaded.repartitionByRange(FILES, "key").sortWithinPartitions("key").writeTo(self.table).append()
