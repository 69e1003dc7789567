"""Checks whether a Spark session still works, and forgets a dead one so that a new one can start."""

from __future__ import annotations

import contextlib
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession


def is_alive(session: SparkSession) -> bool:
    """Whether a session can be used: it was not stopped, and its Java process still runs.

    A session of Spark Connect counts as alive until it is stopped, because its client reconnects automatically.
    """
    if not hasattr(session, "_jsparkSession"):
        return not getattr(session, "is_stopped", False)
    context: Any = session.sparkContext
    if context._jsc is None:  # `SparkContext.stop` sets it to None
        return False
    try:
        return not context._jsc.sc().isStopped()
    except Exception:  # raised by Py4J or the socket: the Java process is gone
        return False


def put_away(session: SparkSession) -> None:
    """Forget a dead session, so that the next call of `getOrCreate` starts a new Java process."""
    with contextlib.suppress(Exception):
        session.stop()
    holder: Any = SparkContext
    # The Java process outlives a stopped session; if it answers, the next session uses it.
    if not hasattr(session, "_jsparkSession") or _answers(holder):
        return
    active = holder._active_spark_context
    with contextlib.suppress(Exception):
        if active is not None and active._accumulatorServer is not None:
            active._accumulatorServer.shutdown()
    with contextlib.suppress(Exception):
        holder._gateway.shutdown()
    process = getattr(holder._gateway, "proc", None)
    if process is not None:
        with contextlib.suppress(Exception):
            # PySpark's Java process ends when its standard input is closed.
            process.stdin.close()
            process.wait(timeout=10)
    # PySpark starts a Java process only if `_gateway` is None, and `stop` does not reset it.
    holder._gateway = holder._jvm = holder._active_spark_context = None
    forgotten: Any = SparkSession
    forgotten._instantiatedSession = None


def _answers(holder: Any) -> bool:
    try:
        return holder._jvm is not None and holder._jvm.System.currentTimeMillis() > 0
    except Exception:
        return False
