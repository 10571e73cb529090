"""A supervisor's end of trainer.report: the socket that TRAINER_REPORTS names."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Reader:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.sizes: list[int] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))

    def one(self, seconds: float = 60) -> dict[str, Any]:
        """The next datagram; fails if there is none in time."""
        self._socket.settimeout(seconds)
        return self._read()

    def all(self) -> list[dict[str, Any]]:
        """Those that are there."""
        self._socket.setblocking(False)
        found = []
        with contextlib.suppress(BlockingIOError):
            while True:
                found.append(self._read())
        return found

    def latest(self) -> dict[str, Any]:
        """The newest value of each figure of those that are there."""
        return merged(self.all())

    def close(self) -> None:
        self._socket.close()
        self.path.unlink(missing_ok=True)

    def _read(self) -> dict[str, Any]:
        data = self._socket.recv(1 << 20)
        self.sizes.append(len(data))
        figures: dict[str, Any] = json.loads(data, parse_constant=_no_json)
        return figures


@contextlib.contextmanager
def collecting(reader: Reader) -> Iterator[list[dict[str, Any]]]:
    """All datagrams, complete when the context is left; meanwhile the socket does not become full."""
    found: list[dict[str, Any]] = []
    over = threading.Event()

    def collect() -> None:
        while not over.is_set():
            with contextlib.suppress(TimeoutError):
                found.append(reader.one(0.02))

    thread = threading.Thread(target=collect)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()
        found.extend(reader.all())


def merged(found: list[dict[str, Any]]) -> dict[str, Any]:
    """The newest value of each figure."""
    return {name: value for figures in found for name, value in figures.items()}


def _no_json(text: str) -> None:
    raise ValueError(f"{text} is no JSON")


@contextlib.contextmanager
def reader(path: Path) -> Iterator[Reader]:
    found = Reader(path)
    try:
        yield found
    finally:
        found.close()
