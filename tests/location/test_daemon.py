import logging
import threading

import dagster as dg
from dagster._daemon import controller
from dagster._daemon.backfill import execute_backfill_iteration_loop

from foldhouse.dagster import daemon


class Waits(threading.Event):
    """An event that notes how long somebody waits for it, and is over at once."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds.append(timeout or 0.0)
        return False


class Workspace:
    def __init__(self, instance: dg.DagsterInstance) -> None:
        self.instance = instance


def test_a_launched_backfill_is_seen_within_seconds(monkeypatch):
    monkeypatch.setattr(controller, "DEFAULT_DAEMON_INTERVAL_SECONDS", 30)
    daemon.look_often()
    waits = Waits()
    with dg.DagsterInstance.ephemeral() as instance:
        looks = execute_backfill_iteration_loop(Workspace(instance), logging.getLogger("test"), waits)
        while not waits.seconds:
            next(looks)
    assert 0 < waits.seconds[0] <= daemon.LOOK_SECONDS
