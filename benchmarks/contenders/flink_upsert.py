"""Flink SQL into Iceberg: a job that runs on, keeps the newest event of each key, and writes what that changes.

What it is: Flink's own pattern for "the newest of each key" (`ROW_NUMBER() = 1`) over a folder that batches land in,
its state in RocksDB with incremental checkpoints, as its documentation advises for much state; a v2 table with a
primary key, which Flink writes with equality deletes. State holds the newest event of each key, also where it is a
delete: a late event never wins, and a delete is not forgotten.

What it is not:

- `write.upsert.enabled`. That goes by arrival, and passes over the row that an update takes back, which is how a
  deleted key leaves the query: deletes would be lost. The table is written as a changelog instead; it costs the same
  equality deletes, of whole rows, but none for new keys.
- A job that waits for a clock. It looks for files every 50 ms, and is asked for a checkpoint, which is when Iceberg's
  sink commits, as soon as a batch has been read. What runs in earnest has a checkpoint every minute or so.
- Without Parquet: Flink's own Parquet format is a jar that its package does not have, so that a batch lands as CSV, a
  file for each core; `landed` tells the seconds. The landed files are not counted as written, the checkpoints are:
  they are what the next process goes on from (`state_files`, `state_bytes`).
- Compacted. Iceberg's maintenance jobs are Java only, and nobody reads Flink's equality deletes but the JVM's engines.
"""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from benchmarks.contenders.flink_session import CORES, Cluster, folder_source, last_committed, name_catalog, wait
from benchmarks.contenders.protocol import Sums, files_of
from benchmarks.contenders.sql import COLUMNS, MODULUS

EVENTS = (
    "`key` BIGINT, `sequence` BIGINT, deleted BOOLEAN, name STRING, amount DECIMAL(12,2), happened TIMESTAMP(6), "
    "units INT"
)
TABLE = (
    "`key` BIGINT, `sequence` BIGINT, name STRING, amount DECIMAL(12,2), happened TIMESTAMP(6), units INT, "
    "PRIMARY KEY (`key`) NOT ENFORCED"
)
_SELECTED = "`key`, `sequence`, name, amount, happened, units"
_NEWEST = (
    f"INSERT INTO lake.bench.latest SELECT {_SELECTED} FROM ("
    "SELECT *, ROW_NUMBER() OVER (PARTITION BY `key` ORDER BY `sequence` DESC) AS place FROM events"
    ") WHERE place = 1 AND NOT deleted"
)
_MICROSECONDS = "EXTRACT(EPOCH FROM happened) * 1000000 + EXTRACT(MICROSECOND FROM happened)"
_SUMMED = {
    "key": "SUM(`key`)",
    "sequence": "SUM(`sequence`)",
    "name": "SUM(CHAR_LENGTH(name))",
    "happened": f"SUM(MOD({_MICROSECONDS}, CAST({MODULUS} AS BIGINT)))",
    "units": "SUM(CAST(units AS BIGINT))",
}


class NewestOfEachKey:
    """One job for all batches of a process. A later process goes on from the last checkpoint of the one before."""

    def __init__(self, folder: Path, workload: str) -> None:
        assert workload == "latest"
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.cluster = Cluster()
        self.landing = self.cluster.scratch / "landing"
        self.landing.mkdir()
        self.reader = self.cluster.tables("batch")
        name_catalog(self.reader, folder / "warehouse")
        self.parts: dict[str, float] = {}
        self.batches = self.sent = 0
        self.job = self._started() if (folder / "warehouse").is_dir() else ""

    def _started(self) -> str:
        """The job's id; from the newest checkpoint, where there is one."""
        held = sorted((self.folder / "checkpoints").glob("*/chk-*/_metadata"), key=lambda path: path.stat().st_mtime)
        going_on = {"execution__state_recovery__path": held[-1].parent.as_uri()} if held else {}
        tables = self.cluster.lasting(self.folder / "checkpoints", **going_on)
        name_catalog(tables, self.folder / "warehouse")
        tables.execute_sql(f"CREATE TEMPORARY TABLE events {folder_source(EVENTS, self.landing)}")
        return self.cluster.started(tables, _NEWEST)

    def load(self, base: Path) -> None:
        """Part by part: what the job writes between two checkpoints it also keeps in memory, by key."""
        self.reader.execute_sql("CREATE DATABASE lake.bench")
        self.reader.execute_sql(
            f"CREATE TABLE lake.bench.latest ({TABLE}) WITH ('format-version' = '2', "
            "'flink.max-continuous-empty-commits' = '1')"  # a batch that changes nothing is told by a commit too
        )
        self.job = self._started()
        for part in sorted(base.glob("*.parquet")):
            self.apply(part)

    def apply(self, changes: Path) -> None:
        began = time.monotonic()
        state = files_of(self.folder / "checkpoints")
        self._land(pq.read_table(changes))
        landed = time.monotonic()
        wait("its source has read the batch", lambda: self.cluster.read_by(self.job) >= self.sent)
        read = time.monotonic()
        checkpoint = self.cluster.checkpoint(self.job)
        taken = time.monotonic()
        wait("the commit", lambda: self._committed(checkpoint))
        committed = time.monotonic()
        for read_already in self.landing.glob("*.csv"):
            read_already.unlink()
        new = [size for path, size in files_of(self.folder / "checkpoints").items() if state.get(path) != size]
        self.parts = {
            "landed": landed - began,
            "read": read - landed,
            "checkpoint": taken - read,
            "commit": committed - taken,
            "state_files": len(new),
            "state_bytes": sum(new),
        }

    def _land(self, events: pa.Table) -> None:
        """A file for each core, as a topic would have partitions; hidden until they are whole."""
        share = max(1, -(-events.num_rows // CORES))
        for place in range(0, events.num_rows, share):
            hidden = self.landing / f".{self.batches}-{place}.csv"
            without_header = pa.csv.WriteOptions(include_header=False)
            pa.csv.write_csv(events.slice(place, share), hidden, without_header)
            hidden.rename(hidden.with_name(hidden.name[1:]))
        self.batches, self.sent = self.batches + 1, self.sent + events.num_rows

    def _committed(self, checkpoint: int) -> bool:
        self.cluster.told(self.job)  # fails where the job has
        return last_committed(self.folder / "warehouse" / "bench" / "latest") >= checkpoint

    def read(self) -> Sums:
        columns = COLUMNS["latest"]
        sums = ", ".join(_SUMMED.get(name, f"SUM({name})") for name in columns)
        with self.reader.execute_sql(f"SELECT COUNT(*), {sums} FROM lake.bench.latest").collect() as found:
            return dict(zip(["rows", *columns], next(found), strict=True))

    def rows(self) -> pa.Table:
        """`happened` as a number: PyFlink drops the microseconds of a timestamp on its way to Python."""
        columns = COLUMNS["latest"]
        selected = _SELECTED.replace("happened", _MICROSECONDS)
        with self.reader.execute_sql(f"SELECT {selected} FROM lake.bench.latest").collect() as found:
            rows = pa.Table.from_pylist([dict(zip(columns, row, strict=True)) for row in found])
        place = columns.index("happened")
        return rows.set_column(place, "happened", rows["happened"].cast(pa.timestamp("us")))

    def close(self) -> None:
        if self.job:
            self.cluster.cancel(self.job)
        self.cluster.close()
