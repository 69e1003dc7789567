"""Dagster's daemon, which starts what is launched within seconds: `python -m foldhouse.dagster.daemon run`.

Dagster's own looks for backfills every 30 seconds, and no setting changes that. It starts queued runs every 5 seconds,
and a `dagster.yaml` with `concurrency` cannot say otherwise. It takes the same options. The code servers that it
starts, which start its runs, are those of `code_server`.
"""

import sys
from collections.abc import Sequence
from typing import Any

from dagster._daemon import cli, controller
from dagster._daemon.run_coordinator.queued_run_coordinator_daemon import QueuedRunCoordinatorDaemon
from dagster._grpc import server

from foldhouse.garbage import end_quickly

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


def start_own_code_servers() -> None:
    """Have this process start our code server where it would start Dagster's, in the same Python."""
    dagsters = server.get_python_environment_entry_point  # type: ignore[attr-defined]

    def entry_point(executable_path: str) -> Sequence[str]:
        if executable_path != sys.executable:  # another environment may have another foldhouse, or none
            return dagsters(executable_path)
        return [executable_path, "-m", "foldhouse.dagster.code_server"]

    setattr(server, "get_python_environment_entry_point", entry_point)  # noqa: B010  as above


def main() -> None:
    """Run Dagster's daemon."""
    end_quickly()
    look_often()
    start_own_code_servers()
    cli.main()


if __name__ == "__main__":
    main()
