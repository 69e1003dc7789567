"""pyiceberg's own `Table.upsert`, with a `delete` before it: two commits and more a batch, and minutes from 100,000."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import In

from benchmarks.contenders.polars_rewrite import newest, summed
from benchmarks.contenders.protocol import Sums
from benchmarks.contenders.sql import COLUMNS


class Upsert:
    """A SQLite catalog. The order of events is kept by comparing with the rows of the touched keys, read before."""

    def __init__(self, folder: Path, workload: str) -> None:
        assert workload == "latest"
        folder.mkdir(parents=True, exist_ok=True)
        self.catalog = SqlCatalog("bench", uri=f"sqlite:///{folder / 'catalog.db'}", warehouse=folder.as_uri())
        self.columns = COLUMNS[workload]

    def load(self, base: Path) -> None:
        rows = pq.read_table(base, columns=self.columns)
        self.catalog.create_namespace("bench")
        self.catalog.create_table("bench.upserted", rows.schema).append(rows)

    def apply(self, changes: Path) -> None:
        table = self.catalog.load_table("bench.upserted")
        news = newest(pl.scan_parquet(changes)).collect()
        keys = In("key", news["key"].to_list())
        held = pl.from_arrow(table.scan(row_filter=keys, selected_fields=("key", "sequence")).to_arrow())
        assert isinstance(held, pl.DataFrame)
        news = news.join(held.rename({"sequence": "held"}), on="key", how="left")
        news = news.filter(pl.col("held").is_null() | (pl.col("sequence") > pl.col("held")))
        gone = news.filter(pl.col("deleted") & pl.col("held").is_not_null())["key"].to_list()
        if gone:
            table.delete(In("key", gone))
        upserts = news.filter(~pl.col("deleted")).select(self.columns).to_arrow()
        table.upsert(upserts.cast(table.schema().as_arrow()), join_cols=["key"])

    def read(self) -> Sums:
        return summed(self.rows_lazy(), self.columns)

    def rows_lazy(self) -> pl.LazyFrame:
        """Polars over pyiceberg's plan."""
        return pl.scan_iceberg(self.catalog.load_table("bench.upserted"))

    def rows(self) -> pa.Table:
        return self.catalog.load_table("bench.upserted").scan().to_arrow()

    def close(self) -> None:
        self.catalog.engine.dispose()
