"""The thread's active session, whose settings apply where Spark prints a plan, such as the time zone of literals."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession


def make_active(session: SparkSession) -> None:
    """Make a session the active one of this thread, as for the thread that started it; one of Connect needs nothing."""
    if hasattr(session, "_jsparkSession"):
        sessions: Any = session._jvm.org.apache.spark.sql.classic.SparkSession  # type: ignore[union-attr]
        sessions.setActiveSession(session._jsparkSession)


@contextlib.contextmanager
def as_active(session: SparkSession, copy: Any = None) -> Iterator[None]:
    """Make a classic session the active one of this thread meanwhile; the logic of a user may have left another.

    Args:
        session: the session.
        copy: a copy of it to make active in its place, as a JVM's object; see `foldhouse.spark.copies`.
    """
    sessions: Any = session._jvm.org.apache.spark.sql.classic.SparkSession  # type: ignore[union-attr]
    active = sessions.getActiveSession()
    sessions.setActiveSession(session._jsparkSession if copy is None else copy)
    try:
        yield
    finally:
        if active.isDefined():
            sessions.setActiveSession(active.get())
        else:
            sessions.clearActiveSession()
