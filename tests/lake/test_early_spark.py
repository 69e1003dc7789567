"""A Spark session that starts in a thread: who needs it waits for it, and gets its error."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import foldhouse as fh
from foldhouse.errors import CannotStart, InvalidCall
from foldhouse.storage.catalog import open_local_catalog

pytestmark = [pytest.mark.spark, pytest.mark.classic]


def test_who_needs_the_session_waits_and_has_it_active(spark, tmp_path):
    may_start, started_in = threading.Event(), []

    def start() -> SparkSession:
        started_in.append(threading.current_thread())
        assert may_start.wait(60)
        return spark

    lake = fh.Lake(open_local_catalog(tmp_path), start)
    lake.start_spark_early()
    lake.start_spark_early()
    threading.Timer(0.2, may_start.set).start()
    assert lake.spark is spark
    lake.start_spark_early()
    assert lake.spark is spark
    assert len(started_in) == 1
    assert started_in[0] is not threading.current_thread()
    active = SparkSession.getActiveSession()
    assert active is not None
    assert active._jsparkSession.equals(spark._jsparkSession)


def test_the_error_of_an_early_start_is_raised_where_spark_is_needed_and_the_next_use_tries_again(spark, tmp_path):
    answers = [CannotStart("no Java"), spark]

    def start() -> SparkSession:
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    lake = fh.Lake(open_local_catalog(tmp_path), start)
    lake.start_spark_early()
    with pytest.raises(CannotStart, match="no Java"):
        _ = lake.spark
    assert lake.spark is spark


def test_a_fork_of_the_starting_process_is_refused_and_does_not_wait(tmp_path):
    may_start = threading.Event()

    def start() -> SparkSession:
        assert may_start.wait(60)
        raise CannotStart("no Java")

    lake = fh.Lake(open_local_catalog(tmp_path), start)
    lake.start_spark_early()
    child = os.fork()
    if child == 0:
        try:
            _ = lake.spark
        except InvalidCall:
            os._exit(7)
        finally:
            os._exit(1)
    may_start.set()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    with pytest.raises(CannotStart):
        _ = lake.spark


SCRIPT = """
import os, sys, threading, time
from pathlib import Path
import foldhouse as fh
lake = fh.Lake.local(Path(sys.argv[1]), master="local[1]")
lake.start_spark_early()
written = 0
while not lake._early.done():
    os.write(2, b"a line of another thread\\n")
    written += 1
    time.sleep(0.005)
print(written, lake.spark.range(3).count(), flush=True)
"""


@pytest.mark.slow
def test_what_others_write_to_standard_error_meanwhile_arrives_there(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "lake")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    written, rows = map(int, done.stdout.split())
    assert rows == 3
    assert written > 50
    assert done.stderr.splitlines() == ["a line of another thread"] * written


ENDS = """
import os, signal, sys, time
from pathlib import Path
import foldhouse as fh
lake = fh.Lake.local(Path(sys.argv[1]), master="local[1]")
lake.start_spark_early()
time.sleep(float(sys.argv[2]))
if sys.argv[3]:
    os.kill(os.getpid(), getattr(signal, sys.argv[3]))
"""


@pytest.mark.heavy
@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
@pytest.mark.parametrize(
    ("after", "by"), [("0", ""), ("1.5", ""), ("4", ""), ("6", ""), ("1.5", "SIGINT"), ("1.5", "SIGKILL")]
)
def test_no_java_stays_when_the_process_ends_while_spark_starts(tmp_path: Path, after: str, by: str) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    command = [sys.executable, "-c", ENDS, str(tmp_path / "lake"), after, by]
    done = subprocess.run(command, env={**os.environ, "TMPDIR": str(temporary)}, capture_output=True, text=True)
    assert done.returncode == (-getattr(signal, by) if by else 0), done.stderr
    assert "Fatal" not in done.stderr
    until = time.monotonic() + 120
    while left := [one for one in Path("/proc").glob("[0-9]*") if _is_of(one, temporary)]:
        assert time.monotonic() < until, [(one / "cmdline").read_text() for one in left]
        time.sleep(0.2)


def _is_of(process: Path, temporary: Path) -> bool:
    try:
        return f"TMPDIR={temporary}\0".encode() in (process / "environ").read_bytes()
    except OSError:  # it has ended, or is another user's
        return False
