"""The Java process of a Spark session that this process drives: its folder, its log, and how it ended."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import re
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

from foldhouse.storage.private import private_folder

_LOG = "spark.log"
_SHOWN_LINES = 5
_WARNINGS = 2
_WARNING = re.compile(r"[\d-]+ [\d:]+ (?:WARN|ERROR) (.*?)(?: Received status: .*)?$")
"""Without what the client of Kubernetes appends to a message: the same again, as the object that arrived."""
_TOO_MANY = re.compile(r"Max number of executor failures \((\d+)\) reached")
_OUT_OF_HEAP = (3, 52)  # that of `ExitOnOutOfMemoryError`, and `SparkExitCode.OOM`
_TOO_MANY_FAILED = 11  # `SparkExitCode.EXCEED_MAX_EXECUTOR_FAILURES`
_ENDS_WITHIN_SECONDS = 2  # a process that dies closes its sockets before it can be waited for


def folder_of_spark() -> Path:
    """Return this process's folder for Spark's files, removed when the process ends; a forked process has its own."""
    return _own_folder(os.getpid())


@functools.cache
def _own_folder(process: int) -> Path:
    kept = contextlib.ExitStack()
    folder = kept.enter_context(private_folder())

    def remove() -> None:
        if os.getpid() == process:  # a fork inherits this exit handler, but not the folder
            kept.close()

    atexit.register(remove)
    return folder


def start_java(settings: Mapping[str, str]) -> None:
    """Start the Java process of this process, unless it has one.

    What Java prints before log4j is set up goes to its log. Only Java gets that file, because other threads may write
    to standard error meanwhile.

    Args:
        settings: of the Spark session that is to start in it.
    """
    with SparkContext._lock:
        if SparkContext._gateway is not None:
            return
        conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
        with (folder_of_spark() / _LOG).open("ab") as file:
            gateway = launch_gateway(conf, {"stderr": file})
        SparkContext._ensure_initialized(gateway=gateway)


def last_of_its_log() -> str:
    """Return the last lines of the log on one line."""
    log = folder_of_spark() / _LOG
    lines = log.read_text(errors="replace").splitlines()[-_SHOWN_LINES:] if log.exists() else []
    return " | ".join(line.strip() for line in lines if line.strip()) or "nothing"


def last_warnings_of_its_log() -> str:
    """Return the last two warnings or errors in the log that differ, on one line; empty if there is none."""
    log = folder_of_spark() / _LOG
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    said = dict.fromkeys(found[1].strip() for line in reversed(lines) if (found := _WARNING.match(line)))
    return " | ".join(reversed(list(said)[:_WARNINGS]))


def has_stopped_itself() -> bool:
    """Whether Spark stopped the context of this process, and its Java process runs."""
    context: Any = SparkContext._active_spark_context  # None once this process stopped it
    try:
        return context is not None and bool(context._jsc.sc().isStopped())
    except Exception:  # raised by Py4J or the socket: the Java process ended
        return False


def why_spark_stopped() -> str:
    """Return why Spark stopped by itself while its Java process runs, as the end of a sentence; nothing if unknown."""
    found = _TOO_MANY.search(last_warnings_of_its_log()) if has_stopped_itself() else None
    if found is None:
        return ""
    return (
        f"Spark stopped itself because more than {found[1]} executors failed since it started; set "
        "spark.executor.failuresValidityInterval, such as 1h, so that old failures do not count"
    )


def how_java_ended(within_seconds: float = _ENDS_WITHIN_SECONDS) -> str:
    """Return how the Java process ended, as the end of a sentence; nothing if it runs, or if this process has none.

    Spark's Java process was killed (SIGKILL), most often because the memory of the machine ran out
    """
    process = getattr(SparkContext._gateway, "proc", None)
    if not isinstance(process, subprocess.Popen):
        return ""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(within_seconds)
    if process.returncode is None:
        return ""
    return f"Spark's Java process {_reason(process.returncode)}; the last lines of its log: {last_of_its_log()}"


def end_java(within_seconds: float) -> int:
    """End the Java process of this process, after its session was stopped, and return its exit code.

    Raises:
        subprocess.TimeoutExpired: it did not end in time.
    """
    gateway = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    assert gateway is not None
    assert isinstance(process, subprocess.Popen)
    gateway.shutdown()
    assert process.stdin is not None
    process.stdin.close()  # its signal to end
    return process.wait(within_seconds)


def _reason(code: int) -> str:
    if code == -signal.SIGKILL:
        return "was killed (SIGKILL), most often because the memory of the machine ran out"
    if code < 0:
        return f"was ended by signal {-code} ({signal.Signals(-code).name})"
    if code in _OUT_OF_HEAP:
        return f"ended with code {code}: it ran out of heap; set spark.driver.memory higher"
    if code == _TOO_MANY_FAILED:
        return (
            f"ended with code {code}: too many executors failed since it started; set "
            "spark.executor.failuresValidityInterval, such as 1h, so that old failures do not count"
        )
    return f"ended with code {code}"
