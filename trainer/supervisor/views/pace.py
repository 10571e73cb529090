"""How fast the job makes steps: the time that is left, and the share of its time in which it made new ones."""

from __future__ import annotations

from collections import deque

from trainer.model_dir.state import PaceCounters
from trainer.protocol.child import ChildStatus

RECENT_SECONDS = 60.0
"""Length of the past from whose steps the remaining time is estimated."""


class Pace:
    """Looks at the steps of the chief's child. All times are of one clock, in seconds."""

    def __init__(self, counters: PaceCounters, now: float, *, continues: bool = False) -> None:
        """
        Args:
            counters: those of the chief before, which go on.
            continues: whether that chief was lost, so that the time since it counted last counts too.
        """
        if continues and counters.time:
            counters.wall += max(0.0, now - counters.time)
        self._counters, self._looked = counters, now
        self._total: int | None = None
        self._generation, self._step, self._since, self._saving = 0, 0, now, 0.0
        self._slowness = 1.0
        self._steps: deque[tuple[float, int]] = deque()
        """Times of new steps in this generation, and the numbers of these steps."""

    def look(self, now: float, generation: int, child: ChildStatus | None, slowness: float = 1.0) -> None:
        """
        Args:
            generation: the one that runs; 0 if none does.
            child: the chief's.
            slowness: by how much longer than is usual it has made no step.
        """
        self._slowness = slowness
        self._counters.wall += max(0.0, now - self._looked)
        self._looked = self._counters.time = now
        status = child or ChildStatus()
        step, saving, self._total = status.step if generation else None, status.seconds_saving or 0.0, status.steps
        if generation != self._generation or step is None or step < self._step or not self._steps:
            self._generation = generation
            self._begin(now, step, saving)
        elif step > self._step:
            self._made(now, step, saving)
        if status.evaluating or status.finishing:  # no steps are made now
            self._since = now

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the last step of the job is made; None while that is unknown. It grows while there is no new
        step for longer than is usual: then the rate falls as much."""
        if self._total is None or len(self._steps) < 2:
            return None
        (then, first), (last, step) = self._steps[0], self._steps[-1]
        seconds = (self._total - step) * (last - then) / (step - first)
        return seconds * self._slowness if self._slowness > 1 else max(0.0, seconds - (self._looked - last))

    @property
    def goodput(self) -> float | None:
        """Share of the job's time in which it made new steps."""
        return min(1.0, self._counters.useful / self._counters.wall) if self._counters.wall > 0 else None

    def _begin(self, now: float, step: int | None, saving: float) -> None:
        """The first step of a generation: what came before it is not the time of a step."""
        self._steps.clear()
        self._since, self._step, self._saving = now, step or 0, saving
        if step is not None:
            self._steps.append((now, step))
            self._counters.best = max(self._counters.best, step)

    def _made(self, now: float, step: int, saving: float) -> None:
        made, new = step - self._step, max(0, step - max(self._step, self._counters.best))
        seconds = max(0.0, now - self._since - (saving - self._saving))
        self._counters.useful += seconds * new / made
        self._counters.best = max(self._counters.best, step)
        self._since, self._step, self._saving = now, step, saving
        self._steps.append((now, step))
        while len(self._steps) > 2 and now - self._steps[0][0] > RECENT_SECONDS:
            self._steps.popleft()
