"""Reading a whole table with Spark: foldhouse's reader beside Iceberg's own, on the same files.

Both sum all columns, in sessions with the same settings, in processes that take turns. Iceberg's library needs an older
Spark than foldhouse; the difference between the two Sparks is part of what is measured.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import foldhouse as fh
from benchmarks.contenders import sql
from benchmarks.contenders.foldhouse_refresh import TABLES, events
from benchmarks.events import Batches, batches
from benchmarks.histories import ROOT, Steps
from benchmarks.peers import Missing, environment

TABLE = TABLES["latest"]
WORN = fh.Tuning(deleted_share=1.4)
"""No file is written again for its deleted rows."""


def _given(work: Path, rows: int, changes: int) -> Batches:
    return batches(work / "data", rows, changes, "uniform", 2)


def load(work: Path, folder: Path, steps: Steps, rows: int, changes: int, rounds: int) -> dict[str, Any]:
    """The table, without a deleted row."""
    lake = fh.Lake.local(folder / "lake")
    for part in sorted(_given(work, rows, changes).base.glob("*.parquet")):
        lake.append(events, pq.read_table(part))
    lake.refresh(TABLE)
    lake.close()
    return {}


def wear(work: Path, folder: Path, steps: Steps, rows: int, changes: int, rounds: int) -> dict[str, Any]:
    """Changes whose earlier rows stay in the files as deleted ones."""
    lake = fh.Lake.local(folder / "lake", tuning=WORN)
    for batch in _given(work, rows, changes).changes:
        lake.append(events, pq.read_table(batch))
        lake.refresh(TABLE)
    lake.close()
    return {}


def clean(work: Path, folder: Path, steps: Steps, rounds: int, **sizes: int) -> dict[str, Any]:
    """Reads of the clean table by foldhouse."""
    return _ours("clean", folder, steps, rounds)


def worn(work: Path, folder: Path, steps: Steps, rounds: int, **sizes: int) -> dict[str, Any]:
    """Reads of the table with deleted rows by foldhouse."""
    return _ours("worn", folder, steps, rounds)


def clean_jvm(work: Path, folder: Path, steps: Steps, rounds: int, **sizes: int) -> dict[str, Any]:
    """Reads of the clean table by Iceberg's library."""
    return _theirs("clean", work, folder, steps, rounds)


def worn_jvm(work: Path, folder: Path, steps: Steps, rounds: int, **sizes: int) -> dict[str, Any]:
    """Reads of the table with deleted rows by Iceberg's library."""
    return _theirs("worn", work, folder, steps, rounds)


def _ours(name: str, folder: Path, steps: Steps, rounds: int) -> dict[str, Any]:
    lake = fh.Lake.local(folder / "lake")
    sums = [sql.summed(column) for column in sql.COLUMNS["latest"]]
    lake.read(TABLE).selectExpr("count(*)", *sums).first()
    for _ in range(rounds):
        with steps(name):
            found = lake.read(TABLE).selectExpr("count(*)", *sums).first()
    assert found is not None
    (folder / f"{name}_sums.json").write_text(json.dumps([str(value) for value in found]))
    with steps(f"{name}_planning"):
        lake.read(TABLE)
    lake.close()
    return {}


def _theirs(name: str, work: Path, folder: Path, steps: Steps, rounds: int) -> dict[str, Any]:
    try:
        peer = environment("jvm", work)
    except Missing as missing:
        print(f"jvm was left out: {missing}")
        return {}
    job = {"lake": str(folder / "lake"), "table": TABLE.name, "rounds": rounds}
    command = [peer.python, "-m", "benchmarks.contenders.iceberg_reads", json.dumps(job)]
    variables = {**os.environ, **peer.variables}
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{name} failed: {done.stderr[-3000:]}")
    told = json.loads(done.stdout.splitlines()[-1])
    if told["sums"] != (ours := json.loads((folder / f"{name}_sums.json").read_text())):
        raise RuntimeError(f"{name}: Iceberg's library reads {told['sums']}, foldhouse {ours}")
    steps.taken += [(f"{name}_jvm", began, ended) for began, ended in told["spans"]]
    return {}
