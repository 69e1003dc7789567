"""Dagster's web server behind the guard: `python -m foldhouse.dagster.webserver`, instead of `dagster-webserver`.

It takes the same options. Further names of the server are in FOLDHOUSE_ALLOW_HOSTS, separated by commas.
"""

import os
from typing import Any

import dagster_webserver.cli as server
from dagster_webserver.webserver import DagsterWebserver
from starlette.middleware import Middleware

from foldhouse.dagster.guard import Guard
from foldhouse.dagster.latest_days import show_latest_days

ALLOWED = "FOLDHOUSE_ALLOW_HOSTS"


def main() -> None:
    """Serve Dagster's page, with the guard as the first to see a request."""
    unguarded = DagsterWebserver.build_middleware

    def build_middleware(self: DagsterWebserver[Any, Any]) -> list[Middleware]:
        hosts = os.environ.get(ALLOWED, "").split(",")
        # Starlette runs the first middleware first, so Dagster sees only accepted requests.
        return [Middleware(Guard, hosts=hosts), *unguarded(self)]

    show_latest_days()
    DagsterWebserver.build_middleware = build_middleware  # type: ignore[method-assign]
    server.main()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
