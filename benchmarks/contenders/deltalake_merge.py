"""deltalake, the Rust implementation of Delta: `DeltaTable.merge`, as its documentation shows it."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from benchmarks.contenders.polars_rewrite import newest, summed, sums
from benchmarks.contenders.protocol import Sums
from benchmarks.contenders.sql import COLUMNS

FILES = 16


class DeltalakeMerge:
    """Default settings; some sixteen files, in the order of the keys, so that recent keys are in few of them."""

    def __init__(self, folder: Path, workload: str) -> None:
        self.path, self.workload, self.columns = str(folder / "table"), workload, COLUMNS[workload]

    def load(self, base: Path) -> None:
        events = pl.scan_parquet(base / "*.parquet")
        loaded = sums(events).sort("key") if self.workload == "totals" else events.select(self.columns)
        rows = _in_utc(loaded.collect().to_arrow())
        write_deltalake(self.path, rows, target_file_size=max(1, rows.nbytes // 3 // FILES))

    def apply(self, changes: Path) -> None:
        events = pl.scan_parquet(changes)
        table = DeltaTable(self.path)
        if self.workload == "totals":
            source = sums(events).collect().to_arrow()
            merge = table.merge(source, "t.key = s.key", source_alias="s", target_alias="t")
            added = {name: f"t.{name} + s.{name}" for name in ("total", "events")}
            merge.when_matched_update(added).when_not_matched_insert_all().execute()
            return
        source = _in_utc(newest(events).collect().to_arrow())
        merge = table.merge(source, "t.key = s.key", source_alias="s", target_alias="t")
        values = {name: f"s.{name}" for name in self.columns}
        (
            merge.when_matched_delete("s.sequence > t.sequence AND s.deleted")
            .when_matched_update(values, "s.sequence > t.sequence")
            .when_not_matched_insert(values, "NOT s.deleted")
            .execute()
        )

    def read(self) -> Sums:
        return summed(pl.scan_delta(self.path), self.columns)

    def rows(self) -> pa.Table:
        return pl.read_delta(self.path).to_arrow()

    def close(self) -> None:
        pass


def _in_utc(rows: pa.Table) -> pa.Table:
    """Delta's timestamps without a zone need a newer protocol; a column in UTC is what its users have."""
    place = rows.schema.get_field_index("happened")
    if place < 0:
        return rows
    return rows.set_column(place, "happened", rows["happened"].cast(pa.timestamp("us", "UTC")))
