"""An HTTP proxy on 127.0.0.1 in front of one server: it writes down the requests, and can answer them itself."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from urllib.parse import urlsplit

_IDLE_SECONDS = 5
_HOP = {"connection", "transfer-encoding", "expect", "keep-alive"}


@dataclass(frozen=True)
class Request:
    """A request: its method, its path with the query, its headers in small letters, and its body."""

    method: str
    path: str
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    body: bytes = field(default=b"", repr=False)

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@dataclass(frozen=True)
class Answer:
    """An answer that the proxy gives in the place of the server."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    is_after_the_server: bool = False
    """Whether the server gets the request first; its own answer is thrown away."""


class HttpProxy:
    """Forwards HTTP requests to a server, one after the other on each connection.

    `answer`, if it is set, sees each request first. What it returns is sent to the client; with `None`, the request
    goes to the server.
    """

    def __init__(self, address: str) -> None:
        found = urlsplit(address)
        assert found.hostname is not None
        self.server = (found.hostname, found.port or 80)
        self.requests: list[Request] = []
        self.answer: Callable[[Request], Answer | None] | None = None
        self.wait_seconds = 0.0
        self.at_once = self.most_at_once = 0
        self.lock = threading.Lock()
        proxy = self

        class Handler(_Handler):
            of = proxy

        self._http = _Server(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._http.server_address[1]}"
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def __enter__(self) -> HttpProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.shutdown()
        self._http.server_close()

    def ask(self, request: Request) -> Answer:
        """Return what the server answers to a request."""
        upstream = http.client.HTTPConnection(*self.server, timeout=60)
        given = {name: value for name, value in request.headers.items() if name not in _HOP}
        upstream.request(request.method, request.path, body=request.body or None, headers=given)
        answered = upstream.getresponse()
        found = Answer(answered.status, dict(answered.getheaders()), answered.read())
        upstream.close()
        return found

    def taken(self) -> list[Request]:
        """Return the requests since the last call."""
        with self.lock:
            found, self.requests = self.requests, []
        return found


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a client that went away."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 20
    of: HttpProxy
    _upstream: http.client.HTTPConnection | None = None
    _used_at = 0.0

    def log_message(self, *args: object) -> None:
        """Write nothing to stderr."""

    def _pass_on(self) -> None:
        request = Request(
            self.command, self.path, {name.lower(): value for name, value in self.headers.items()}, self._body()
        )
        with self.of.lock:
            self.of.requests.append(request)
            self.of.at_once += 1
            self.of.most_at_once = max(self.of.most_at_once, self.of.at_once)
        try:
            time.sleep(self.of.wait_seconds)
            answer = self.of.answer(request) if self.of.answer is not None else None
            if answer is None or answer.is_after_the_server:
                theirs = self._answer_of_the_server(request)
                answer = answer or theirs
            self._say(answer, request)
        finally:
            with self.of.lock:
                self.of.at_once -= 1

    def handle_expect_100(self) -> bool:
        """Let the client send its body at once; without the flush it waits for a second."""
        self.send_response_only(100)
        self.end_headers()
        self.wfile.flush()
        return True

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("content-length") or 0))
        found = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            found += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return found

    def _answer_of_the_server(self, request: Request) -> Answer:
        # A server closes connections that are idle; a client would see that, and this one does not look.
        if self._upstream is not None and time.monotonic() - self._used_at > _IDLE_SECONDS:
            self._upstream.close()
            self._upstream = None
        if self._upstream is None:
            self._upstream = http.client.HTTPConnection(*self.of.server, timeout=60)
        self._used_at = time.monotonic()
        given = {name: value for name, value in request.headers.items() if name not in _HOP}
        self._upstream.request(request.method, request.path, body=request.body or None, headers=given)
        answered = self._upstream.getresponse()
        body = answered.read()
        return Answer(answered.status, dict(answered.getheaders()), body)

    def _say(self, answer: Answer, request: Request) -> None:
        self.send_response_only(answer.status)
        given = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP}
        if request.method != "HEAD":
            given = {name: value for name, value in given.items() if name.lower() != "content-length"}
            given["Content-Length"] = str(len(answer.body))
        for name, value in given.items():
            self.send_header(name, value)
        self.end_headers()
        if request.method != "HEAD":
            self.wfile.write(answer.body)
        self.wfile.flush()

    def finish(self) -> None:
        super().finish()
        if self._upstream is not None:
            self._upstream.close()


for _method in ("GET", "HEAD", "PUT", "POST", "DELETE"):
    setattr(_Handler, f"do_{_method}", _Handler._pass_on)
