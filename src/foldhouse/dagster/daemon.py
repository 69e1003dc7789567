"""Dagster's daemon, which starts what is launched within seconds: `python -m foldhouse.dagster.daemon run`.

Dagster's own looks for backfills every 30 seconds, and no setting changes that. It starts queued runs every 5 seconds,
and a `dagster.yaml` with `concurrency` cannot say otherwise. It takes the same options.
"""

from typing import Any

from dagster._daemon import cli, controller
from dagster._daemon.run_coordinator.queued_run_coordinator_daemon import QueuedRunCoordinatorDaemon

LOOK_SECONDS = 2
START_SECONDS = 1
_DAGSTERS = 5


class QuickStarts(QueuedRunCoordinatorDaemon):
    """Dagster's daemon of queued runs, which looks every `START_SECONDS` unless a `dagster.yaml` names another time."""

    def __init__(self, interval_seconds: int, **more: Any) -> None:
        super().__init__(START_SECONDS if interval_seconds == _DAGSTERS else interval_seconds, **more)


def look_often() -> None:
    """Have the daemon of this process look for launched backfills, and for queued runs, within seconds."""
    controller.DEFAULT_DAEMON_INTERVAL_SECONDS = LOOK_SECONDS
    setattr(controller, "QueuedRunCoordinatorDaemon", QuickStarts)  # noqa: B010  it is no public name


def main() -> None:
    """Run Dagster's daemon."""
    look_often()
    cli.main()


if __name__ == "__main__":
    main()
