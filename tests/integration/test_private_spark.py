"""The files that Spark writes while it runs are private and gone afterwards; none is at a place known in advance."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from foldhouse.errors import CannotStart
from foldhouse.spark.class_archive import archive_file, archive_options
from foldhouse.spark.session import _sockets_in

pytestmark = pytest.mark.spark

SHUFFLES = """
import json, os, signal, stat, sys
from pathlib import Path
from foldhouse.spark.session import local_session
session = local_session("local[1]")
session.range(0, 10_000, 1, 4).selectExpr("id % 7 AS k").groupBy("k").count().collect()
session.sql("CREATE TEMPORARY VIEW v AS SELECT 1").collect()
temporary = Path(os.environ["TMPDIR"])
print(json.dumps({"entered": [[one.name, stat.S_IMODE(one.lstat().st_mode)] for one in temporary.iterdir()],
    "files": sorted(one.name for one in temporary.rglob("*")),
    "littered": sorted(one.name for one in Path.cwd().iterdir())}), flush=True)
{end}
"""


def ran(folder: Path, end: str) -> subprocess.CompletedProcess[str]:
    (folder / "work").mkdir(exist_ok=True)
    environment = {**os.environ, "TMPDIR": str(folder / "temporary")}
    command = [sys.executable, "-c", SHUFFLES.replace("{end}", end)]
    return subprocess.run(command, cwd=folder / "work", env=environment, capture_output=True, text=True, umask=0)


@pytest.mark.heavy
def test_shuffles_logs_and_the_rest_are_in_one_private_folder_that_goes(tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    target = tmp_path / "target.txt"
    target.write_text("mine")
    waiting = temporary / f"foldhouse-{os.getuid()}"
    waiting.mkdir(mode=0o777)
    (waiting / "spark.log").symlink_to(target)
    killed = ran(tmp_path, "os.kill(os.getpid(), signal.SIGKILL)")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    said = json.loads(killed.stdout)
    others = [[name, mode] for name, mode in said["entered"] if name != waiting.name]
    assert len(others) == 1, others
    assert others[0][1] == 0o700
    assert {"spark.log"} <= set(said["files"])
    assert any(name.startswith("shuffle_") for name in said["files"])
    assert said["littered"] == []
    left = {one.name for one in temporary.iterdir()} - {waiting.name}
    assert left == {others[0][0]}
    done = ran(tmp_path, "")
    assert done.returncode == 0, done.stderr
    assert [one.name for one in temporary.iterdir()] == [waiting.name]
    assert target.read_text() == "mine"
    assert stat.S_ISLNK((waiting / "spark.log").lstat().st_mode)


def test_what_java_said_when_it_did_not_start_is_in_the_error(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path_factory.mktemp("cache")
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    java.write_text("#!/bin/sh\necho 'no room for the heap' >&2\nexit 1\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    archive = archive_file()
    assert archive is not None
    archive.parent.mkdir(mode=0o700)
    archive.touch(mode=0o600)
    assert archive_options()
    code = "from foldhouse.spark.session import local_session; local_session('local[1]')"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert CannotStart.__name__ in done.stderr
    assert "Spark's Java process did not start" in done.stderr
    assert "no room for the heap" in done.stderr
    assert [one.name for one in tmp_path.iterdir()] == ["bin"]
    assert archive.exists()  # Java does not start without it either


@pytest.mark.slow
def test_what_spark_refused_to_start_with_is_in_the_error() -> None:
    code = "from foldhouse.spark.session import session_of; session_of('spark://nohost')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert CannotStart.__name__ in done.stderr
    assert "Spark did not start with the master spark://nohost: SparkException:" in done.stderr
    assert "Invalid master URL" in done.stderr
    assert "Java 17" not in done.stderr


SOCKETS = """
import json, os, sys, time
from pathlib import Path
import foldhouse as fh
events = fh.stream("s.events", schema={"k": "long"})
counts = fh.table("s.counts", source=events, keys="k", fold=fh.fold(n=fh.count()))
lake = fh.Lake.local("lake", in_process_rows=0)
lake.append(events, [{"k": k % 7} for k in range(100)])
lake.refresh(counts)
sockets = list(Path(os.environ["TMPDIR"]).glob("foldhouse-run-*/.*.sock"))
for one in sockets:
    os.utime(one, (0, 0))
lake.append(events, [{"k": k % 7} for k in range(100)])
lake.refresh(counts)
print(json.dumps({"sockets": len(sockets), "old": sum(one.stat().st_mtime < time.time() - 600 for one in sockets),
    "rows": sum(row["n"] for row in lake.to_arrow(counts).to_pylist()),
    "set": lake.spark.conf.get("spark.python.unix.domain.socket.enabled", "false")}))
"""


@pytest.mark.slow
@pytest.mark.parametrize("has_room", [True, False], ids=["a short name", "too long a name"])
def test_tasks_are_reached_by_sockets_in_the_private_folder_if_its_name_is_short(
    tmp_path: Path, has_room: bool
) -> None:
    with tempfile.TemporaryDirectory(prefix="fh-", dir="/tmp") as short:
        temporary = Path(short) if has_room else Path(short) / ("x" * 90)
        temporary.mkdir(exist_ok=True)
        environment = {**os.environ, "TMPDIR": str(temporary)}
        done = subprocess.run(
            [sys.executable, "-c", SOCKETS], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        said = json.loads(done.stdout)
        assert said["rows"] == 200
        assert (said["set"], said["old"]) == ("true" if has_room else "false", 0)
        assert (said["sockets"] > 0) is has_room
        assert list(temporary.iterdir()) == []


def test_a_file_system_without_sockets_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "socket", no_socket)
    assert _sockets_in(tmp_path) == {}
    assert list(tmp_path.iterdir()) == []


def no_socket(kind: int) -> socket.socket:
    raise OSError(errno.EPERM, f"no socket of kind {kind}")


CLEANED = """
import os, shutil
from pathlib import Path
from pyspark.sql import functions as F
import foldhouse as fh
events = fh.stream("c.events", schema={"k": "long", "s": "string"})
words = fh.table("c.words", source=events, keys="w", fold=fh.fold(n=fh.count()),
    rows=lambda e: e.withColumn("w", F.regexp_replace("s", "[0-4]", "x")).groupBy("k", "w").count())
temporary = Path(os.environ["TMPDIR"])
with_tasks = {"in_process_rows": -1}
lake = fh.Lake.local("lake")
for number in range(3):
    lake.append(events, [{"k": k, "s": f"s{k % 7}"} for k in range(100 * number, 100 * number + 100)])
    lake.tuning = fh.Tuning(direct_rows=0, passed_rows=0, passed_share=0, **(with_tasks if number == 1 else {}))
    lake.refresh(words)
    for of_process in temporary.glob("foldhouse-run-*"):
        if number:
            shutil.rmtree(of_process)
        else:  # as `find -empty -delete` does
            for at, _, _ in os.walk(of_process, topdown=False):
                try:
                    os.rmdir(at)
                except OSError:
                    pass
print(sorted((row["w"], row["n"]) for row in lake.to_arrow(words).to_pylist()))
"""


@pytest.mark.heavy
def test_spark_goes_on_after_a_cleaner_removed_its_folders(tmp_path: Path) -> None:
    (tmp_path / "temporary").mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path / "temporary")}
    command = [sys.executable, "-c", CLEANED]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    expected = Counter("s" + ("x" if k % 7 < 5 else str(k % 7)) for k in range(300))
    assert done.stdout.strip() == str(sorted(expected.items())), done.stderr
