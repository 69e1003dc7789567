"""A guard in front of Dagster's web server, which has no login: only its own page gets an answer.

A browser sends what any page on the internet asks it to send, also to 127.0.0.1. So the guard looks at what a browser
says of where a request comes from, and refuses what is not the Dagster page itself:

| a request | answer |
|---|---|
| with another Host than this server's names (a rebound name) | 403 |
| with another Origin, or from another site by Sec-Fetch-Site | 403, but for a link that is followed to a page |
| GraphQL by GET with a query, or by POST as anything else than JSON | 403 |
| of a program without Origin, such as curl, to a right Host | as ever |
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any
from urllib.parse import parse_qs

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_OURS = ("127.0.0.1", "localhost", "[::1]")
_SCHEMES = ("http", "https")
_PLAIN_PORTS = {80, 443}  # browsers leave these ports out of Host
_READS = {"GET", "HEAD", "OPTIONS"}
_SIMPLE = {"text/plain", "application/x-www-form-urlencoded", "multipart/form-data"}
"""The content types that any page can send to any server without a preflight request, by the rules of CORS."""
_GRAPHQL = {"application/json", "application/graphql"}
_TRUSTED_SITES = {"same-origin", "none"}  # `none`: a typed address or a bookmark


class Guard:
    """ASGI middleware that refuses requests from other pages.

    Args:
        app: Dagster's web server.
        hosts: further names of this server, as `host` or `host:port`, where something in front of it has another name.
    """

    def __init__(self, app: App, hosts: Iterable[str] = ()) -> None:
        self._app = app
        self._hosts = frozenset(host.strip().lower() for host in hosts if host.strip())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] not in ("http", "websocket"):
            return await self._app(scope, receive, send)
        refused = self._refused(scope)
        if refused is None:
            return await self._app(scope, receive, _unframed(send))
        return await _refuse(scope, receive, send, refused)

    def _refused(self, scope: Scope) -> str | None:
        """Return why a request is refused; `None` if it is accepted."""
        given = _headers(scope)
        hosts = self._names(scope)
        host = given.get("host", [])
        # With two Host headers, the guard and the server could look at different ones.
        if len(host) != 1 or host[0].lower() not in hosts:
            return (
                f"the Host {', '.join(host) or '(none)'} is not a name of this server ({', '.join(sorted(hosts))}). "
                "Where it has another name, start it with --allow-host NAME"
            )
        return _foreign(scope, given, hosts) or _unasked(scope, given)

    def _names(self, scope: Scope) -> frozenset[str]:
        port = (scope.get("server") or ("", None))[1]
        ours = {f"{name}:{port}" for name in _OURS}
        return self._hosts | ours | (set(_OURS) if port in _PLAIN_PORTS else set())


def _foreign(scope: Scope, given: Mapping[str, list[str]], hosts: frozenset[str]) -> str | None:
    """Whether the browser says that the request comes from another page."""
    origins = {f"{scheme}://{host}" for scheme in _SCHEMES for host in hosts}
    foreign = [one for one in given.get("origin", []) if one.lower() not in origins]
    if foreign:
        return f"the page {foreign[0]} may ask for nothing here"
    sites = set(given.get("sec-fetch-site", [])) - _TRUSTED_SITES
    if sites and not _is_link(scope, given):
        return f"a page of another site ({', '.join(sorted(sites))}) may ask for nothing here"
    return None


def _is_link(scope: Scope, given: Mapping[str, list[str]]) -> bool:
    """Whether a person follows a link to this page: the browser shows the answer to them, not to the linking site."""
    return (
        scope["type"] == "http"
        and scope["method"] == "GET"
        and given.get("sec-fetch-mode") == ["navigate"]
        and given.get("sec-fetch-dest") == ["document"]
        and not _is_graphql(scope)
    )


def _unasked(scope: Scope, given: Mapping[str, list[str]]) -> str | None:
    """Whether any page could send the request without a preflight request."""
    if scope["type"] == "websocket":
        return None
    kinds = {one.partition(";")[0].strip().lower() for one in given.get("content-type", [])}
    if scope["method"] in _READS:
        # By default parse_qs drops an empty value, such as that of `?query=`.
        asks = parse_qs(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
        if _is_graphql(scope) and "query" in asks:
            return "GraphQL is answered to POST with application/json; by GET any page could send a mutation"
        return None
    if kinds & _SIMPLE or len(kinds) > 1:
        return f"{', '.join(sorted(kinds))} can be sent by any page; send application/json"
    if _is_graphql(scope) and (not kinds or not kinds <= _GRAPHQL):
        return "GraphQL is answered to POST with application/json"
    return None


def _is_graphql(scope: Scope) -> bool:
    return str(scope["path"]).rstrip("/").lower().endswith("/graphql")


def _headers(scope: Scope) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        # latin-1 decodes any bytes, so a strange header raises no error here.
        found.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return found


def _unframed(send: Send) -> Send:
    """Forbid browsers to show the page in a frame of another page, where clicks could be stolen."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), (b"x-frame-options", b"SAMEORIGIN")]}
        await send(message)

    return sending


async def _refuse(scope: Scope, receive: Receive, send: Send, reason: str) -> None:
    if scope["type"] == "websocket":
        # By ASGI, `websocket.connect` comes first; closing before an accept refuses the connection.
        await receive()
        # 1008 is a policy violation; a close frame has place for 123 bytes of reason.
        await send({"type": "websocket.close", "code": 1008, "reason": reason[:100]})
        return
    body = f"refused: {reason}\n".encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 403, "headers": headers})
    await send({"type": "http.response.body", "body": body})
