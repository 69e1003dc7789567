"""Spark on a standalone cluster: a master and two workers with folders of their own, and tables in S3.

The executors' Python has what foldhouse needs, but not foldhouse: the session has to send it. While histories of the
law run, executors, their Python workers and a Spark worker are killed at random moments. DuckDB is the oracle.
"""

from __future__ import annotations

import importlib.util
import random
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import catalog_servers
import pytest
from conftest import ROOT
from drivers import driver, law_in_tasks, python_without
from killing import Killer, kill
from laws.quick import STORE
from spark_servers import Cluster, below, standalone_cluster

pytestmark = [pytest.mark.spark, pytest.mark.heavy, pytest.mark.served]
KILLS = 6  # each costs the seconds in which an executor starts


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


def kill_a_worker(cluster: Cluster, chance: random.Random) -> bool:
    """Kill a Spark worker with its executors, and start another one."""
    worker = chance.choice([one for one in cluster.workers if one.poll() is None])
    for number in [worker.pid, *below(worker.pid)]:
        kill(number)
    worker.wait()
    cluster.add_worker()
    return True


def test_the_law_holds_on_a_cluster_over_s3_while_executors_and_workers_are_killed(
    cluster: Cluster, store: dict[str, str], tmp_path: Path
) -> None:
    environment = driver(cluster.address, tmp_path / "driver", python_without(tmp_path / "there"), store)
    workers = lambda: [one.pid for one in cluster.workers if one.poll() is None]  # noqa: E731
    killer = Killer(workers, KILLS, {"Spark worker": partial(kill_a_worker, cluster)})
    said = law_in_tasks(environment | {STORE: f"s3://{catalog_servers.BUCKET}"}, killer)
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
    environment = driver(cluster.address, tmp_path / "driver", python, store)
    ran = subprocess.run([sys.executable, "-c", ASK], cwd=ROOT, env=environment, capture_output=True, text=True)
    refused = next((line for line in ran.stdout.splitlines() if line.startswith("refused:")), ran.stdout + ran.stderr)
    assert "polars is missing, datasketches is missing" in refused
    assert "polars==" in refused
    assert "Install these there" in refused
