"""Spark without a table format: everything is written again as Parquet, by a join or from all events."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame

from benchmarks.contenders import sql
from benchmarks.contenders.protocol import Sums, in_new_version
from benchmarks.contenders.spark_session import session

_CODEC = "zstd"


class FullOuterJoin:
    """The table joined to the newest change of each key."""

    def __init__(self, folder: Path, workload: str) -> None:
        self.folder, self.workload = folder, workload
        folder.mkdir(parents=True, exist_ok=True)
        self.spark = session(spark__sql__parquet__compression__codec=_CODEC)

    def load(self, base: Path) -> None:
        self.spark.read.parquet(str(base)).createOrReplaceTempView("base")
        self._write(sql.first_load(self.workload, "base"))

    def apply(self, changes: Path) -> None:
        self.spark.read.parquet(str(changes)).createOrReplaceTempView("changes")
        self._current().createOrReplaceTempView("held")
        self._write(sql.after(self.workload, "held", "changes"))

    def _current(self) -> DataFrame:
        return self.spark.read.parquet(str((self.folder / "current").resolve()))

    def _write(self, query: str) -> None:
        in_new_version(self.folder, lambda version: self.spark.sql(query).write.parquet(str(version)))

    def read(self) -> Sums:
        columns = sql.COLUMNS[self.workload]
        found = self._current().selectExpr("count(*)", *map(sql.summed, columns)).first()
        assert found is not None
        return dict(zip(["rows", *columns], found, strict=True))

    def rows(self) -> pa.Table:
        return self._current().toArrow()

    def close(self) -> None:
        self.spark.stop()


class Recompute(FullOuterJoin):
    """All events that ever came are kept, and the table is made from them each time."""

    def load(self, base: Path) -> None:
        events = self.folder / "events"
        events.mkdir()
        for part in sorted(base.glob("*.parquet")):
            shutil.copyfile(part, events / part.name)
        self._recompute()

    def apply(self, changes: Path) -> None:
        shutil.copyfile(changes, self.folder / "events" / changes.name)
        self._recompute()

    def _recompute(self) -> None:
        self.spark.read.parquet(str(self.folder / "events")).createOrReplaceTempView("events")
        self._write(sql.recomputed(self.workload, "events"))
