"""A Connect server is killed in the middle of a refresh: a clear error, nothing half done, and it goes on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

SCRIPT = """
import signal, sys, threading, time
from pathlib import Path

import duckdb
import pyarrow as pa
import foldhouse as fh
from catalog_servers import free_port
from spark_servers import connect_server

root, port = Path(sys.argv[1]), free_port()
began = root / "began"
slow = [False]

def rows(events):
    def through(batches, is_slow=slow[0], flag=str(began)):
        import pathlib, time
        for batch in batches:
            if is_slow and batch.num_rows:
                pathlib.Path(flag).touch()
                time.sleep(60)
            yield batch
    return events.select("k", "n").mapInArrow(through, "k string, n long")

events = fh.stream("c.events", schema={"k": "string", "n": "long"})
totals = fh.table("c.totals", source=events, rows=rows, keys="k", fold=fh.fold(n=fh.total("n"), rows=fh.count()))
batch = pa.table({"k": [str(n % 7) for n in range(500)], "n": list(range(500))})
expected = duckdb.sql("SELECT k, 2 * sum(n) AS n, 2 * count(*) AS rows FROM batch GROUP BY k ORDER BY k").fetchall()

with connect_server(root / "first", port) as (address, server):
    lake = fh.Lake.local(root / "lake", master=address, in_process_rows=0)
    lake.append(events, batch)
    lake.refresh(totals)
    lake.append(events, batch)
    head, files = lake.load(totals).current_snapshot().snapshot_id, sorted(root.glob("lake/**/*.metadata.json"))
    slow[0] = True

    def kill():
        while not began.exists():
            time.sleep(0.05)
        server.kill()

    threading.Thread(target=kill, daemon=True).start()
    # Its source text is the same, and so is its plan: only the sleep is new.
    started = time.monotonic()
    try:
        lake.refresh(totals)
    except fh.FoldhouseError as failure:
        print(f"{type(failure).__name__}|{time.monotonic() - started:.0f}|{failure}")
    assert began.exists()
    assert lake.load(totals).current_snapshot().snapshot_id == head
    assert sorted(root.glob("lake/**/*.metadata.json")) == files
    slow[0] = False
    started = time.monotonic()
    try:
        lake.refresh(totals)
    except fh.FoldhouseError as failure:
        print(f"{type(failure).__name__}|{time.monotonic() - started:.0f}|{failure}")

with connect_server(root / "second", port) as (address, server):
    lake.refresh(totals)
    found = sorted((row["k"], row["n"], row["rows"]) for row in lake.read(totals).collect())
    assert found == expected, found
    lake.spark.stop()
    print("right")
"""


@pytest.mark.heavy
@pytest.mark.spark
def test_a_connect_server_that_dies_leaves_nothing_half_done_and_another_one_goes_on(tmp_path: Path) -> None:
    tests = str(ROOT / "tests")
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {tests!r})\n{SCRIPT}", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    first, second, right = done.stdout.splitlines()
    kind, seconds, said = first.split("|")
    assert kind == "SparkLost"
    assert int(seconds) < 60
    assert said.startswith("c.totals: Spark's process or a worker of it died")
    assert second.startswith("CannotStart|")
    assert int(second.split("|")[1]) < 10, "it waited for the server that is dead"
    assert "does not answer" in second
    assert right == "right"
