"""A local Spark session as Spark's own documentation has it: every core, adaptive execution, memory for the driver."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession


def session(**settings: str) -> SparkSession:
    """Start it. In `local` mode the driver does all the work, so it gets the memory that executors would.

    Args:
        settings: further settings, with `__` for `.` in their names.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    folder = tempfile.mkdtemp(prefix="foldhouse-bench-warehouse-")
    quiet = Path(folder) / "log4j2.properties"
    quiet.write_text(
        "rootLogger.level = error\nrootLogger.appenderRef.stderr.ref = console\n"
        "appender.console.type = Console\nappender.console.name = console\n"
        "appender.console.target = SYSTEM_ERR\nappender.console.layout.type = PatternLayout\n"
    )
    ours = {
        "spark.driver.memory": "6g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={quiet.as_uri()}",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
        "spark.sql.warehouse.dir": folder,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[*]").appName("benchmark")
    for name, value in {**ours, **{name.replace("__", "."): value for name, value in settings.items()}}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
