"""Starts the Spark session of a lake, and says before that on what the session's settings depend.

A process that needs no Spark starts none, but has to know that a session would read a declaration as an earlier process
did. So everything that Spark's settings come from is told here, or it is not known.
"""

from __future__ import annotations

import decimal
import json
import locale
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyspark
from pyspark import SparkContext
from pyspark.sql import SparkSession

from foldhouse.spark.session import all_settings, master_of, session_of

_OF_NO_PLAN = frozenset(
    {
        "PYSPARK_PYTHON",
        "PYSPARK_DRIVER_PYTHON",
        "PYSPARK_GATEWAY_PORT",
        "PYSPARK_GATEWAY_SECRET",
        "SPARK_AUTH_SOCKET_TIMEOUT",
        "SPARK_BUFFER_SIZE",
        "SPARK_LOCAL_DIRS",
        "SPARK_LOCAL_IP",
        "SPARK_PUBLIC_DNS",
    }
)
"""Variables that no plan depends on; some are set by a session, for this process and those that it starts."""
_UNKNOWN = frozenset({"PYSPARK_SUBMIT_ARGS", "SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED"})
"""Variables by which Spark, or its settings, are somewhere else."""
_BEGIN = ("SPARK_", "PYSPARK_", "JAVA_TOOL_", "_JAVA_", "JDK_JAVA_")
_SETTINGS, _PROGRAM = "spark-defaults.conf", "spark-env.sh"
_MONTHS = range(0, 70 * 12)
_begun: list[tuple[SparkContext, Mapping[str, str], str]] = []
"""The last context that a lake of this process started, its settings then, and what they were promised by."""


@dataclass(frozen=True)
class Starter:
    """Returns the Spark session of a master, as `foldhouse.spark.session.session_of` does.

    Args:
        master: see `session_of`.
        driver_host: see `session_of`.
    """

    master: str = field(default="", repr=False)  # the address of a Connect server may contain a token
    driver_host: str = ""

    def __call__(self) -> SparkSession:
        """Start the session, or return the running one."""
        was_running, before = is_running(), promised(self)
        session = session_of(self.master, self.driver_host)
        if not was_running and hasattr(session, "_jsparkSession"):
            _begun[:] = [(session.sparkContext, dict(all_settings(session)), before)]
        return session


def is_running() -> bool:
    """Whether this process has a session, or a Java process of an earlier one, which keeps the settings of that one."""
    return SparkContext._gateway is not None or SparkSession.getActiveSession() is not None


def is_as_begun(session: SparkSession, promise: str) -> bool:
    """Whether a lake of this process started a session under a promise, and its settings are those of its start."""
    return any(
        session.sparkContext is context and all_settings(session) == settings and before == promise
        for context, settings, before in _begun
    )


def promised(starter: object) -> str:
    """Return what decides how a session that is not started yet reads declarations; empty if that is not known.

    It is not known of the session that other code makes, of a server of Spark Connect, and of a Spark that is not the
    one of the installed package.
    """
    if not isinstance(starter, Starter) or master_of(starter.master).startswith("sc://"):
        return ""
    package = Path(pyspark.__file__).parent
    if _UNKNOWN & os.environ.keys() or Path(os.environ.get("SPARK_HOME") or package).resolve() != package.resolve():
        return ""
    given = {name: value for name, value in os.environ.items() if name.startswith(_BEGIN) and name not in _OF_NO_PLAN}
    folder = Path(os.environ.get("SPARK_CONF_DIR") or package / "conf")
    try:
        settings = (folder / _SETTINGS).read_text() if (folder / _SETTINGS).exists() else ""
        is_program = (folder / _PROGRAM).exists()
    except (OSError, ValueError):
        return ""
    if is_program:  # it may set whatever it likes
        return ""
    # Python makes a literal of a time without a zone in that of the process.
    zone = [os.environ.get("TZ"), time.tzname, [time.localtime(month * 30.5 * 86_400).tm_gmtoff for month in _MONTHS]]
    numbers = [decimal.getcontext().prec, decimal.getcontext().rounding, locale.setlocale(locale.LC_ALL)]
    versions = [pyspark.__version__, sys.version_info[:3], sys.flags.optimize]
    return json.dumps([versions, given, str(folder), settings, zone, numbers], sort_keys=True)
