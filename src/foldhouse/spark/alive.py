"""Checks whether a Spark session still works, and forgets a dead one so that a new one can start."""

from __future__ import annotations

import contextlib
import gc
import socket
import time
from typing import Any, cast
from urllib.parse import urlsplit

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.udf import UserDefinedFunction

_PORT = 15002
"""The port of a Connect server whose address contains none."""
_PATIENCE_SECONDS = 20
_RETRIES = 5
_STOPS_WITHIN_SECONDS = 10


def is_alive(session: SparkSession) -> bool:
    """Whether a session can be used: it was not stopped, and its Java process still runs.

    A session of Spark Connect is asked: a server that was started again does not know it any more.
    """
    if not hasattr(session, "_jsparkSession"):
        return _is_known(session)
    context: Any = session.sparkContext
    if context._jsc is None:  # `SparkContext.stop` sets it to None
        return False
    try:
        return not context._jsc.sc().isStopped()
    except Exception:  # raised by Py4J or the socket: the Java process is gone
        return False


def _is_known(session: Any) -> bool:
    """Whether a session's Connect server runs and still has the session."""
    if session.is_stopped or not answers(f"sc://{session.client._builder.endpoint}"):
        return False
    try:
        session.conf.get("spark.sql.session.timeZone")
    except Exception:  # raised by gRPC or Spark: the server ended, or was started again
        return False
    return True


def answers(remote: str) -> bool:
    """Whether something listens at the address of a Connect server, `sc://host:port`."""
    address = urlsplit(remote)
    try:
        with socket.create_connection((address.hostname or "", address.port or _PORT), _PATIENCE_SECONDS):
            return True
    except OSError:
        return False


def with_few_retries(session: Any) -> None:
    """Have a Connect session give up after some 20 seconds without an answer; by default Spark waits ten minutes."""
    from pyspark.sql.connect.client.retries import DefaultPolicy

    session.client.set_retry_policies([DefaultPolicy(max_retries=_RETRIES)])


def put_away(session: SparkSession) -> None:
    """Forget a dead session, so that the next call of `getOrCreate` starts a new one."""
    with contextlib.suppress(Exception):
        asked: Any = session
        asked.client.set_retry_policies([])  # a session of Connect releases itself on its server, which may have ended
        asked.client._release_futures.clear()  # it waits ten seconds for what it still has to tell that server
    with contextlib.suppress(Exception):
        session.stop()
    holder: Any = SparkContext
    # The Java process outlives a stopped session; if it can be used, the next session uses it.
    if not hasattr(session, "_jsparkSession") or _is_usable(holder):
        return
    _forget_java(holder)


def _forget_java(holder: Any) -> None:
    """Have PySpark start another Java process; what is left of the last one is ended."""
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
    _forget_functions()


def put_away_dead() -> None:
    """Forget the session of this process if its Java process ended, whoever started and used it."""
    holder, sessions = cast(Any, SparkContext), cast(Any, SparkSession)
    process = getattr(holder._gateway, "proc", None)
    if process is None or process.poll() is None:
        return
    if sessions._instantiatedSession is not None:
        put_away(sessions._instantiatedSession)
    else:  # it was stopped before
        _forget_java(holder)


def _forget_functions() -> None:
    """Have Python functions of Spark be declared again in the next Java process; PySpark keeps what the last one made.

    A function that is declared in a module, once for all sessions, could otherwise not be used again.
    """
    for one in gc.get_objects():
        if isinstance(one, UserDefinedFunction):
            function: Any = one
            function._judf_placeholder = None


def _is_usable(holder: Any) -> bool:
    """Whether the Java process answers and can start a session.

    A context that Spark stopped by itself, from a thread that it waits for, is in the way for as long as it waits.
    """
    ends = time.monotonic() + _STOPS_WITHIN_SECONDS
    try:
        while (
            active := holder._jvm.org.apache.spark.SparkContext.getActive()
        ).isDefined() and active.get().isStopped():
            if time.monotonic() > ends:
                return False
            time.sleep(_STOPS_WITHIN_SECONDS / 50)
        return True
    except Exception:  # raised by Py4J or the socket, or there is no process
        return False
