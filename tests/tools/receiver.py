"""An HTTP server of a test, which keeps what it is sent, and answers as the test wants."""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Request(NamedTuple):
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(self.body)
        return value


class Receiver:
    def __init__(self, answers: list[int], scheme: str) -> None:
        self.requests: list[Request] = []
        self.answers, self.scheme, self.port = answers, scheme, 0
        """Statuses of the first answers; then 200. A 0 is no answer at all, until the context is left."""
        self.body = b"{}"
        self.over = threading.Event()

    @property
    def address(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def until(self, count: int, seconds: float = 60) -> list[Request]:
        """The requests, once there are so many."""
        deadline = time.monotonic() + seconds
        while len(self.requests) < count:
            assert time.monotonic() < deadline, f"{len(self.requests)} of {count} requests within {seconds:g} s"
            time.sleep(0.01)
        return self.requests


@contextlib.contextmanager
def receiver(*answers: int, tls: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    found = Receiver(list(answers), "https" if tls else "http")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.do_POST()

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            found.requests.append(Request(self.path, dict(self.headers), body))
            status = found.answers.pop(0) if found.answers else 200
            if status == 0:
                found.over.wait()
                return
            self.send_response(status)
            if status // 100 == 3:
                self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", str(len(found.body)))
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(found.body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        if tls:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        found.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield found
        finally:
            found.over.set()
            server.shutdown()
            thread.join()
