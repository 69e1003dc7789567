"""Spark on Kubernetes: Kubernetes' own API server, and executors as pods, which are processes here and no containers.

The driver has the rights of `deploy/spark-executors.yaml` and no others. The executors' Python lacks foldhouse, and the
credentials of the store reach them from a secret of Kubernetes. While the law runs, Python workers and executors are
killed and pods are deleted.
"""

from __future__ import annotations

import importlib.util
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import catalog_servers
import pytest
from catalog_servers import Missing
from conftest import ROOT
from drivers import driver, law_in_tasks, python_without
from killing import Killer, kill
from kubernetes_server import Kubernetes, kubernetes
from laws.quick import STORE
from nodes import IMAGE, Nodes
from spark_servers import below

pytestmark = [pytest.mark.spark, pytest.mark.heavy, pytest.mark.served]
KILLS = 6
PATIENCE_SECONDS = 600  # a busy machine is no failure
_NAMESPACE = "lake"
_HERE = f"/api/v1/namespaces/{_NAMESPACE}"
_CREDENTIALS = "store"


@dataclass(frozen=True)
class Cluster:
    """A namespace of a running API server, whose pods run: its nodes, and the driver's configuration."""

    server: Kubernetes
    nodes: Nodes
    token: Path

    @property
    def master(self) -> str:
        return f"k8s://{self.server.address}"

    def defaults(self, **others: str) -> str:
        """Return lines of `spark-defaults.conf`: what a driver needs, and others, with `_` for `.` in their names."""
        ours = {
            "spark.kubernetes.namespace": _NAMESPACE,
            "spark.kubernetes.container.image": IMAGE,
            "spark.kubernetes.authenticate.caCertFile": str(self.server.authority),
            "spark.kubernetes.authenticate.oauthTokenFile": str(self.token),
            "spark.executor.instances": "2",
            **{name.replace("_", "."): text for name, text in others.items()},
        }
        return "".join(f"{name} {text}\n" for name, text in ours.items() if text)

    def listed(self, kind: str) -> list[dict[str, Any]]:
        """Return the objects of a kind in the namespace."""
        items: list[dict[str, Any]] = self.server.ask("GET", f"{_HERE}/{kind}")["items"]
        return items

    def executors(self) -> list[int]:
        """Return the processes of the executors that run."""
        found = {number: said for one in self.nodes.processes() for number, said in below(one).items()}
        return [number for number, said in found.items() if "--executor-id" in said]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("kubernetes")
    with ExitStack() as stack:
        try:
            server = stack.enter_context(kubernetes(folder / "server"))
        except Missing as missing:
            pytest.skip(str(missing))
        server.ask("POST", "/api/v1/namespaces", {"metadata": {"name": _NAMESPACE}})
        # The controllers of a cluster make this account in each namespace.
        server.ask("POST", f"{_HERE}/serviceaccounts", {"metadata": {"name": "default"}})
        server.apply(ROOT / "deploy" / "spark-executors.yaml", _NAMESPACE)
        token = folder / "token"
        token.write_text(server.token_of("foldhouse-driver", _NAMESPACE))
        nodes = stack.enter_context(Nodes(server, _NAMESPACE, folder / "pods"))
        yield Cluster(server, nodes, token)
        assert not nodes.failed


@pytest.fixture(scope="module")
def store(cluster: Cluster) -> Iterator[dict[str, str]]:
    """The variables with which the driver finds the store; the executors have a secret with them."""
    if importlib.util.find_spec("moto") is None:
        pytest.skip("moto is not installed; `make servers` installs it")
    with catalog_servers.s3() as given:
        name = "PYICEBERG_CATALOG__LAW__"
        held = {name + key.upper().replace(".", "__").replace("-", "_"): value for key, value in given.items()}
        cluster.server.ask("POST", f"{_HERE}/secrets", {"metadata": {"name": _CREDENTIALS}, "stringData": held})
        yield held


def delete_a_pod(cluster: Cluster, at_once: bool, chance: random.Random) -> bool:
    """Delete a running pod: at once, or with Kubernetes' time to end."""
    running = [
        one["metadata"]["name"]
        for one in cluster.listed("pods")
        if one["status"]["phase"] == "Running" and "deletionTimestamp" not in one["metadata"]
    ]
    if not running:
        return False
    body = {"gracePeriodSeconds": 0} if at_once else {}
    cluster.server.ask("DELETE", f"{_HERE}/pods/{chance.choice(running)}", body)
    return True


def test_the_law_holds_on_kubernetes_while_pods_and_their_processes_are_killed(
    cluster: Cluster, store: dict[str, str], tmp_path: Path
) -> None:
    secrets = "".join(f"spark.kubernetes.executor.secretKeyRef.{name} {_CREDENTIALS}:{name}\n" for name in store)
    defaults = cluster.defaults(spark_executor_failuresValidityInterval="20s") + secrets
    environment = driver(cluster.master, tmp_path / "driver", python_without(tmp_path / "there"), store, defaults)
    further = {
        name: partial(delete_a_pod, cluster, name == "deleted at once") for name in ("deleted", "deleted at once")
    }
    killer = Killer(cluster.nodes.processes, KILLS, further)
    said = law_in_tasks(environment | {STORE: f"s3://{catalog_servers.BUCKET}"}, killer)
    assert len(killer.killed) == 4, said
    assert cluster.nodes.started > KILLS // 2
    left = lambda: [*cluster.listed("pods"), *cluster.listed("configmaps")]  # noqa: E731
    ends = time.monotonic() + 60
    while left() and time.monotonic() < ends:
        time.sleep(0.5)
    assert left() == []


ASK = """
import os, sys
sys.path.insert(0, "tests")
from foldhouse.errors import CannotStart
from foldhouse.spark.session import session_of
try:
    session = session_of(os.environ["FOLDHOUSE_TEST_REMOTE"])
    print("sum:", session.range(1000).selectExpr("sum(id)").collect()[0][0])
    session.stop()
except CannotStart as failure:
    print("refused:", failure)
"""
SOON = {"spark_scheduler_maxRegisteredResourcesWaitingTime": "1s"}
"""Spark waits for executors before its first job, by default for 30 seconds; then the job waits."""


def asked(cluster: Cluster, folder: Path, script: str, *given: str, **others: str) -> subprocess.Popen[str]:
    """Start a driver that runs a script."""
    environment = driver(
        cluster.master, folder / "driver", python_without(folder / "there"), {}, cluster.defaults(**others)
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with (folder / "said").open("w") as said:
        command = [sys.executable, "-c", script, *given]
        return subprocess.Popen(command, cwd=ROOT, env=environment, stderr=said, text=True, **pipes)


def wait_until(
    holds: Callable[[], bool], process: subprocess.Popen[str], folder: Path, seconds: float = PATIENCE_SECONDS
) -> None:
    ends = time.monotonic() + seconds
    while not holds():
        assert process.poll() is None, (folder / "said").read_text()[-3000:]
        assert time.monotonic() < ends, (folder / "said").read_text()[-3000:]
        time.sleep(0.2)


def test_executors_without_an_image_are_refused(cluster: Cluster, tmp_path: Path) -> None:
    given = {"spark_kubernetes_container_image": "", **SOON}
    said, _ = asked(cluster, tmp_path, ASK, **given).communicate(timeout=PATIENCE_SECONDS)
    assert "refused: Spark's executors have no container image" in said
    assert "Set spark.kubernetes.container.image" in said


def test_an_unknown_token_is_the_reason_that_is_given(cluster: Cluster, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("unknown")
    said, _ = asked(replace(cluster, token=token), tmp_path, ASK).communicate(timeout=PATIENCE_SECONDS)
    assert f"refused: Spark did not start with the master {cluster.master}" in said
    assert "Message: Unauthorized" in said
    assert "Java 17" not in said


def test_a_right_that_the_driver_lacks_is_the_reason_that_is_given(cluster: Cluster, tmp_path: Path) -> None:
    name, group = "without-pods", "rbac.authorization.k8s.io"
    rules = [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
    ]
    bound = {"metadata": {"name": name}, "roleRef": {"apiGroup": group, "kind": "Role", "name": name}}
    bound["subjects"] = [{"kind": "ServiceAccount", "name": name, "namespace": _NAMESPACE}]
    cluster.server.ask("POST", f"{_HERE}/serviceaccounts", {"metadata": {"name": name}})
    roles = f"/apis/{group}/v1/namespaces/{_NAMESPACE}"
    cluster.server.ask("POST", f"{roles}/roles", {"metadata": {"name": name}, "rules": rules})
    cluster.server.ask("POST", f"{roles}/rolebindings", bound)
    token = tmp_path / "token"
    token.write_text(cluster.server.token_of(name, _NAMESPACE))
    said, _ = asked(replace(cluster, token=token), tmp_path, ASK).communicate(timeout=PATIENCE_SECONDS)
    assert f"refused: Spark did not start with the master {cluster.master}" in said
    assert f'User "system:serviceaccount:{_NAMESPACE}:{name}" cannot create resource "pods"' in said
    assert "Java 17" not in said


def test_waiting_for_an_image_is_announced_and_goes_on_when_the_image_is_there(
    cluster: Cluster, tmp_path: Path
) -> None:
    image = "registry.test/spark-executors:2"
    process = asked(cluster, tmp_path, ASK, spark_kubernetes_container_image=image, **SOON)
    wait_until(lambda: "Spark has no executor" in (tmp_path / "said").read_text(), process, tmp_path)
    told = re.search(r"`kubectl describe pods --namespace (\S+) --selector (\S+)`", (tmp_path / "said").read_text())
    assert told is not None
    pods = cluster.server.ask("GET", f"/api/v1/namespaces/{told[1]}/pods?labelSelector={told[2]}")["items"]
    states = [one["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] for one in pods]
    assert states == ["ImagePullBackOff"] * 2
    cluster.nodes.images.add(image)
    said, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert said == "sum: 499500\n"


FOLD = """
import os, sys, time
from pathlib import Path
sys.path.insert(0, "tests")
import corrupting
import foldhouse as fh
from foldhouse.spark.session import session_of
from foldhouse.storage.catalog import open_local_catalog
from pyspark.sql import functions as F
root = Path(sys.argv[1])
corrupting.build(root)
lake = fh.Lake(open_local_catalog(root), lambda: session_of(os.environ["FOLDHOUSE_TEST_REMOTE"]), in_process_rows=0)
rows = lake.rebuild(corrupting.totals).rows
slowly = F.udf(lambda n: time.sleep(60) or True, "boolean")
slow = fh.table(
    "c.slow", source=corrupting.events, keys="key", rows=lambda e: e.where(slowly("n")), fold=fh.fold(n=fh.count())
)
print("folded", flush=True)
try:
    lake.rebuild(slow)
except fh.FoldhouseError as failure:
    print(type(failure).__name__, failure)
print(lake.rebuild(corrupting.totals).rows == rows)
lake.close()
"""


def test_a_session_that_ended_because_executors_failed_says_so_and_is_replaced(
    cluster: Cluster, tmp_path: Path
) -> None:
    given = {"spark_executor_instances": "1", "spark_task_maxFailures": "100"}
    process = asked(cluster, tmp_path, FOLD, str(tmp_path / "lake"), **given)
    assert process.stdout is not None
    assert process.stdout.readline() == "folded\n", (tmp_path / "said").read_text()[-3000:]
    for _ in range(4):  # Spark's limit is three for one executor
        wait_until(lambda: bool(cluster.executors()), process, tmp_path)
        for number in cluster.executors():
            kill(number)
        wait_until(lambda: not cluster.executors(), process, tmp_path)
    said, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert said.count("\n") == 2, said + (tmp_path / "said").read_text()[-3000:]
    lost, right = said.splitlines()
    assert lost.startswith("SparkLost c.slow: Spark"), lost
    assert "executors failed since it started" in lost, lost  # by itself, or its Java process ended with code 11
    assert "spark.executor.failuresValidityInterval" in lost
    assert right == "True"
