import logging
import threading
import types

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


def test_a_queued_run_is_started_within_a_second_unless_a_file_asks_for_another_time(monkeypatch):
    monkeypatch.setattr(controller, "DEFAULT_DAEMON_INTERVAL_SECONDS", 30)
    monkeypatch.setattr(controller, "QueuedRunCoordinatorDaemon", controller.QueuedRunCoordinatorDaemon)
    daemon.look_often()
    kind, made = controller.QueuedRunCoordinatorDaemon.daemon_type(), {}
    for asked in (5, 20):
        coordinator = types.SimpleNamespace(dequeue_interval_seconds=asked)
        made[asked] = controller.create_daemon_of_type(kind, types.SimpleNamespace(run_coordinator=coordinator))
    assert {asked: one.interval_seconds for asked, one in made.items()} == {5: 1, 20: 20}


def test_a_launched_backfill_is_seen_within_seconds(monkeypatch):
    monkeypatch.setattr(controller, "DEFAULT_DAEMON_INTERVAL_SECONDS", 30)
    daemon.look_often()
    waits = Waits()
    with dg.DagsterInstance.ephemeral() as instance:
        looks = execute_backfill_iteration_loop(Workspace(instance), logging.getLogger("test"), waits)
        while not waits.seconds:
            next(looks)
    assert 0 < waits.seconds[0] <= daemon.LOOK_SECONDS
