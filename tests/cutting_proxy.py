"""A TCP proxy on 127.0.0.1 that cuts the reply to a chosen request after a number of bytes."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from types import TracebackType

# A request of HTTP begins so.
_NEXT = re.compile(rb"(?:GET|HEAD|POST|PUT|DELETE) /")


class CuttingProxy:
    """Forwards connections to a server; while armed, it cuts the next reply to a request that matches.

    Args:
        port: of the server.
        request: what the request contains.
    """

    def __init__(self, port: int, request: bytes) -> None:
        self._server, self._request = port, re.compile(request, re.DOTALL)
        self._after: int | None = None
        self._is_sent = True
        self.cuts = 0
        self.replied_bytes = 0
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> CuttingProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        # shutdown wakes the thread that waits in accept; close alone does not.
        for one in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def cut(self, after_bytes: int, *, is_sent: bool = True) -> None:
        """Cut the next reply after so many bytes; or, if not `is_sent`, do not even send the request on."""
        with self._lock:
            self._after, self._is_sent, self.replied_bytes = after_bytes, is_sent, 0

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._server))
            except OSError:
                return
            self._open += [client, server]
            budget: list[int | None] = [None]
            for source, to, is_request in ((client, server, True), (server, client, False)):
                given = (source, to, budget, is_request)
                threading.Thread(target=self._forward, args=given, daemon=True).start()

    def _forward(self, source: socket.socket, to: socket.socket, budget: list[int | None], is_request: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if is_request and not self._let_pass(data, budget):
                    break
                left = None if is_request else budget[0]
                if left is not None:
                    self.replied_bytes += len(data)
                    to.sendall(data[:left])
                    budget[0] = left - min(left, len(data))
                    if len(data) >= left:
                        break
                else:
                    to.sendall(data)
        for one in (source, to):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _let_pass(self, data: bytes, budget: list[int | None]) -> bool:
        with self._lock:
            if _NEXT.match(data):  # a reply that was shorter than its cut leaves nothing to cut from the next one
                budget[0] = None
            if self._after is None or not self._request.search(data):
                return True
            budget[0], self._after = self._after, None
            self.cuts += 1
            return self._is_sent
