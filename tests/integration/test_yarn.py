"""Spark on YARN: Hadoop's own resource manager and two node managers, with the executors in their containers.

As on the standalone cluster, the executors' Python lacks foldhouse, and executors and Python workers are killed while
the law runs. The lake is in a folder that all containers can reach.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from catalog_servers import Missing
from drivers import driver, law_in_tasks, python_without
from killing import Killer
from yarn_server import Yarn, yarn

pytestmark = [pytest.mark.spark, pytest.mark.heavy, pytest.mark.served]
KILLS = 4


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yarn]:
    try:
        with yarn(tmp_path_factory.mktemp("hadoop") / "yarn") as found:
            yield found
    except Missing as missing:
        pytest.skip(str(missing))


def test_the_law_holds_on_yarn_while_executors_and_python_workers_are_killed(running: Yarn, tmp_path: Path) -> None:
    containers = f"""
spark.executor.instances 2
spark.executor.memoryOverhead 600m
spark.yarn.am.memory 512m
spark.yarn.stagingDir {tmp_path.as_uri()}
"""
    hadoop = {"HADOOP_CONF_DIR": str(running.configuration)}
    environment = driver("yarn", tmp_path / "driver", python_without(tmp_path / "there"), hadoop, containers)
    killer = Killer(lambda: [running.process], KILLS, {})
    said = law_in_tasks(environment, killer)
    assert len(killer.killed) == 2, said
