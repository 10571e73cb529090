"""A stranger at the control port of a chief: `python stranger.py PORT FILE`, until its standard input ends.

It posts reports that are unsigned, large or malformed, and keeps silent connections open. Meanwhile it asks for
/healthz. Then it writes what came of it to FILE:
{"posts": {REQUEST: {ANSWER: NUMBER}}, "silent", "asked", "slowest", "unanswered"}. It imports nothing of trainer.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import random
import select
import socket
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

SENDERS, SILENT = 3, 600
"""More than the descriptors of a process of the job."""
TIMEOUT = 30.0
LARGEST = 1 << 20
"""Bytes of a body that a control port reads."""
SIGNATURE = "Trainer-Signature"


def _post(body: bytes, *lines: str) -> bytes:
    head = ["POST /report HTTP/1.1", "Host: localhost", "Connection: close", *lines]
    if not any(line.startswith("Transfer-Encoding") for line in lines):
        head.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*head, "", ""]).encode("latin-1") + body


REPORT = b'{"report":{"identity":{"job":"soak","task":"worker:1"},"status":{"step":1e9}},"known":0}'
REQUESTS = {
    # Each value is an error of its own for who reads it as a report.
    "errors": _post(b'{"report":{"status":{' + b",".join(b'"%x":[0]' % i for i in range(85_000)) + b'}},"known":0}'),
    "text": _post(b"x" * LARGEST),
    "nested": _post(b"[" * LARGEST),
    "bytes": _post(b"\xff\xfe" * 1000),
    "unsigned": _post(REPORT),
    "forged": _post(REPORT, f"{SIGNATURE}: {'0' * 64}"),
    "not ASCII": _post(REPORT, f"{SIGNATURE}: ä"),
    "too long": _post(b"x" * (LARGEST + 1)),
    "broken chunk": _post(b"zz\r\n" + REPORT, "Transfer-Encoding: chunked"),
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
}
HALF = b"POST /report HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{"


class Stranger:
    def __init__(self, port: int) -> None:
        self._port = port
        self._ended = threading.Event()
        self._posts = {name: Counter[str]() for name in REQUESTS}
        self._silent = 0
        self._seconds: list[float | None] = []
        """Until each answer of /healthz; None without one."""

    def run(self) -> dict[str, Any]:
        """What came of it, once the standard input has ended."""
        threads = [threading.Thread(target=self._send, args=(seed,)) for seed in range(SENDERS)]
        threads.append(threading.Thread(target=self._be_silent))
        for thread in threads:
            thread.start()
        while not select.select([sys.stdin], [], [], 0.2)[0]:
            self._seconds.append(self._ask())
        self._ended.set()
        for thread in threads:
            thread.join()
        while self._seconds and self._seconds[-1] is None:
            self._seconds.pop()  # the job was over
        answered = [seconds for seconds in self._seconds if seconds is not None]
        return {
            "posts": self._posts,
            "silent": self._silent,
            "asked": len(self._seconds),
            "slowest": max(answered, default=None),
            "unanswered": len(self._seconds) - len(answered),
        }

    def _ask(self) -> float | None:
        """Seconds until /healthz answers. A port that closes the connections that wait may close this one."""
        begun = time.monotonic()
        while time.monotonic() - begun < TIMEOUT:
            with contextlib.suppress(OSError, http.client.HTTPException):
                connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=TIMEOUT)
                with contextlib.closing(connection):
                    connection.request("GET", "/healthz")
                    if connection.getresponse().status == http.client.OK:
                        return time.monotonic() - begun
            if select.select([sys.stdin], [], [], 0.2)[0]:
                break
        return None

    def _send(self, seed: int) -> None:
        draw = random.Random(seed)
        while not self._ended.wait(0.02):
            name = draw.choice([*REQUESTS])
            try:
                with socket.create_connection(("127.0.0.1", self._port), TIMEOUT) as connection:
                    connection.sendall(REQUESTS[name])
                    answer = connection.recv(100).split(b" ")[1:2]
            except OSError:
                answer = []
            self._posts[name][answer[0].decode() if answer else "none"] += 1

    def _be_silent(self) -> None:
        """Opens connections as others are closed."""
        held: list[socket.socket] = []
        for number in itertools.count():
            if self._ended.is_set():
                break
            if len(held) < SILENT:
                with contextlib.suppress(OSError):
                    held.append(socket.create_connection(("127.0.0.1", self._port), TIMEOUT))
                    held[-1].sendall(HALF if number % 2 else b"")
                    self._silent += 1
                    continue
            self._ended.wait(0.5)
            for closed in select.select(held, [], [], 0)[0]:
                held.remove(closed)
                closed.close()
        for each in held:
            each.close()


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(Stranger(int(sys.argv[1])).run()))
