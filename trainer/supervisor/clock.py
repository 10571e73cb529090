"""Seconds in which this process listened: silence of others counts in no other time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

BEAT_SECONDS = 0.5
LONGEST_GAP = 1.0


class ListeningClock:
    """A monotonic clock that leaves out the time in which this process stood still: stopped by a signal, frozen with
    its container, or busy with something else. Between two calls at most LONGEST_GAP seconds count."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now, self._last, self._missed = now, now(), 0.0

    def __call__(self) -> float:
        now = self._now()
        self._missed += max(0.0, now - self._last - LONGEST_GAP)
        self._last = now
        return now - self._missed

    async def run(self) -> None:
        """Looks at it often enough, whatever else the event loop waits for."""
        while True:
            self()
            await asyncio.sleep(BEAT_SECONDS)
