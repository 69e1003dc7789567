"""How much memory all processes together hold while a large table is loaded, folded and rebuilt.

Each stage is a process of its own, as a command of the command line would be. Peer: DuckDB, which computes the table
again from the files of all events.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb as engine
import pyarrow.parquet as pq

import foldhouse as fh
from benchmarks.agreement import check_same_rows
from benchmarks.contenders import sql
from benchmarks.contenders.foldhouse_refresh import TABLES, events
from benchmarks.events import Batches, batches
from benchmarks.histories import Steps

TABLE = TABLES["latest"]


def given(work: Path, rows: int, changes: int, events: int) -> Batches:
    """The first load of `rows`, and batches of `changes` until there are `events` in all."""
    return batches(work / "data", rows, changes, "uniform", max(1, (events - rows) // changes))


def load(work: Path, folder: Path, steps: Steps, **sizes: int) -> dict[str, Any]:
    """The first load."""
    lake = fh.Lake.local(folder / "lake")
    with steps("first_landing"):
        for part in sorted(given(work, **sizes).base.glob("*.parquet")):
            lake.append(events, pq.read_table(part))
    with steps("first_fold"):
        lake.refresh(TABLE)
    lake.close()
    return {}


def fold(work: Path, folder: Path, steps: Steps, **sizes: int) -> dict[str, Any]:
    """The first batch of changes."""
    lake = fh.Lake.local(folder / "lake")
    with steps("fold"):
        lake.append(events, pq.read_table(given(work, **sizes).changes[0]))
        run = lake.refresh(TABLE)
    lake.close()
    return {"fold_rows_written": run.rows_written, "fold_rows_carried": run.rows_carried}


def land(work: Path, folder: Path, steps: Steps, **sizes: int) -> dict[str, Any]:
    """The other batches, into the stream alone."""
    lake = fh.Lake.local(folder / "lake")
    for batch in given(work, **sizes).changes[1:]:
        lake.append(events, pq.read_table(batch))
    found = {"events_in_all": lake.count(events)}
    lake.close()
    return found


def rebuild(work: Path, folder: Path, steps: Steps, **sizes: int) -> dict[str, Any]:
    """The table again from all events."""
    lake = fh.Lake.local(folder / "lake")
    with steps("rebuild"):
        run = lake.rebuild(TABLE)
    pq.write_table(lake.to_arrow(TABLE), folder / "ours.parquet")
    lake.close()
    return {"rebuilt_rows": run.rows, "rebuilt_events": run.rows_read}


def duckdb(work: Path, folder: Path, steps: Steps, **sizes: int) -> dict[str, Any]:
    """DuckDB: the table again from all files, as Parquet. Ours has to hold the same rows."""
    files = given(work, **sizes)
    everything = [*map(str, sorted(files.base.glob("*.parquet"))), *map(str, files.changes)]
    connection = engine.connect()
    connection.execute(f"SET temp_directory = '{folder / 'spill'}'; SET preserve_insertion_order = false")
    query = sql.recomputed("latest", f"read_parquet({everything})")
    with steps("duckdb"):
        connection.execute(f"COPY ({query}) TO '{folder}/theirs.parquet' (FORMAT parquet, COMPRESSION zstd)")
    connection.close()
    check_same_rows(folder / "ours.parquet", folder / "theirs.parquet", sql.COLUMNS["latest"])
    return {}
