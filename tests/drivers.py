"""Drivers of a cluster, as a deployment configures them, and the law run by one while parts are killed."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import time
from collections.abc import Mapping
from pathlib import Path

from conftest import REMOTE, ROOT
from killing import SEED, Killer

_DEFAULTS = """
spark.executor.memory 600m
spark.executor.cores 1
spark.sql.shuffle.partitions 4
spark.ui.enabled false
"""


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


def driver(master: str, folder: Path, python: str, others: Mapping[str, str], defaults: str = "") -> dict[str, str]:
    """Return the environment of a driver whose executors run a Python.

    Args:
        master: the address of the cluster.
        folder: a new folder, for Spark's configuration.
        python: the Python of the executors.
        others: further variables.
        defaults: further lines of `spark-defaults.conf`.
    """
    folder.mkdir(exist_ok=True)
    (folder / "spark-defaults.conf").write_text(_DEFAULTS + defaults)
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("PYTEST_", "SPARK_"))}
    ours = {REMOTE: master, "FOLDHOUSE_SPARK_DRIVER_HOST": "127.0.0.1", "PYSPARK_PYTHON": python}
    return {**kept, **others, **ours, "SPARK_CONF_DIR": str(folder), "SPARK_LOCAL_IP": "127.0.0.1"}


def law_in_tasks(environment: Mapping[str, str], killer: Killer) -> str:
    """Run the law with all folds in Spark's tasks while parts are killed; return what was killed, in how long."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "tests/laws/test_the_law.py"]
    command += ["-k", "where_every_fold_runs_in_the_tasks_of_spark", "--durations=5"]
    given = {**environment, "FOLDHOUSE_LAW_SEED": "0"}
    killer.start()
    began = time.monotonic()
    ran = subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True)
    killer.stop()
    said = f"kills {killer.killed} of seed {SEED}, {time.monotonic() - began:.0f} s\n"
    print(said)
    assert ran.returncode == 0, said + ran.stdout[-6000:] + ran.stderr[-2000:]
    assert not killer.failed
    return said
