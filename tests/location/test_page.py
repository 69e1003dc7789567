"""The Dagster page as `foldhouse dev` serves it, attacked as another page in the browser could attack it."""

import json
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.location.serving import Page, served

ROOT = Path(__file__).parents[2]
LAUNCH = """mutation { launchRun(executionParams: {
  selector: {jobName: "maintenance", repositoryName: "__repository__", repositoryLocationName: "foldhouse"}
  runConfigData: {resources: {lake: {config: {path: "THEIRS", spark_remote: "sc://stranger.example:15002"}}}}
}) { __typename } }"""
RUNS = "{ runsOrError { ... on Runs { results { runId status } } } }"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    (folder / "dagster.yaml").write_text((ROOT / "dagster.yaml").read_text())
    environment = {"DAGSTER_HOME": str(folder), "FOLDHOUSE_LAKE": str(folder / "lake")}
    with served(ROOT, folder, environment) as opened:
        yield opened
    with pytest.raises(OSError, match="refused"):
        opened.ask("GET", "/server_info", {"Host": opened.host})


def launch(page: Page) -> str:
    return LAUNCH.replace("THEIRS", str(page.folder / "theirs"))


def quoted(text: str) -> str:
    from urllib.parse import quote

    return quote(text)


def attacks(page: Page) -> dict[str, tuple[str, str, dict[str, str], str | None]]:
    mutation, body = quoted(launch(page)), json.dumps({"query": launch(page)})
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
    said = page.graphql(launch(page))["launchRun"]["__typename"]
    assert said == "RunConfigValidationInvalid"
    assert page.graphql(RUNS) == {"runsOrError": {"results": []}}


def test_the_page_adds_the_quarantine_to_a_launch_of_the_stream_alone(page):
    """The two are landed by one step. The page asks for what it has to add, names it in a dialog, and launches both."""
    asked = '{ assetNodeAdditionalRequiredKeys(assetKeys: [{path: ["retail", "NAME"]}]) { path } }'
    added = {
        name: page.graphql(asked.replace("NAME", name))["assetNodeAdditionalRequiredKeys"]
        for name in ("sales", "sales_quarantine", "products")
    }
    sales, quarantine = {"path": ["retail", "sales"]}, {"path": ["retail", "sales_quarantine"]}
    assert added == {"sales": [quarantine], "sales_quarantine": [sales], "products": []}
