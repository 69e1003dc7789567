"""Polars: the changes joined to the whole table, the whole table written again."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pyarrow as pa

from benchmarks.contenders.protocol import Sums, in_new_version
from benchmarks.contenders.sql import COLUMNS, MODULUS


class PolarsRewrite:
    """The streaming engine; tables are folders of Parquet (zstd), a commit is the rename of a link."""

    def __init__(self, folder: Path, workload: str) -> None:
        self.folder, self.workload, self.columns = folder, workload, COLUMNS[workload]
        folder.mkdir(parents=True, exist_ok=True)

    def load(self, base: Path) -> None:
        loaded = pl.scan_parquet(base / "*.parquet")
        self._write(sums(loaded) if self.workload == "totals" else loaded.select(self.columns))

    def apply(self, changes: Path) -> None:
        events = pl.scan_parquet(changes)
        table = pl.scan_parquet(self.folder / "current" / "*.parquet")
        self._write(totals_after(table, events) if self.workload == "totals" else latest_after(table, events))

    def _write(self, rows: pl.LazyFrame) -> None:
        def write(version: Path) -> None:
            version.mkdir()
            rows.sink_parquet(version / "part-0.parquet", compression="zstd", engine="streaming")

        in_new_version(self.folder, write)

    def read(self) -> Sums:
        return summed(pl.scan_parquet(self.folder / "current" / "*.parquet"), self.columns)

    def rows(self) -> pa.Table:
        return pl.read_parquet(self.folder / "current" / "*.parquet").to_arrow()

    def close(self) -> None:
        pass


def summed(table: pl.LazyFrame, columns: list[str]) -> Sums:
    """What `Contender.read` is asked for."""
    values = {
        "name": pl.col("name").str.len_chars().cast(pl.Int64),
        "happened": pl.col("happened").dt.timestamp("us") % MODULUS,
        "units": pl.col("units").cast(pl.Int64),
    }
    found = [values.get(name, pl.col(name)).sum().alias(name) for name in columns]
    return table.select(pl.len().alias("rows"), *found).collect(engine="streaming").row(0, named=True)


def sums(events: pl.LazyFrame) -> pl.LazyFrame:
    """Total and number of events by key."""
    return events.group_by("key").agg(
        pl.col("amount").sum().cast(pl.Decimal(22, 2)).alias("total"), pl.len().cast(pl.Int64).alias("events")
    )


def newest(events: pl.LazyFrame) -> pl.LazyFrame:
    """Of each key the event with the greatest sequence."""
    return events.sort("sequence").unique("key", keep="last")


def totals_after(table: pl.LazyFrame, events: pl.LazyFrame) -> pl.LazyFrame:
    """What both sides hold, added."""
    joined = table.join(sums(events), on="key", how="full", coalesce=True)
    added = [
        (pl.col(name).fill_null(0) + pl.col(f"{name}_right").fill_null(0)).cast(kind).alias(name)
        for name, kind in (("total", pl.Decimal(22, 2)), ("events", pl.Int64()))
    ]
    return joined.select("key", *added)


def latest_after(table: pl.LazyFrame, events: pl.LazyFrame) -> pl.LazyFrame:
    """The rows that no newer event is about, and the newer events that are no deletes."""
    news = (
        newest(events)
        .join(table.select("key", held="sequence"), on="key", how="left")
        .filter(pl.col("held").is_null() | (pl.col("sequence") > pl.col("held")))
    )
    kept = table.join(news.select("key"), on="key", how="anti")
    return pl.concat([kept, news.filter(~pl.col("deleted")).select(COLUMNS["latest"])])
