"""DuckDB: the changes joined to the whole table, the whole table written again. What one node can do by rewriting."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa

from benchmarks.contenders import sql
from benchmarks.contenders.protocol import Sums, in_new_version


class DuckdbRewrite:
    """One database in memory; tables are folders of Parquet (zstd), a commit is the rename of a link."""

    def __init__(self, folder: Path, workload: str) -> None:
        self.folder, self.workload = folder, workload
        folder.mkdir(parents=True, exist_ok=True)
        self.db = duckdb.connect()
        self.db.execute(f"SET temp_directory = '{folder / 'spill'}'; SET preserve_insertion_order = false")

    def load(self, base: Path) -> None:
        self._write(sql.first_load(self.workload, f"read_parquet('{base}/*.parquet')"))

    def apply(self, changes: Path) -> None:
        self._write(sql.after(self.workload, self._table(), f"read_parquet('{changes}')"))

    def _table(self) -> str:
        return f"read_parquet('{self.folder / 'current'}/*.parquet')"

    def _write(self, query: str) -> None:
        def write(version: Path) -> None:
            options = "FORMAT parquet, COMPRESSION zstd, PER_THREAD_OUTPUT true"
            self.db.execute(f"COPY ({query}) TO '{version}' ({options})")

        in_new_version(self.folder, write)

    def read(self) -> Sums:
        columns = sql.COLUMNS[self.workload]
        sums = ", ".join(sql.summed(name).replace("unix_micros", "epoch_us") for name in columns)
        found = self.db.execute(f"SELECT count(*), {sums} FROM {self._table()}").fetchone()
        assert found is not None
        return dict(zip(["rows", *columns], found, strict=True))

    def rows(self) -> pa.Table:
        return self.db.sql(f"SELECT * FROM {self._table()}").to_arrow_table()

    def close(self) -> None:
        self.db.close()
