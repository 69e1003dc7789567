"""Tests of folding on Spark, run once more on a Spark Connect server: a process of its own, on the loopback device.

A process has either a session of its own or one of a server, so that each file runs in another pytest.
"""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from conftest import REMOTE, ROOT

pytestmark = [pytest.mark.spark, pytest.mark.heavy]
_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
_STARTS_WITHIN = 120
_FILES = [
    "laws/test_the_law.py -k where_every_fold_runs_in_the_tasks_of_spark",
    # On a Connect server nothing is evaluated in this process, so "in this process" would repeat "by Spark".
    'laws/test_several_sources.py -k "corrects and not process and 0"',
    "contract/test_folds_on_spark.py",
    'contract/test_functions_of_spark.py -k "another_answer or adds_up"',
    "integration/test_spark_tasks.py",
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("connect")
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    settings = {
        "spark.master": "local[2]",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": (folder / "warehouse").as_uri(),
        "spark.sql.shuffle.partitions": "4",
    }
    confs = [one for name, value in settings.items() for one in ("--conf", f"{name}={value}")]
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--class", _SERVER, *confs]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
    try:
        _wait_for(port, process, folder / "server.log")
        yield f"sc://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    ends = time.monotonic() + _STARTS_WITHIN
    while time.monotonic() < ends:
        assert process.poll() is None, log.read_text(errors="replace")[-3000:]
        with socket.socket() as asked:
            if asked.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise AssertionError(f"no server on port {port}: {log.read_text(errors='replace')[-3000:]}")


@pytest.mark.parametrize("given", _FILES)
def test_what_holds_on_spark_holds_on_a_connect_server(server: str, given: str) -> None:
    file, *chosen = shlex.split(given)
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", f"tests/{file}"]
    command += chosen
    environment = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST_")}
    ran = subprocess.run(command, cwd=ROOT, env={**environment, REMOTE: server}, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout[-5000:] + ran.stderr[-2000:]
