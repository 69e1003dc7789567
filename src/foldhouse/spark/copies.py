"""Copies of a session with further settings, which nobody else has: a setting of a session is one for all its users."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.sql import DataFrame, SparkSession

from foldhouse.spark.session import all_settings

_Further = tuple[tuple[str, str], ...]
_COPIES: WeakKeyDictionary[SparkSession, tuple[dict[str, str], dict[_Further, Any]]] = WeakKeyDictionary()
"""A session -> its settings when it was copied last, and its copies by their further settings."""


def copy_of(session: SparkSession, further: Mapping[str, str]) -> Any:
    """Return a copy of a classic session, as a JVM's object; an earlier one, if no setting changed since.

    Args:
        session: a classic session.
        further: the settings that only the copy has.
    """
    settings, label = all_settings(session), tuple(sorted(further.items()))
    of_before, copies = _COPIES.get(session, (None, {}))
    if settings != of_before:
        copies = {}
        _COPIES[session] = settings, copies
    if label not in copies:
        java: Any = session._jsparkSession
        made = java.cloneSession()
        for name, value in label:
            made.conf().set(name, value)
        copies[label] = made  # only now: another thread may take it at once
    return copies[label]


def planned_with(rows: DataFrame, further: Mapping[str, str]) -> DataFrame:
    """Return the same rows, computed with further settings; they were analysed with those of their session.

    Args:
        rows: of a classic session.
        further: the settings.
    """
    session, java = rows.sparkSession, rows._jdf
    dataset: Any = session._jvm.org.apache.spark.sql.classic.Dataset  # type: ignore[union-attr]
    copied = dataset.ofRows(copy_of(session, further), java.queryExecution().analyzed())
    return DataFrame(copied, session)
