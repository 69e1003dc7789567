"""Serves a code location as `foldhouse dev` does, for tests of the page."""

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.catalog_servers import free_port

STARTS_WITHIN_SECONDS = 600
LOCATIONS = """{ workspaceOrError { ... on Workspace { locationEntries { loadStatus locationOrLoadError {
  __typename ... on PythonError { message stack } } } } } }"""
RELOAD = "mutation { reloadWorkspace { __typename } }"


class Page:
    def __init__(self, port: int, folder: Path) -> None:
        self.port, self.folder, self.host = port, folder, f"127.0.0.1:{port}"
        self.own = {"Host": self.host, "Origin": f"http://{self.host}", "Sec-Fetch-Site": "same-origin"}

    def ask(self, method: str, path: str, headers: dict[str, str], body: str | None = None) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=STARTS_WITHIN_SECONDS)
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name, value)
        if body is not None:
            connection.putheader("Content-Length", str(len(body.encode())))
        connection.endheaders(body.encode() if body is not None else None)
        answer = connection.getresponse()
        said = answer.read().decode()
        connection.close()
        return answer.status, said

    def graphql(self, query: str) -> dict:
        headers = {**self.own, "Content-Type": "application/json"}
        status, said = self.ask("POST", "/graphql", headers, json.dumps({"query": query}))
        assert status == 200, said
        return json.loads(said)["data"]


@contextmanager
def served(location: Path, folder: Path, environment: Mapping[str, str]) -> Iterator[Page]:
    """Serve the code location of a folder until the block ends; the log is kept in another folder."""
    opened = Page(free_port(), folder)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("FOLDHOUSE_", "DAGSTER_"))}
    command = [sys.executable, "-c", "from foldhouse.cli import main; main()", "dev", "--port", str(opened.port)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=location, env={**kept, **environment}, stdout=log, stderr=log)
    try:
        wait_for_page(opened, process)
        yield opened
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(120)


def wait_for_page(opened: Page, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + STARTS_WITHIN_SECONDS
    while True:
        assert process.poll() is None, (opened.folder / "log").read_text()
        assert time.monotonic() < until, (opened.folder / "log").read_text()
        try:
            if opened.ask("GET", "/server_info", {"Host": opened.host})[0] == 200:
                break
        except OSError:
            time.sleep(0.5)
    wait_for_location(opened, until)


def wait_for_location(opened: Page, until: float) -> None:
    """Wait for the assets; Dagster gives up loading a location on a busy machine, as a person sees, and reloads."""
    while True:
        [entry] = opened.graphql(LOCATIONS)["workspaceOrError"]["locationEntries"]
        loaded = entry["locationOrLoadError"] or {}
        if entry["loadStatus"] == "LOADED" and loaded.get("__typename") == "RepositoryLocation":
            return
        assert time.monotonic() < until, f"{entry}\n{(opened.folder / 'log').read_text()}"
        timed_out = any(word in str(loaded) for word in ("timed out", "Timeout", "Deadline", "DEADLINE", "Unreachable"))
        assert not loaded or timed_out, f"{entry}\n{(opened.folder / 'log').read_text()}"
        if timed_out:
            opened.graphql(RELOAD)
        time.sleep(1)
