"""The guard in front of Dagster's web server, request by request."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from foldhouse.dagster.guard import Guard

HOST = "127.0.0.1:3000"
PAGE = {"host": HOST, "origin": f"http://{HOST}", "sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"}
JSON = {"content-type": "application/json"}


def asked(
    method: str = "GET",
    path: str = "/",
    query: str = "",
    headers: Mapping[str, str] | None = None,
    *,
    more: tuple[tuple[str, str], ...] = (),
    kind: str = "http",
    port: int = 3000,
    hosts: tuple[str, ...] = (),
) -> list[dict[str, Any]]:
    """What is sent back for a request; the guarded server answers 200, or accepts."""

    async def server(scope: Any, receive: Any, send: Any) -> None:
        if kind == "websocket":
            await send({"type": "websocket.accept"})
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(dict(message))

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    pairs = [*({"host": HOST} if headers is None else headers).items(), *more]
    scope = {
        "type": kind,
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in pairs],
        "server": ("127.0.0.1", port),
    }
    asyncio.run(Guard(server, hosts)(scope, receive, send))
    return sent


def status(*arguments: Any, **options: Any) -> int:
    first = asked(*arguments, **options)[0]
    return {"websocket.accept": 101, "websocket.close": 403}.get(first["type"]) or int(first["status"])


@pytest.mark.parametrize("host", [HOST, "localhost:3000", "LOCALHOST:3000", "[::1]:3000"])
def test_the_names_of_the_server_itself_are_answered(host: str) -> None:
    assert status(headers={"host": host}) == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:3000",
        "127.0.0.1",
        "127.0.0.1:3001",
        "localhost.evil.example:3000",
        "127.0.0.1:3000.evil.example",
        "evil@127.0.0.1:3000",
        "127.0.0.1:3000,evil.example",
        "0.0.0.0:3000",
        "127.1:3000",
        "localhost.:3000",
        "",
    ],
)
def test_a_rebound_name_is_refused_whatever_is_asked(host: str) -> None:
    for method, path in (("GET", "/"), ("GET", "/assets"), ("POST", "/graphql"), ("GET", "/logs/x")):
        assert status(method, path, headers={**JSON, "host": host}) == 403
    assert status(path="/graphql", headers={"host": host}, kind="websocket") == 403


def test_a_request_without_a_host_or_with_two_is_refused() -> None:
    assert status(headers={}) == 403
    assert status(more=(("host", HOST),)) == 403


def test_a_refusal_is_a_sentence_with_the_way_out() -> None:
    start, body = asked(headers={"host": "page.example"})
    assert start["status"] == 403
    assert body["body"].startswith(b"refused: the Host page.example is not a name of this server (127.0.0.1:3000")
    assert b"--allow-host" in body["body"]


def test_another_name_is_answered_where_it_is_allowed() -> None:
    allowed = ("page.example", "Page.example:8443 ", "")
    proxied = {"host": "page.example", "origin": "https://page.example", **JSON}
    assert status("POST", "/graphql", headers=proxied, hosts=allowed) == 200
    assert status(headers={"host": "page.example:8443"}, hosts=allowed) == 200
    assert status(headers={"host": "page.example:1"}, hosts=allowed) == 403
    assert status(headers={"host": ""}, hosts=allowed) == 403


def test_on_the_port_of_http_the_names_need_none() -> None:
    assert status(headers={"host": "localhost"}, port=80) == 200
    assert status(headers={"host": "localhost"}, port=3000) == 403


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "http://127.0.0.1:8000",
        "http://127.0.0.1",
        f"file://{HOST}",
        f"http://{HOST}/",
        "",
    ],
)
def test_another_origin_is_refused(origin: str) -> None:
    foreign = {"host": HOST, "origin": origin, **JSON}
    assert status("POST", "/graphql", headers=foreign) == 403
    assert status("GET", "/", headers=foreign) == 403
    assert status("POST", "/report_asset_materialization/a", headers=foreign) == 403
    assert status(path="/graphql", headers=foreign, kind="websocket") == 403


def test_a_second_origin_beside_the_right_one_is_refused() -> None:
    assert status("POST", "/graphql", headers={**PAGE, **JSON}, more=(("origin", "http://evil.example"),)) == 403


def test_the_page_itself_is_answered() -> None:
    assert status("POST", "/graphql", headers={**PAGE, **JSON}) == 200
    assert status("POST", "/graphql", headers={**PAGE, "content-type": "application/json; charset=utf-8"}) == 200
    assert status(path="/graphql", headers=PAGE, kind="websocket") == 101
    typed = {"host": HOST, "sec-fetch-site": "none", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert status(headers=typed) == 200
    assert status(path="/graphql", headers=typed) == 200
    assert status(path="/assets", query="query=a", headers=PAGE) == 200


def test_a_program_without_an_origin_is_answered() -> None:
    assert status("POST", "/graphql", headers={"host": HOST, **JSON}) == 200
    assert status("POST", "/report_asset_materialization/a", query="partition=b") == 200
    assert status(path="/graphql", kind="websocket") == 101


@pytest.mark.parametrize("site", ["cross-site", "same-site", "else"])
def test_a_page_of_another_site_is_refused_but_for_a_link_to_a_page(site: str) -> None:
    sent = {"host": HOST, "sec-fetch-site": site}
    link = {**sent, "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    frame = {**link, "sec-fetch-dest": "iframe"}
    picture = {**sent, "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}
    assert status(path="/runs/1", headers=link) == 200
    assert status("POST", "/runs/1", headers=link) == 403
    for path in ("/graphql", "/graphql/", "/prefix/graphql", "/GraphQL"):
        assert status(path=path, headers=link) == 403
    for headers in (frame, picture, sent):
        assert status(path="/runs/1", headers=headers) == 403
    assert status(path="/graphql", headers=link, kind="websocket") == 403


@pytest.mark.parametrize("query", ["query=mutation{a}", "%71uery=mutation{a}", "x=1&query=", "query=%7Bversion%7D"])
@pytest.mark.parametrize("path", ["/graphql", "/graphql/"])
def test_graphql_by_get_is_refused(query: str, path: str) -> None:
    assert status(path=path, query=query) == 403
    assert status(path=path, query=query, headers={**PAGE}) == 403


@pytest.mark.parametrize(
    "kind",
    [
        "text/plain",
        "TEXT/PLAIN",
        "text/plain; x=application/json",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=application/json",
        "",
        "application/xml",
    ],
)
def test_graphql_by_post_is_json_and_nothing_that_any_page_can_send(kind: str) -> None:
    assert status("POST", "/graphql", headers={"host": HOST, "content-type": kind}) == 403


def test_graphql_by_post_without_a_content_type_or_with_two_is_refused() -> None:
    assert status("POST", "/graphql", query="query=mutation{a}") == 403
    assert status("POST", "/graphql", headers={"host": HOST, **JSON}, more=(("content-type", "text/plain"),)) == 403


def test_a_form_is_refused_everywhere() -> None:
    form = {"host": HOST, "content-type": "application/x-www-form-urlencoded"}
    assert status("POST", "/report_asset_materialization/a", headers=form) == 403


def test_no_other_page_may_show_it_in_a_frame() -> None:
    assert (b"x-frame-options", b"SAMEORIGIN") in asked()[0]["headers"]
