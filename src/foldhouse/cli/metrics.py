"""The command that prints the state of every table as OpenMetrics, writes it into a file, or serves it."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import click

import foldhouse
from foldhouse.cli.lakes import lake_option, opened
from foldhouse.cli.numbers import FiniteRange
from foldhouse.cli.output import json_option, print_rows
from foldhouse.errors import CannotStart, InvalidCall
from foldhouse.health.metrics import CONTENT_TYPE, Family, families, text_of

_LOOPBACK = "127.0.0.1"
_OURS = ("127.0.0.1", "localhost", "[::1]")


@click.command()
@click.option("--runs", "with_runs", is_flag=True, help="Also Dagster's runs by job and status, from $DAGSTER_HOME.")
@click.option(
    "--file", "into", type=click.Path(path_type=Path, dir_okay=False), help="Write into a file, as a whole or not."
)
@click.option("--every", type=FiniteRange(1, 86_400), metavar="SECONDS", help="With --file: write again, until Ctrl-C.")
@click.option("--port", type=click.IntRange(0, 65_535), help="Serve http://127.0.0.1:PORT/metrics, until Ctrl-C.")
@click.option("--host", default=_LOOPBACK, show_default=True, help="The address to serve on; there is no login.")
@click.option("--allow-host", "hosts", multiple=True, metavar="NAME", help="A further name of the server; repeatable.")
@lake_option
@json_option
def metrics(
    with_runs: bool,
    into: Path | None,
    every: float | None,
    port: int | None,
    host: str,
    hosts: tuple[str, ...],
    folder: Path,
    as_json: bool,
) -> None:
    """Print how every table is as OpenMetrics, for Prometheus and its like, or serve that.

    Per table: rows, files, snapshots, the newest refresh, how far it is behind, and its health. Only metadata is read,
    and nothing printed is a value of a column. A table that cannot be read is one that is wrong.
    """
    if into is not None and port is not None:
        raise InvalidCall("--file and --port are both given; give one of them")
    if as_json and (into is not None or port is not None):
        raise InvalidCall("--json prints samples; leave out --file and --port")
    if every is not None and into is None:
        raise InvalidCall("--every writes a file again and again; add --file PATH, or --port to serve")

    def look() -> list[Family]:
        with opened(folder) as lake:
            found = families(foldhouse.__version__, lake.status())
        return found + (_runs() if with_runs else [])

    if port is not None:
        _serve(host, port, hosts, look)
    elif into is not None:
        _write(into, every, look)
    elif as_json:
        print_rows([], _samples(look()), as_json=True)
    else:
        click.echo(text_of(look()), nl=False)


def _runs() -> list[Family]:
    try:
        from foldhouse.dagster.run_counts import run_families
    except ModuleNotFoundError as failure:
        raise CannotStart(f"--runs needs the package {failure.name}: pip install 'foldhouse[dagster]'") from failure
    return run_families()


def _samples(found: Sequence[Family]) -> list[dict[str, Any]]:
    return [
        {
            "name": family.name + one.suffix,
            "type": family.type,
            "labels": dict(one.labels),
            "value": None if one.value != one.value else one.value,
        }
        for family in found
        for one in family.samples
        if one.value is not None
    ]


def _write(into: Path, every: float | None, look: Callable[[], Sequence[Family]]) -> None:
    """Write the text beside the file and rename it, so that no reader sees half of it."""
    while True:
        text = text_of(look())
        number, name = tempfile.mkstemp(prefix=f".{into.name}.", dir=into.parent)
        try:
            with os.fdopen(number, "w") as file:
                file.write(text)
            Path(name).chmod(0o644)  # the collector is another user
            Path(name).replace(into)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        if every is None:
            return
        time.sleep(every)


def _serve(host: str, port: int, hosts: Sequence[str], look: Callable[[], Sequence[Family]]) -> None:
    names = {*_OURS, host, *hosts}

    class Handler(BaseHTTPRequestHandler):
        """Answers GET /metrics to those who ask for a name of this server."""

        def do_GET(self) -> None:
            """Answer with the metrics of this moment."""
            # A page in a browser can reach this port under a name of its own, and would read the names of tables.
            asked = self.headers.get("Host", "")
            if asked.rpartition(":")[0] not in names and asked not in names:
                return self._answer(403, "text/plain", f"{asked!r} is not a name of this server; see --allow-host\n")
            if self.path.partition("?")[0] != "/metrics":
                return self._answer(404, "text/plain", "only /metrics is here\n")
            try:
                text = text_of(look())
            except Exception:  # of any library; its text may contain a path or a value
                return self._answer(503, "text/plain", "the lake cannot be read now; `foldhouse doctor` says why\n")
            return self._answer(200, CONTENT_TYPE, text)

        def _answer(self, status: int, kind: str, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Print nothing: an answer to each scrape would fill the log."""

    try:
        server = ThreadingHTTPServer((host, port), Handler)
    except OSError as failure:
        raise CannotStart(f"{host}:{port} cannot be served: {failure.strerror}; choose another --port") from failure
    with server:
        click.echo(f"http://{host}:{server.server_address[1]}/metrics", err=True)
        server.serve_forever()
