"""The warning that steps wait long for their data."""

from __future__ import annotations

from trainer.training import inputs

SHOWN_SHARE, WARNED_SHARE = 0.1, 0.3
"""Of the time of steps, from which on a log line shows it, and a warning follows."""
LONG_SECONDS = 0.002
"""Per step, which both need too: a step of a tiny model takes less."""
WARNED_SECONDS = 2.0
"""In all, over consecutive log lines with that share: on a busy machine any job waits now and then."""
_FIXES = {
    inputs.Arrays: "give the tasks more cores, or a larger train.batch_size",
    inputs.Examples: "in data() call cache() before shuffle(), and map(..., num_parallel_calls=tf.data.AUTOTUNE)",
    inputs.Batches: "in data() end with prefetch(2), and call map(..., num_parallel_calls=tf.data.AUTOTUNE)",
    inputs.InputFn: "in input_fn() end with prefetch(2), and call map(..., num_parallel_calls=tf.data.AUTOTUNE)",
}


class InputTime:
    """Adds up what steps wait for their data, from one log line to the next."""

    def __init__(self, source: inputs.Source) -> None:
        self._fix = _FIXES.get(type(source), "give the tasks more cores")
        self._warned = False
        self._long = 0.0
        """Seconds of waiting, since the last log line with a smaller share."""
        self._waited, self._elapsed, self._steps = 0.0, 0.0, 0

    def add(self, waited: float, elapsed: float, steps: int) -> None:
        """Counts a call.

        Args:
            waited: by the slowest task, which may have begun to wait before this task's call, as while the chief
                validates.
        """
        self._waited, self._elapsed = self._waited + min(waited, elapsed), self._elapsed + elapsed
        self._steps += steps

    @property
    def share(self) -> float:
        """Of the time of steps."""
        return self._waited / self._elapsed if self._elapsed else 0.0

    def take(self) -> tuple[dict[str, float], str | None]:
        """The figure for a log line, unless it is small, and once the warning of a long wait; then starts anew."""
        share, waited, seconds = self.share, self._waited, self._waited / max(1, self._steps)
        self._waited, self._elapsed, self._steps = 0.0, 0.0, 0
        self._long = self._long + waited if share >= WARNED_SHARE and seconds >= LONG_SECONDS else 0.0
        if share < SHOWN_SHARE or seconds < LONG_SECONDS:
            return {}, None
        figures = {"input_share": share}
        if self._warned or self._long < WARNED_SECONDS:
            return figures, None
        self._warned = True
        return figures, (
            f"warning: the job waits for its data: {100 * share:.0f} % of a step's time ({1000 * seconds:.1f} ms); "
            f"{self._fix}"
        )
