"""Warns while the jobs of a session wait for executors: Spark waits for them without a limit, and only logs it."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any
from weakref import WeakSet

from pyspark import SparkContext
from pyspark.sql import SparkSession

from foldhouse.errors import CannotStart
from foldhouse.spark.process import last_warnings_of_its_log
from foldhouse.storage.secrets import cut

FIRST_SECONDS = 30
"""How long jobs wait until the first warning. Each later one comes after twice the time of the one before it."""
_ASKED_EVERY_SECONDS = 2
_IMAGES = ("spark.kubernetes.executor.container.image", "spark.kubernetes.container.image")
_LOG = logging.getLogger("foldhouse.spark")
_WATCHED: WeakSet[SparkContext] = WeakSet()


def warn_of_waiting(session: SparkSession) -> None:
    """Warn, as long as a session of a cluster runs, of jobs that no executor works on."""
    context = session.sparkContext
    if context not in _WATCHED:
        _WATCHED.add(context)
        threading.Thread(target=_warn, args=(context,), name="foldhouse-waiting", daemon=True).start()


def refuse_no_image(session: SparkSession) -> None:
    """Refuse a session of Kubernetes without an image: Spark would try to start executors again and again.

    Raises:
        CannotStart: the executors have no image.
    """
    context = session.sparkContext
    given = context.getConf()
    if str(context.master).startswith("k8s://") and not any(given.get(name, "") for name in _IMAGES):
        session.stop()
        raise CannotStart(
            f"Spark's executors have no container image, with the master {context.master}. Set {_IMAGES[1]} in "
            "spark-defaults.conf in $SPARK_CONF_DIR, to an image of Spark with the packages that folding needs"
        )


def _warn(context: Any) -> None:
    began, patience = time.monotonic(), FIRST_SECONDS
    while True:
        time.sleep(_ASKED_EVERY_SECONDS)
        try:
            if not _waits(context._jsc.sc()):
                began, patience = time.monotonic(), FIRST_SECONDS
            elif time.monotonic() - began >= patience:
                _LOG.warning("%s", _what_is_known(context, patience))
                patience *= 2
        except Exception:  # the session was stopped, or its Java process ended: jobs fail, and say so
            return


def _waits(context: Any) -> bool:
    """Whether a Java context has jobs and no executor; the driver is among those that have memory."""
    if context.isStopped():
        raise RuntimeError("stopped")
    return bool(len(context.statusTracker().getActiveJobIds())) and context.getExecutorMemoryStatus().size() <= 1


def _what_is_known(context: Any, seconds: int) -> str:
    application = context.applicationId
    look = "See the pages or logs of the cluster"
    if context.master.startswith("k8s://"):
        namespace = context.getConf().get("spark.kubernetes.namespace", "default")
        look = f"`kubectl describe pods --namespace {namespace} --selector spark-app-selector={application}` says why"
    elif context.master == "yarn":
        look = f"`yarn application -status {application}` says why"
    said = last_warnings_of_its_log()
    return (
        f"Spark has no executor at {context.master}. Its jobs have waited for {seconds} s, and go on when one starts. "
        f"{look}{f'. Spark logged: {cut(said)}' if said else ''}"
    )
