"""Dagster's code server for a deployment: `python -m foldhouse.dagster.code_server`, instead of `dagster api grpc`.

It takes the same options. Dagster's own server stops looking after its runs at the first error of the look, such as a
Postgres that restarts: a run whose process dies later would stay STARTED. This one looks again a second later.
"""

from __future__ import annotations

import logging
import sys

from dagster._cli.api import grpc_command
from dagster._grpc.server import DagsterApiServer

_LOG = logging.getLogger("foldhouse")


def main() -> None:
    """Serve a code location until the process is stopped."""
    look = DagsterApiServer._check_for_orphaned_runs

    def look_again(self: DagsterApiServer) -> None:
        try:
            look(self)
        except Exception as failure:  # of the database; what was not reported is looked at again
            kind, reason = type(failure).__name__, " ".join(str(failure).split())[:200]
            _LOG.warning("Dagster's database cannot be used for now: %s: %s", kind, reason)

    DagsterApiServer._check_for_orphaned_runs = look_again  # type: ignore[method-assign]
    grpc_command.main(args=sys.argv[1:], prog_name="foldhouse code server")


if __name__ == "__main__":
    main()
