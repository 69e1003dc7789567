"""Spark's own servers for tests, on 127.0.0.1 alone: a standalone cluster, and a Connect server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
from catalog_servers import free_port

from foldhouse.spark.class_archive import archive_options

_BIN = Path(pyspark.__file__).parent / "bin"
_CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"
_STARTS_WITHIN = 120


@contextmanager
def running(command: list[str], folder: Path, environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server that writes to `folder/log`, and end it with what it started."""
    folder.mkdir(parents=True, exist_ok=True)
    java = [os.environ.get("JDK_JAVA_OPTIONS", ""), *archive_options()]
    given = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    given |= {"JDK_JAVA_OPTIONS": " ".join(java), **environment}
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            command, cwd=folder, env=given, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for(text: str, folder: Path, process: subprocess.Popen[bytes]) -> str:
    """Wait until a server's log contains a text, and return the log."""
    ends = time.monotonic() + _STARTS_WITHIN
    while time.monotonic() < ends:
        said = (folder / "log").read_text(errors="replace")
        if re.search(text, said):
            return said
        assert process.poll() is None, said[-3000:]
        time.sleep(0.1)
    raise AssertionError(f"{text!r} is not in the log: {said[-3000:]}")


@contextmanager
def connect_server(folder: Path, port: int = 0, **settings: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Run a Connect server with two cores; its address and its process."""
    port = port or free_port()
    given = {
        "spark.master": "local[2]",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": (folder / "warehouse").as_uri(),
        "spark.sql.shuffle.partitions": "4",
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    confs = [one for name, value in given.items() for one in ("--conf", f"{name}={value}")]
    with running([str(_BIN / "spark-submit"), "--class", _CONNECT, *confs], folder, {}) as process:
        wait_for("Spark Connect server started at", folder, process)
        yield f"sc://127.0.0.1:{port}", process


class Cluster:
    """A standalone cluster: a master, and workers with a folder each."""

    def __init__(self, folder: Path, stack: ExitStack, environment: Mapping[str, str]) -> None:
        self.folder, self._stack, self._environment = folder, stack, environment
        self.workers: list[subprocess.Popen[bytes]] = []
        self.address = f"spark://127.0.0.1:{free_port()}"
        port = self.address.rpartition(":")[2]
        self._start("master.Master", "master", ["--host", "127.0.0.1", "--port", port, "--webui-port", "0"])

    def _start(self, kind: str, name: str, given: list[str]) -> subprocess.Popen[bytes]:
        command = [str(_BIN / "spark-class"), f"org.apache.spark.deploy.{kind}", *given]
        of_own = {"SPARK_LOCAL_DIRS": str(self.folder / name), "SPARK_WORKER_DIR": str(self.folder / name)}
        started = running(command, self.folder / name, {**self._environment, **of_own})
        process = self._stack.enter_context(started)
        wait_for("I have been elected leader|Successfully registered with master", self.folder / name, process)
        return process

    def add_worker(self, cores: int = 1, memory: str = "1200m") -> None:
        name = f"worker-{len(self.workers)}"
        given = ["--host", "127.0.0.1", "--cores", str(cores), "--memory", memory, "--webui-port", "0", self.address]
        self.workers.append(self._start("worker.Worker", name, given))


@contextmanager
def standalone_cluster(folder: Path, environment: Mapping[str, str], workers: int = 2) -> Iterator[Cluster]:
    """Run a master and workers, whose executors have the environment."""
    with ExitStack() as stack:
        cluster = Cluster(folder, stack, environment)
        for _ in range(workers):
            cluster.add_worker()
        yield cluster


def below(process: int) -> dict[int, str]:
    """Return the processes that a process started, directly or not, with their command lines."""
    parents: dict[int, tuple[int, str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:  # it ended meanwhile
                continue
            parents[int(entry.name)] = (int(stat.rpartition(")")[2].split()[1]), command)
    found: dict[int, str] = {}
    reached = [process]
    for parent in reached:
        for number, (above, command) in parents.items():
            if above == parent and number not in found:
                found[number] = command
                reached.append(number)
    return found
