"""A clock that runs only while this process listens, to measure the silence of other tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from trainer import clocks

BEAT_SECONDS = 0.5
LONGEST_GAP = 1.0


class ListeningClock:
    """A monotonic clock that leaves out the time in which this process did not run: stopped by a signal, frozen with
    its container, or busy. Between two calls at most LONGEST_GAP seconds count."""

    def __init__(self, now: Callable[[], float] | None = None) -> None:
        self._now = now or clocks.monotonic
        self._last, self._missed = self._now(), 0.0

    def __call__(self) -> float:
        now = self._now()
        self._missed += max(0.0, now - self._last - LONGEST_GAP)
        self._last = now
        return now - self._missed

    async def run(self) -> None:
        """Reads the clock at intervals, independent of the rest of the event loop."""
        while True:
            self()
            await asyncio.sleep(BEAT_SECONDS)
