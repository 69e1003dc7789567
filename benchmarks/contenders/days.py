"""The peers of `benchmarks.files`: one day of a table of daily partitions is merged into, or replaced.

python -m benchmarks.contenders.days JOB      as `benchmarks.files` starts it, in the environment of the peer

It prints each step as it ends, as a line of JSON: name, beginning and end by the clock of all processes.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq


class Days(Protocol):
    """A table of days."""

    def load(self, rows: pa.Table) -> None:
        """Store all days, a file each."""

    def merge(self, path: Path, day: str) -> None:
        """Add the sums of a file to the rows of a day."""

    def replace(self, path: Path, day: str) -> None:
        """Make the rows of a file all rows of a day."""

    def read(self) -> pa.Table:
        """Return all rows."""


class Deltalake:
    """deltalake, with its default settings and a condition on the partition."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "table")

    def load(self, rows: pa.Table) -> None:
        from deltalake import write_deltalake

        write_deltalake(self.path, rows, partition_by=["day"])

    def merge(self, path: Path, day: str) -> None:
        from deltalake import DeltaTable

        condition = f"t.day = DATE '{day}' AND t.day = s.day AND t.item = s.item"
        merge = DeltaTable(self.path).merge(pq.read_table(path), condition, source_alias="s", target_alias="t")
        sums = {name: f"t.{name} + s.{name}" for name in ("quantity", "paid", "lines")}
        merge.when_matched_update(sums).when_not_matched_insert_all().execute()

    def replace(self, path: Path, day: str) -> None:
        from deltalake import write_deltalake

        write_deltalake(self.path, pq.read_table(path), mode="overwrite", predicate=f"day = '{day}'")

    def read(self) -> pa.Table:
        from deltalake import DeltaTable

        return DeltaTable(self.path).to_pyarrow_table()


LOADED_AT_ONCE = 20_000
"""Rows of some thousand days."""


class Iceberg:
    """Iceberg's own library in Spark, merge-on-read, with a condition on the partition."""

    table = "lake.bench.daily"

    def __init__(self, folder: Path) -> None:
        from benchmarks.contenders.spark_merge import IcebergMergeOnRead
        from benchmarks.contenders.spark_session import session

        self.spark = session(**IcebergMergeOnRead.settings(None, folder))  # type: ignore[arg-type]

    def load(self, rows: pa.Table) -> None:
        modes = ", ".join(f"'write.{what}.mode' = 'merge-on-read'" for what in ("merge", "delete", "update"))
        self.spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.bench")
        self.spark.sql(
            f"CREATE TABLE {self.table} (day date, item bigint, quantity bigint, paid bigint, lines bigint) "
            f"USING iceberg PARTITIONED BY (day) TBLPROPERTIES ('format-version' = '2', {modes})"
        )
        for first in range(0, rows.num_rows, LOADED_AT_ONCE):  # a task that writes ten thousand files needs more memory
            some = self.spark.createDataFrame(rows.slice(first, LOADED_AT_ONCE))
            some.repartition(8, "day").sortWithinPartitions("day").writeTo(self.table).append()

    def merge(self, path: Path, day: str) -> None:
        self.spark.read.parquet(str(path)).createOrReplaceTempView("late")
        self.spark.sql(
            f"MERGE INTO {self.table} t USING late s ON t.day = DATE '{day}' AND t.day = s.day AND t.item = s.item "
            "WHEN MATCHED THEN UPDATE SET quantity = t.quantity + s.quantity, paid = t.paid + s.paid, "
            "lines = t.lines + s.lines WHEN NOT MATCHED THEN INSERT *"
        )

    def replace(self, path: Path, day: str) -> None:
        self.spark.read.parquet(str(path)).writeTo(self.table).overwritePartitions()

    def read(self) -> pa.Table:
        return self.spark.table(self.table).toArrow()


def main() -> None:
    """Load the days, then merge into one and replace another, again and again."""
    job = json.loads(sys.argv[1])
    folder = Path(job["folder"])

    @contextmanager
    def timed(name: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        print(json.dumps([name, began, time.monotonic()]), flush=True)

    made: dict[str, Any] = {"deltalake": Deltalake, "jvm": Iceberg}
    peer: Days = made[job["name"]](folder)
    with timed("load"):
        peer.load(pq.read_table(job["first"]))
    for number in range(job["rounds"] + 1):
        first = "first_" if not number else ""
        for place, name in enumerate(("merge", "replace")):
            path = folder / f"{2 * number + place}.parquet"
            day = str(pc.min(pq.read_table(path)["day"]).as_py())
            with timed(f"{first}{name}"):
                getattr(peer, name)(path, day)
    with timed("read"):  # last: it takes longest, and a peer may be given up
        peer.read()


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    if "deltalake" in sys.argv[1]:
        os._exit(0)  # its threads abort the process now and then while Python ends
