"""Spark on a standalone cluster: a master and two workers with folders of their own, and tables in S3.

The executors' Python has what foldhouse needs, but not foldhouse: the session has to send it. While histories of the
law run, executors, their Python workers and a Spark worker are killed at random moments. DuckDB is the oracle.
"""

from __future__ import annotations

import importlib.util
import os
import random
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import catalog_servers
import pytest
from conftest import REMOTE, ROOT
from laws.quick import STORE
from spark_servers import Cluster, below, standalone_cluster

pytestmark = [pytest.mark.spark, pytest.mark.heavy]
DEFAULTS = """
spark.executor.memory 600m
spark.executor.cores 1
spark.sql.shuffle.partitions 4
spark.ui.enabled false
"""
KILLS = 6  # each costs the seconds in which an executor starts
SEED = random.randrange(2**32)


def python_without(folder: Path, *packages: str) -> str:
    """Return a Python that has the packages of this one, without foldhouse and the given ones."""
    here = Path(sysconfig.get_path("purelib"))
    there = folder / "packages"
    there.mkdir(parents=True)
    for entry in here.iterdir():
        if not any(entry.name == one or entry.name.startswith(f"{one}-") for one in packages):
            (there / entry.name).symlink_to(entry)
    program = folder / "python"
    # -S: without `site`, nothing follows the link by which the tests' environment finds foldhouse.
    program.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{there}" exec {sys.executable} -S "$@"\n')
    program.chmod(0o755)
    return str(program)


@pytest.fixture(scope="module")
def store() -> Iterator[dict[str, str]]:
    """What the driver and the executors find in their environment: the address and the credentials of the store."""
    if importlib.util.find_spec("moto") is None:
        pytest.skip("moto is not installed; `make servers` installs it")
    with catalog_servers.s3() as given:
        name = "PYICEBERG_CATALOG__LAW__"
        yield {name + key.upper().replace(".", "__").replace("-", "_"): value for key, value in given.items()}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, store: dict[str, str]) -> Iterator[Cluster]:
    with standalone_cluster(tmp_path_factory.mktemp("cluster"), store) as running:
        yield running


def driver(cluster: Cluster, folder: Path, python: str, store: dict[str, str]) -> dict[str, str]:
    """The environment of a driver: all that a deployment configures."""
    folder.mkdir(exist_ok=True)
    (folder / "spark-defaults.conf").write_text(DEFAULTS)
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("PYTEST_", "SPARK_"))}
    ours = {REMOTE: cluster.address, "FOLDHOUSE_SPARK_DRIVER_HOST": "127.0.0.1", "PYSPARK_PYTHON": python}
    return {**kept, **store, **ours, "SPARK_CONF_DIR": str(folder), "SPARK_LOCAL_IP": "127.0.0.1"}


class Killer(threading.Thread):
    """Kills an executor, a Python worker and a Spark worker in turn, at random moments."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(daemon=True)
        self._cluster, self._chance, self._ended = cluster, random.Random(SEED), threading.Event()
        self.killed: dict[str, int] = {}
        self.failed: list[BaseException] = []

    def stop(self) -> None:
        self._ended.set()
        self.join()

    def run(self) -> None:
        ways: list[tuple[str, Callable[[], bool]]] = [
            ("Python worker", lambda: self._kill("pyspark.daemon")),
            ("executor", lambda: self._kill("--executor-id")),
            ("Spark worker", self._kill_a_worker),
        ]
        try:
            while not any(self._processes("pyspark.daemon")) and not self._ended.wait(0.2):
                pass
            while not self._ended.wait(self._chance.uniform(0.5, 4)) and sum(self.killed.values()) < KILLS:
                name, kill = ways[sum(self.killed.values()) % len(ways)]
                if kill():
                    self.killed[name] = self.killed.get(name, 0) + 1
        except BaseException as failure:
            self.failed.append(failure)

    def _processes(self, word: str) -> list[int]:
        running = [one for one in self._cluster.workers if one.poll() is None]
        return [number for one in running for number, command in below(one.pid).items() if word in command]

    def _kill(self, word: str) -> bool:
        found = self._processes(word)
        if found:
            try:
                os.kill(self._chance.choice(found), signal.SIGKILL)
            except ProcessLookupError:
                return False
        return bool(found)

    def _kill_a_worker(self) -> bool:
        """Kill a Spark worker with its executors, and start another one."""
        running = [one for one in self._cluster.workers if one.poll() is None]
        worker = self._chance.choice(running)
        for number in [worker.pid, *below(worker.pid)]:
            try:
                os.kill(number, signal.SIGKILL)
            except ProcessLookupError:
                continue
        worker.wait()
        self._cluster.add_worker()
        return True


def test_the_law_holds_on_a_cluster_over_s3_while_executors_and_workers_are_killed(
    cluster: Cluster, store: dict[str, str], tmp_path: Path
) -> None:
    environment = driver(cluster, tmp_path / "driver", python_without(tmp_path / "there"), store)
    environment |= {STORE: f"s3://{catalog_servers.BUCKET}", "FOLDHOUSE_LAW_SEED": "0"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "tests/laws/test_the_law.py"]
    command += ["-k", "where_every_fold_runs_in_the_tasks_of_spark", "--durations=5"]
    killer = Killer(cluster)
    killer.start()
    began = time.monotonic()
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    killer.stop()
    said = f"kills {killer.killed} of seed {SEED}, {time.monotonic() - began:.0f} s\n"
    print(said)
    assert ran.returncode == 0, said + ran.stdout[-6000:] + ran.stderr[-2000:]
    assert not killer.failed
    assert len(killer.killed) == 3, said


ASK = """
import foldhouse as fh
from foldhouse.errors import CannotStart
from foldhouse.spark.session import session_of
import os
try:
    session_of(os.environ["FOLDHOUSE_TEST_REMOTE"])
except CannotStart as failure:
    print("refused:", failure)
"""


def test_executors_without_a_package_are_named_before_the_first_task(
    cluster: Cluster, store: dict[str, str], tmp_path: Path
) -> None:
    python = python_without(tmp_path / "there", "polars", "datasketches")
    environment = driver(cluster, tmp_path / "driver", python, store)
    ran = subprocess.run([sys.executable, "-c", ASK], cwd=ROOT, env=environment, capture_output=True, text=True)
    refused = next((line for line in ran.stdout.splitlines() if line.startswith("refused:")), ran.stdout + ran.stderr)
    assert "polars is missing, datasketches is missing" in refused
    assert "polars==" in refused
    assert "Install these there" in refused
