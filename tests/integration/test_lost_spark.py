"""Spark's process dies: the run fails with an error of ours, and the next one has a session again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import os, signal, sys, time
import corrupting
import foldhouse as fh
from pyspark import SparkContext
from pyspark.sql import functions as F
from foldhouse.spark.session import local_session
from foldhouse.storage.catalog import open_local_catalog
from pathlib import Path

root = Path(sys.argv[1])
corrupting.build(root)
lake = fh.Lake(open_local_catalog(root), lambda: local_session("local[1]"), in_process_rows=0)
rows = lake.rebuild(corrupting.totals).rows

@F.udf("string")
def shouted(word):  # declared once, before and after its Java process ends
    return word and word.upper()


by_udf = fh.table(
    "c.by_udf",
    source=corrupting.events,
    keys="key",
    rows=lambda events: events.withColumn("loud", shouted(F.col("key").cast("string"))),
    fold=fh.fold(loud=fh.maximum("loud")),
)
assert lake.refresh(by_udf).rows
os.kill(SparkContext._gateway.proc.pid, signal.SIGTERM)
held = lake._session
try:
    held.range(1).count()
except Exception:
    pass
SparkContext._gateway.proc.wait()  # it may answer while it ends
other = fh.Lake(open_local_catalog(root), lambda: local_session("local[1]"), in_process_rows=0)
assert other.rebuild(by_udf).rows == lake.count(by_udf)
assert lake.rebuild(by_udf).rows == other.count(by_udf)
assert lake.rebuild(corrupting.totals).rows == rows
assert lake._session is not held

def die(frame):
    os.kill(SparkContext._gateway.proc.pid, signal.SIGKILL)
    time.sleep(1)
    return frame.where("n >= 0")

dying = fh.table("c.dying", source=corrupting.events, keys="key", rows=die, fold=fh.fold(rows=fh.count()))
head = lake.tables()
try:
    lake.refresh(dying)
except fh.FoldhouseError as failure:
    print(type(failure).__name__, failure)
assert lake.tables() == head
assert lake.rebuild(corrupting.totals).rows == rows
lake.spark.stop()  # and its Java process ends after that
os.kill(SparkContext._gateway.proc.pid, signal.SIGTERM)
SparkContext._gateway.proc.wait()
third = fh.Lake(open_local_catalog(root), lambda: local_session("local[1]"), in_process_rows=0)
assert third.rebuild(by_udf).rows == third.count(by_udf)

for expression in ("1/0", "cast('x' as int)", "nope(", "interval 1 day", "assert_true(false)"):
    bad = fh.table("c.bad", source=corrupting.events, keys="key", fold=fh.fold(x=fh.latest(expression)))
    try:
        lake.refresh(bad)
        print(expression, "fine")
    except fh.FoldhouseError as failure:
        print(expression, type(failure).__name__)
"""


@pytest.mark.heavy
@pytest.mark.spark
def test_a_dead_session_is_replaced_and_expressions_that_fail_are_errors_of_ours(tmp_path: Path) -> None:
    tests = str(Path(__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {tests!r})\n{SCRIPT}", str(tmp_path / "lake")],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.split("\n")
    assert lines[0].startswith("SparkLost c.dying: Spark's Java process was killed (SIGKILL)"), lines[0]
    assert [line.rpartition(" ")[2] for line in lines[1:6]] == [
        "InvalidData",
        "InvalidData",
        "DefinitionError",
        "DefinitionError",
        "DefinitionError",
    ]


FULL_HEAP = """
from pyspark import SparkContext
from foldhouse.spark.process import how_java_ended
from foldhouse.spark.session import local_session

local_session("local[1]", spark_driver_memory="512m")
gateway = SparkContext._gateway
try:
    gateway.new_array(gateway.jvm.byte, 1_000_000_000)
except Exception as failure:
    print(how_java_ended(within_seconds=60))
"""


@pytest.mark.heavy
@pytest.mark.spark
def test_a_full_heap_ends_the_java_process_so_that_no_job_waits_for_a_thread_that_ended() -> None:
    """A thread that fetches the results of tasks may end with an error that nobody sees, while its job waits."""
    command = [sys.executable, "-c", FULL_HEAP]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    said = "Spark's Java process ended with code 3: it ran out of heap; set spark.driver.memory higher"
    assert done.stdout.startswith(said), done.stdout + done.stderr
