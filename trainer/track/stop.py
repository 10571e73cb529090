"""A request to end, by SIGTERM or Ctrl-C. Made before MLflow's client is imported, which takes seconds."""

from __future__ import annotations

import os
import select
import signal

from trainer import host


class Stop:
    """Whether this process was asked to end."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: os.write(self._write, b"."))
        host.end_with_parent(signal.SIGTERM)

    def wait(self, seconds: float | None) -> bool:
        """Waits that long at most; returns whether it was asked."""
        return bool(select.select([self._read], [], [], seconds)[0])
