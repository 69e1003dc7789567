"""A fold that cannot subtract, where what it published is taken back: the keys are recomputed from their rows.

Every key has one event on the first ten days, and a later and greater one on one of a hundred days after them, so that
each of these has 1 % of the keys. Then the last day lands again with amounts below those of the first days: of its
keys the greatest amount and the latest event are taken away, and are to be found among their other events.
`near` lays keys that are beside one another into the same day, and the recompute finds their files by statistics;
otherwise they are spread over all files.

Peer: DuckDB, which computes the table again from all files.
"""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path
from typing import Any

import duckdb as engine
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import foldhouse as fh
from benchmarks.agreement import check_same_rows
from benchmarks.histories import Steps

FIRST, EARLY, LATER = date(2024, 1, 1), 10, 100
events = fh.stream(
    "bench.readings",
    schema={"day": "date", "key": "long", "sequence": "long", "amount": "long", "label": "string"},
    keys="key",
    sequence_by="sequence",
    partition_by="day",
)
TABLE = fh.table(
    "bench.extremes",
    source=events,
    buckets=16,
    fold=fh.fold(most=fh.maximum("amount"), least=fh.minimum("amount"), last=fh.latest("label"), events=fh.count()),
)
SQL = """SELECT key, max(amount) AS most, min(amount) AS least, arg_max(label, sequence) AS last, count(*) AS events
FROM read_parquet({files}) GROUP BY key"""


def a_day(number: int, rows: int, near: int, version: int = 0) -> pa.Table:
    """The events of day `number`; another version of it has other labels, and amounts below those of the first days."""
    keys = np.arange(rows) if near else np.random.default_rng([5, rows]).permutation(rows)
    late = number >= EARLY
    share = np.array_split(keys, LATER if late else EARLY)[number - EARLY if late else number]
    count = len(share)
    amount = share % 1_000 + (0 if version else 1_000 * (1 + late))
    columns = [
        pa.array(np.full(count, np.datetime64(FIRST + timedelta(days=number), "D"))),
        pa.array(share),
        pa.array(share + rows * late),
        pa.array(amount - version),
        pa.array([f"{number}-{version}-{place % 100}" for place in range(count)]),
    ]
    return pa.table(columns, names=["day", "key", "sequence", "amount", "label"])


def files(work: Path, rows: int, near: int) -> list[Path]:
    """A file a day; made once a work folder."""
    folder = work / "data" / f"readings-{rows}-{near}"
    numbers = range(EARLY + LATER)
    if not folder.is_dir():
        making = folder.with_name(f"making-{folder.name}")
        making.mkdir(parents=True, exist_ok=True)
        for number in numbers:
            pq.write_table(a_day(number, rows, near), making / f"{number:03}.parquet", compression="zstd")
        making.rename(folder)
    return [folder / f"{number:03}.parquet" for number in numbers]


def load(work: Path, folder: Path, steps: Steps, rows: int, near: int, rounds: int) -> dict[str, Any]:
    """All days landed, and folded in one run."""
    lake = fh.Lake.local(folder / "lake")
    with steps("land"):
        for number, file in enumerate(files(work, rows, near)):
            lake.replace(events, pq.read_table(file), partitions=[FIRST + timedelta(days=number)])
    with steps("first_fold"):
        lake.refresh(TABLE)
    lake.close()
    return {}


def restated(work: Path, folder: Path, steps: Steps, rows: int, near: int, rounds: int) -> dict[str, Any]:
    """The last day lands again and again, and the table is refreshed; the first time is told apart."""
    lake, last = fh.Lake.local(folder / "lake"), EARLY + LATER - 1
    for version in range(1, rounds + 2):
        new = a_day(last, rows, near, version)
        if version > 1:  # its greatest amounts again, to be taken back again
            lake.replace(events, a_day(last, rows, near), partitions=[FIRST + timedelta(days=last)])
            lake.refresh(TABLE)
        with steps("restated_first" if version == 1 else "restated"):
            lake.replace(events, new, partitions=[FIRST + timedelta(days=last)])
            run = lake.refresh(TABLE)
    pq.write_table(new, folder / "restated.parquet")
    pq.write_table(lake.to_arrow(TABLE), folder / "ours.parquet")
    lake.close()
    return {
        "rows_read": run.rows_read,
        "rows_scanned_again": run.rows_recomputed,
        "rows_written": run.rows_written,
        "rows_carried": run.rows_carried,
    }


def duckdb(work: Path, folder: Path, steps: Steps, rows: int, near: int, rounds: int) -> dict[str, Any]:
    """DuckDB: the table again from all files, as Parquet. Ours has to hold the same rows."""
    given = [str(path) for path in [*files(work, rows, near)[:-1], folder / "restated.parquet"]]
    connection = engine.connect()
    for number in range(rounds + 1):
        with steps("duckdb_first" if number == 0 else "duckdb"):
            query = SQL.format(files=given)
            connection.execute(f"COPY ({query}) TO '{folder}/theirs.parquet' (FORMAT parquet, COMPRESSION zstd)")
    connection.close()
    check_same_rows(folder / "ours.parquet", folder / "theirs.parquet", ["key", "most", "least", "last", "events"])
    return {}
