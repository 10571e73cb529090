"""Whether a child still makes steps: the time since its last one, beside the time that its steps usually take."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Callable

TIMES = 3.0
"""How many times as long as usual there is no step before that is unusual."""
LEAST_SECONDS = 5.0
"""So long at least: a machine is busy, or a small checkpoint is written."""
KEPT = 60
"""Times between steps, of which the usual one is the median: a standstill in the past does not change it."""


class StepTimes:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._made: object = None
        self._last: float | None = None
        """The time of the last step, or of the end of what came after it."""
        self._between: deque[float] = deque(maxlen=KEPT)

    def made(self, step: object) -> None:
        """Takes what the child has made so far; if it is another than before, this is a step."""
        if step == self._made:
            return
        self._made, now = step, self._clock()
        if self._last is not None:
            self._between.append(now - self._last)
        self._last = now

    def pause(self) -> None:
        """The child does something else than steps, or has done so: this is no time of a step."""
        if self._last is not None:
            self._last = self._clock()

    @property
    def seconds(self) -> float:
        """Seconds since the last step, if that is unusually long; otherwise 0."""
        return self._idle if self.slowness > 1.0 else 0.0

    @property
    def slowness(self) -> float:
        """By how much longer than is usual there is no step: what is a rate of the last steps is so many times too
        high. 1 while nothing is unusual."""
        if not self._between:
            return 1.0
        return max(1.0, self._idle / max(LEAST_SECONDS, TIMES * statistics.median(self._between)))

    @property
    def _idle(self) -> float:
        return 0.0 if self._last is None else max(0.0, self._clock() - self._last)
