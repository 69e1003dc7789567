"""The Dagster page as `foldhouse dev` serves it, attacked as another page in the browser could attack it."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

ROOT = Path(__file__).parents[2]
STARTS_WITHIN_SECONDS = 600
LAUNCH = """mutation { launchRun(executionParams: {
  selector: {jobName: "maintenance", repositoryName: "__repository__", repositoryLocationName: "foldhouse"}
  runConfigData: {resources: {lake: {config: {path: "THEIRS", spark_remote: "sc://stranger.example:15002"}}}}
}) { __typename } }"""
LOCATIONS = """{ workspaceOrError { ... on Workspace { locationEntries { loadStatus locationOrLoadError {
  __typename ... on PythonError { message stack } } } } } }"""
RELOAD = "mutation { reloadWorkspace { __typename } }"
RUNS = "{ runsOrError { ... on Runs { results { runId status } } } }"


class Page:
    def __init__(self, port: int, folder: Path) -> None:
        self.port, self.folder, self.host = port, folder, f"127.0.0.1:{port}"
        self.launch = LAUNCH.replace("THEIRS", str(folder / "theirs"))
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


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    (folder / "dagster.yaml").write_text((ROOT / "dagster.yaml").read_text())
    opened = Page(free_port(), folder)
    environment = {**os.environ, "DAGSTER_HOME": str(folder), "FOLDHOUSE_LAKE": str(folder / "lake")}
    command = [sys.executable, "-c", "from foldhouse.cli import main; main()", "dev", "--port", str(opened.port)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
    try:
        wait_for_page(opened, process)
        yield opened
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(120)
    with pytest.raises(OSError, match="refused"):
        opened.ask("GET", "/server_info", {"Host": opened.host})


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


def quoted(text: str) -> str:
    from urllib.parse import quote

    return quote(text)


def attacks(page: Page) -> dict[str, tuple[str, str, dict[str, str], str | None]]:
    mutation, body = quoted(page.launch), json.dumps({"query": page.launch})
    of_another_site = {"Host": page.host, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
    rebound = {"Host": f"evil.example:{page.port}", "Origin": f"http://evil.example:{page.port}"}
    kind = "Content-Type"
    return {
        "a picture": ("GET", f"/graphql?query={mutation}", of_another_site, None),
        "a picture in an old browser": ("GET", f"/graphql?query={mutation}", {"Host": page.host}, None),
        "a link": (
            "GET",
            f"/graphql?query={mutation}",
            {**of_another_site, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"},
            None,
        ),
        "a rebound name": ("POST", "/graphql", {**rebound, kind: "application/json"}, body),
        "a rebound name that reads": ("GET", "/", rebound, None),
        "a plain text": (
            "POST",
            "/graphql",
            {"Host": page.host, "Origin": "http://evil.example", kind: "text/plain"},
            body,
        ),
        "a plain text in disguise": (
            "POST",
            "/graphql",
            {"Host": page.host, kind: "text/plain;application/json"},
            body,
        ),
        "a form": (
            "POST",
            f"/graphql?query={mutation}",
            {"Host": page.host, "Origin": "null", kind: "application/x-www-form-urlencoded"},
            "",
        ),
        "a post without a kind": ("POST", f"/graphql?query={mutation}", {"Host": page.host}, ""),
        "another port": (
            "POST",
            "/graphql",
            {"Host": page.host, "Origin": "http://127.0.0.1:8000", kind: "application/json"},
            body,
        ),
        "a report": (
            "POST",
            "/report_asset_materialization/retail/sales",
            {"Host": page.host, "Origin": "http://evil.example"},
            "",
        ),
    }


def test_another_page_starts_nothing_and_reads_nothing(page):
    for name, (method, path, headers, body) in attacks(page).items():
        status, said = page.ask(method, path, headers, body)
        assert (name, status) == (name, 403)
        assert said.startswith("refused: ")
    assert page.graphql(RUNS) == {"runsOrError": {"results": []}}
    assert not (page.folder / "theirs").exists()


def test_a_subscription_is_for_the_page_itself(page):
    address = f"ws://127.0.0.1:{page.port}/graphql"
    for origin in ("http://evil.example", "null", "http://127.0.0.1:8000"):
        with pytest.raises(InvalidStatus, match="403"):
            connect(address, origin=origin, subprotocols=["graphql-ws"], open_timeout=60, proxy=None)
    with connect(
        address, origin=f"http://{page.host}", subprotocols=["graphql-ws"], open_timeout=60, proxy=None
    ) as opened:
        opened.send(json.dumps({"type": "connection_init"}))
        assert json.loads(opened.recv(timeout=60)) == {"type": "connection_ack"}


def test_the_page_itself_is_served_and_may_ask(page):
    status, said = page.ask("GET", "/", {"Host": page.host})
    assert (status, "<html" in said) == (200, True)
    assert page.graphql("{ version }")["version"]
    assets = page.graphql("{ assetNodes { assetKey { path } } }")["assetNodes"]
    assert ["retail", "sales"] in [one["assetKey"]["path"] for one in assets]


def test_even_the_page_itself_cannot_name_another_lake_or_server(page):
    said = page.graphql(page.launch)["launchRun"]["__typename"]
    assert said == "RunConfigValidationInvalid"
    assert page.graphql(RUNS) == {"runsOrError": {"results": []}}
