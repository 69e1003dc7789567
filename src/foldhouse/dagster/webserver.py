"""Dagster's web server behind the guard: `python -m foldhouse.dagster.webserver`, instead of `dagster-webserver`.

It takes the same options. Further names of the server are in FOLDHOUSE_ALLOW_HOSTS, separated by commas.
"""

import os
from pathlib import Path
from typing import Any

from foldhouse.garbage import end_quickly, importing

with importing():
    import dagster_webserver.cli as server
    from dagster_webserver.webserver import DagsterWebserver
    from starlette.middleware import Middleware
    from starlette.responses import PlainTextResponse
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from foldhouse.dagster.guard import Guard
    from foldhouse.dagster.latest_days import show_latest_days
    from foldhouse.dagster.records import explained

ALLOWED = "FOLDHOUSE_ALLOW_HOSTS"
_INSUFFICIENT_STORAGE = 507


class NamingTheDisk:
    """Answers a request with the folder and the disk that are full, instead of "Internal Server Error".

    Args:
        app: what answers requests.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        has_begun = False

        async def noted(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except Exception as failure:
            said = explained(Path(os.environ.get("DAGSTER_HOME", ".")), failure)
            if said is None or has_begun or scope["type"] != "http":
                raise
            await PlainTextResponse(f"{said}\n", status_code=_INSUFFICIENT_STORAGE)(scope, receive, send)


def main() -> None:
    """Serve Dagster's page, with the guard as the first to see a request."""
    end_quickly()
    unguarded = DagsterWebserver.build_middleware

    def build_middleware(self: DagsterWebserver[Any, Any]) -> list[Middleware]:
        hosts = os.environ.get(ALLOWED, "").split(",")
        # Starlette runs the first middleware first, so Dagster sees only accepted requests.
        return [Middleware(Guard, hosts=hosts), Middleware(NamingTheDisk), *unguarded(self)]

    show_latest_days()
    DagsterWebserver.build_middleware = build_middleware  # type: ignore[method-assign]
    server.main()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
