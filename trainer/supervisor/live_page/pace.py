"""How fast the job makes steps: the time that is left, and the share of its time in which it made new ones."""

from __future__ import annotations

from collections import deque

from trainer.model_dir.history import History

RECENT_SECONDS = 60.0
"""Of past steps, from which the remaining time is estimated."""


class Pace:
    """Looks at the steps of the chief's child. All times are of one clock, in seconds."""

    def __init__(self, history: History, now: float) -> None:
        self._history, self._looked = history, now
        self._generation, self._step, self._since, self._saving = 0, 0, now, 0.0
        self._steps: deque[tuple[float, int]] = deque()
        """Times of new steps in this generation, and the numbers of these steps."""

    def look(
        self, now: float, generation: int, step: int | None, *, pausing: bool = False, saving: float = 0.0
    ) -> None:
        """
        Args:
            generation: that runs; 0 if none does.
            step: the last one that was made.
            pausing: whether no steps are made now: the job validates, or finishes.
            saving: seconds for which this generation has waited for its checkpoints.
        """
        self._history.wall += max(0.0, now - self._looked)
        self._looked = now
        if generation != self._generation or step is None or step < self._step or not self._steps:
            self._generation = generation
            self._begin(now, step, saving)
        elif step > self._step:
            self._made(now, step, saving)
        if pausing:
            self._since = now

    def seconds_left(self, total: object) -> float | None:
        """Until that step was made; None while it is unknown."""
        if not isinstance(total, int) or len(self._steps) < 2:
            return None
        (then, first), (last, step) = self._steps[0], self._steps[-1]
        seconds = (total - step) * (last - then) / (step - first)
        return max(0.0, seconds - (self._looked - last))

    def _begin(self, now: float, step: int | None, saving: float) -> None:
        """The first step of a generation: what came before it is not the time of a step."""
        self._steps.clear()
        self._since, self._step, self._saving = now, step or 0, saving
        if step is not None:
            self._steps.append((now, step))
            self._history.best = max(self._history.best, step)

    def _made(self, now: float, step: int, saving: float) -> None:
        made, new = step - self._step, max(0, step - max(self._step, self._history.best))
        seconds = max(0.0, now - self._since - (saving - self._saving))
        self._history.useful += seconds * new / made
        self._history.best = max(self._history.best, step)
        self._since, self._step, self._saving = now, step, saving
        self._steps.append((now, step))
        while len(self._steps) > 2 and now - self._steps[0][0] > RECENT_SECONDS:
            self._steps.popleft()
