"""Flink in one JVM beside Python, and one cluster in it for all jobs of a process."""

from __future__ import annotations

import json
import os
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyflink.common import Configuration
from pyflink.java_gateway import get_gateway
from pyflink.table import EnvironmentSettings, TableEnvironment

CORES = os.cpu_count() or 1
HEAP, MANAGED, NETWORK = "4g", "1g", f"{min(64 * CORES, 1024)}m"
_PATIENCE_SECONDS = 1800


class Cluster:
    """A local cluster with slots for the job that runs on, and for one that reads meanwhile.

    Left to itself PyFlink starts a cluster for every statement.
    """

    def __init__(self) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="foldhouse-bench-flink-", ignore_cleanup_errors=True)
        self.scratch = Path(self._temporary.name)
        self._jvm = _jvm(self.scratch)
        configuration = self._jvm.org.apache.flink.configuration.Configuration()
        settings = {
            "rest.address": "localhost",
            "rest.bind-port": "0",
            "web.refresh-interval": "50 ms",  # how old its answers may be, and its metrics
            "metrics.fetcher.update-interval": "50 ms",
            "taskmanager.memory.managed.size": MANAGED,  # what RocksDB keeps in memory
            "taskmanager.memory.network.min": NETWORK,
            "taskmanager.memory.network.max": NETWORK,
            "io.tmp.dirs": str(self.scratch),
            "web.upload.dir": str(self.scratch),
            "process.working-dir": str(self.scratch),
        }
        for name, value in settings.items():
            configuration.setString(name, value)
        package = self._jvm.org.apache.flink.runtime.minicluster
        builder = getattr(package, "MiniClusterConfiguration$Builder")().setConfiguration(configuration)
        self._cluster = package.MiniCluster(builder.setNumSlotsPerTaskManager(2 * CORES).build())
        self._cluster.start()
        self._address = self._cluster.getRestAddress().get()
        self._without_proxy = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def tables(self, mode: str, **settings: str) -> Any:
        """A table environment whose statements run on this cluster.

        Args:
            mode: `streaming` or `batch`.
            settings: further settings, with `__` for `.` and `_` for `-` in their names.
        """
        configuration = Configuration()
        ours = {
            "execution.target": "remote",
            "rest.address": self._address.getHost(),
            "rest.port": str(self._address.getPort()),
            "execution.runtime-mode": mode,
            "parallelism.default": str(CORES),
            "table.local-time-zone": "UTC",
        }
        given = {name.replace("__", ".").replace("_", "-"): value for name, value in settings.items()}
        for name, value in {**ours, **given}.items():
            configuration.set_string(name, value)
        return TableEnvironment.create(EnvironmentSettings.new_instance().with_configuration(configuration).build())

    def lasting(self, checkpoints: Path, **settings: str) -> Any:
        """A table environment for jobs that run on: their state in RocksDB, a checkpoint where one is asked for."""
        return self.tables(
            "streaming",
            state__backend__type="rocksdb",
            execution__checkpointing__incremental="true",
            execution__checkpointing__dir=checkpoints.as_uri(),
            execution__checkpointing__interval="24 h",  # none by the clock
            execution__checkpointing__externalized_checkpoint_retention="RETAIN_ON_CANCELLATION",
            execution__state_recovery__claim_mode="CLAIM",
            restart_strategy__type="disable",
            **settings,
        )

    def started(self, tables: Any, statement: str) -> str:
        """Start a job that runs on, and wait until all its tasks do; its id."""
        job = str(tables.execute_sql(statement).get_job_client().get_job_id())
        wait("all tasks run", lambda: self.runs(job))
        return job

    def read_by(self, job: str) -> int:
        """How many rows the sources of a job have handed on, since it was started."""
        sources = [task for task in self.told(job)["vertices"] if task["name"].startswith("Source:")]
        return sum(int(task["metrics"]["write-records"]) for task in sources)

    def told(self, job: str) -> dict[str, Any]:
        """What the cluster's REST interface tells of a job: its state, what each of its tasks has read and written.

        Raises:
            RuntimeError: the job does not run any more; with what it failed of.
        """
        found = self._get(f"/jobs/{job}")
        if found["state"] in ("FAILING", "FAILED", "CANCELED", "FINISHED"):
            why = self._get(f"/jobs/{job}/exceptions").get("root-exception")
            raise RuntimeError(f"Flink's job is {found['state']}: {why}")
        return found

    def runs(self, job: str) -> bool:
        """Whether all tasks of a job do; before that it takes no checkpoints."""
        return all(task["tasks"]["RUNNING"] == task["parallelism"] for task in self.told(job)["vertices"])

    def _get(self, path: str) -> dict[str, Any]:
        with self._without_proxy.open(f"{self._address.toString()}{path}", timeout=60) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def checkpoint(self, job: str) -> int:
        """Take a checkpoint of a job now, and wait for it; its number."""
        kind = self._jvm.org.apache.flink.core.execution.CheckpointType.CONFIGURED
        return int(self._cluster.triggerCheckpoint(self._id(job), kind).get())

    def cancel(self, job: str) -> None:
        self._cluster.cancelJob(self._id(job)).get()

    def _id(self, job: str) -> Any:
        return self._jvm.org.apache.flink.api.common.JobID.fromHexString(job)

    def close(self) -> None:
        self._cluster.close()
        self._temporary.cleanup()


def name_catalog(tables: Any, warehouse: Path) -> None:
    """Give a table environment the Iceberg tables of a folder, as `lake`."""
    tables.execute_sql(
        "CREATE CATALOG lake WITH ('type' = 'iceberg', 'catalog-type' = 'hadoop', "
        f"'warehouse' = '{warehouse.as_uri()}', 'cache-enabled' = 'false')"
    )


def folder_source(columns: str, folder: Path) -> str:
    """The rest of a statement that creates a table of all CSV files that a folder has or will have."""
    return (
        f"({columns}) WITH ('connector' = 'filesystem', 'path' = '{folder.as_uri()}', 'format' = 'csv', "
        "'source.monitor-interval' = '50 ms')"
    )


def last_committed(table: Path) -> int:
    """The last checkpoint that Iceberg's sink committed, as the newest metadata of a table say; -1 without one."""
    versions = (table / "metadata").glob("v*.metadata.json")  # renamed to that name when whole
    newest = max(versions, key=lambda path: int(path.name[1:].partition(".")[0]))
    told = json.loads(newest.read_text())
    now = [one for one in told["snapshots"] if one["snapshot-id"] == told["current-snapshot-id"]]
    return int(now[0]["summary"]["flink.max-committed-checkpoint-id"]) if now else -1


def wait(what: str, come: Callable[[], bool]) -> None:
    """Ask until it has come: often at first, then after each twentieth of the time waited, as asking costs too."""
    began = time.monotonic()
    while not come():
        waited = time.monotonic() - began
        if waited > _PATIENCE_SECONDS:
            raise RuntimeError(f"waited {_PATIENCE_SECONDS} s in vain: {what}")
        time.sleep(min(0.5, max(0.02, waited / 20)))


def _jvm(scratch: Path) -> Any:
    """Start the JVM, with the jars of `jars-flink.txt` and nothing printed but errors, into a file."""
    quiet = scratch / "log4j2.properties"
    quiet.write_text(
        "rootLogger.level = error\nrootLogger.appenderRef.file.ref = file\n"
        f"appender.file.type = File\nappender.file.name = file\nappender.file.fileName = {scratch / 'flink.log'}\n"
        "appender.file.layout.type = PatternLayout\nappender.file.layout.pattern = %d %p %c %m%n\n"
    )
    os.environ["LOG4J_PROPERTIES"] = str(quiet)
    os.environ["FLINK_LOG_DIR"] = str(scratch)
    os.environ["JVM_ARGS"] = f"-Xmx{HEAP}"
    os.environ["HADOOP_CLASSPATH"] = os.environ["FOLDHOUSE_BENCH_FLINK_JARS"].replace(",", os.pathsep)
    return get_gateway().jvm
