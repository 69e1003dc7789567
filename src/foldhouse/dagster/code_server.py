"""Dagster's code server: `python -m foldhouse.dagster.code_server`, instead of `dagster api grpc`.

It takes the same options. Its runs begin seconds earlier, see `waiting`. Dagster's own server stops looking after its
runs at the first error of the look, such as a Postgres that restarts: a run whose process dies later would stay
STARTED. This one looks again a second later.
"""

from __future__ import annotations

import functools
import logging
import sys
from typing import Any

from dagster import _cli as cli
from dagster._cli.api import grpc_command
from dagster._grpc.server import DagsterApiServer

from foldhouse.dagster.waiting import WaitingProcesses
from foldhouse.garbage import end_quickly

_LOG = logging.getLogger("foldhouse")


def main() -> None:
    """Serve a code location until the process is stopped."""
    if sys.argv[1:2] == ["code-server"]:  # Dagster's other kind of server, which this is not
        cli.main()  # type: ignore[no-untyped-call]
        return
    end_quickly()
    _start_runs_by_waiting_processes()
    look = DagsterApiServer._check_for_orphaned_runs

    def look_again(self: DagsterApiServer) -> None:
        try:
            look(self)
        except Exception as failure:  # of the database; what was not reported is looked at again
            kind, reason = type(failure).__name__, " ".join(str(failure).split())[:200]
            _LOG.warning("Dagster's database cannot be used for now: %s: %s", kind, reason)

    DagsterApiServer._check_for_orphaned_runs = look_again  # type: ignore[method-assign]
    # `dagster` starts a server with these words, see `daemon`.
    words = sys.argv[3:] if sys.argv[1:3] == ["api", "grpc"] else sys.argv[1:]
    grpc_command.main(args=words, prog_name="foldhouse code server")


def _start_runs_by_waiting_processes() -> None:
    made = DagsterApiServer.__init__

    @functools.wraps(made)
    def make(self: DagsterApiServer, *args: Any, **named: Any) -> None:
        made(self, *args, **named)
        processes = WaitingProcesses()
        self._mp_ctx = processes  # type: ignore[assignment]
        processes.begin()

    DagsterApiServer.__init__ = make  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
