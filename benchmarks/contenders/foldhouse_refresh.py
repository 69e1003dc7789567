"""foldhouse: append the changes to a stream, refresh the table that is folded from it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import foldhouse as fh
from benchmarks.contenders import sql
from benchmarks.contenders.protocol import Sums

BUCKETS = 16

_SCHEMA = {
    "key": "long",
    "sequence": "long",
    "deleted": "boolean",
    "name": "string",
    "amount": "decimal(12,2)",
    "happened": "timestamp",
    "units": "int",
}
events = fh.stream("bench.events", schema=_SCHEMA, keys="key", sequence_by="sequence")
with_ids = fh.stream("bench.with_ids", schema=_SCHEMA, keys="key", sequence_by="sequence", event_id="sequence")
STREAMS = {"latest": events, "once": with_ids, "totals": events}
_LATEST = fh.latest(columns=sql.COLUMNS["latest"][1:], delete_when="deleted")
TABLES = {
    "latest": fh.table("bench.latest", source=events, buckets=BUCKETS, fold=_LATEST),
    "once": fh.table("bench.once", source=with_ids, buckets=BUCKETS, fold=_LATEST),
    "totals": fh.table(
        "bench.totals", source=events, buckets=BUCKETS, fold=fh.fold(total=fh.total("amount"), events=fh.count())
    ),
}


class Foldhouse:
    """A local lake. Windows of up to 200,000 rows are folded in process, larger ones in Spark: the default."""

    in_process_rows = fh.Tuning().in_process_rows

    def __init__(self, folder: Path, workload: str) -> None:
        self.stream, self.table = STREAMS[workload], TABLES[workload]
        self.lake = fh.Lake.local(folder, in_process_rows=self.in_process_rows)
        self.parts: dict[str, Any] = {}

    def load(self, base: Path) -> None:
        self.parts = {}
        for number, part in enumerate(sorted(base.glob("*.parquet"))):
            self.lake.append(self.stream, pq.read_table(part), batch_id=f"base-{number}")
        self.lake.refresh(self.table)

    def apply(self, changes: Path) -> None:
        started = time.monotonic()
        self.lake.append(self.stream, pq.read_table(changes), batch_id=changes.stem)
        appended = time.monotonic()
        done = self.lake.refresh(self.table)
        self.parts = {
            "append": appended - started,
            "refresh": time.monotonic() - appended,
            "rows_written": done.rows_written,
            "rows_carried": done.rows_carried,
            "rows_recomputed": done.rows_recomputed,
        }

    def read(self) -> Sums:
        """With Spark, as its users do; `read_arrow` is the way without Spark."""
        frame = self.lake.read(self.table)
        found = frame.selectExpr("count(*)", *(sql.summed(name) for name in frame.columns)).first()
        assert found is not None
        return dict(zip(["rows", *frame.columns], found, strict=True))

    def read_arrow(self) -> int:
        """All of it into Arrow."""
        return self.lake.to_arrow(self.table).num_rows

    def changelog(self) -> int:
        """What the last refresh changed, without Spark."""
        last, before = self.lake.history(self.table)[:2]
        return self.lake.changes(self.table, after=before.id, upto=last.id).num_rows

    def rows(self) -> pa.Table:
        return self.lake.to_arrow(self.table)

    def close(self) -> None:
        self.lake.close()


class FoldhouseOnSpark(Foldhouse):
    """Every fold in Spark's tasks, however small; its session starts with the process, as those of Spark's peers do."""

    in_process_rows = 0

    def __init__(self, folder: Path, workload: str) -> None:
        super().__init__(folder, workload)
        _ = self.lake.spark
