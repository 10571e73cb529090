"""What steps spend their time on, of ps-workers by the times that their closures report; and the warning that steps
wait long for their data."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trainer.training import inputs

SHOWN_SHARE, WARNED_SHARE = 0.1, 0.3
"""Shares of the time of steps from which on a log line shows what takes it, and a warning follows."""
LONG_SECONDS = 0.002
"""Minimum seconds of each step for both: a step of a tiny model takes less."""
WARNED_SECONDS = 2.0
"""Minimum seconds in all, over consecutive log lines with that share, for a warning: on a busy machine any job waits
now and then."""
_FIXES = {
    inputs.Arrays: "give the tasks more cores, or a larger train.batch_size",
    inputs.Examples: "in data() call cache() before shuffle(), and map(..., num_parallel_calls=tf.data.AUTOTUNE)",
    inputs.Batches: "in data() end with prefetch(2), and call map(..., num_parallel_calls=tf.data.AUTOTUNE)",
    inputs.InputFn: "in input_fn() end with prefetch(2), and call map(..., num_parallel_calls=tf.data.AUTOTUNE)",
}


def parts(waited: float, exchanged: float, elapsed: float, between: float) -> dict[str, float | None]:
    """Seconds of steps by part, as in events.Step.

    Args:
        waited: for data; NaN if unknown.
        exchanged: NaN if unknown.
        elapsed: in all.
    """
    known = {"seconds_input": waited, "seconds_exchange": exchanged}
    compute = max(0.0, float(elapsed - np.nansum([waited, exchanged])))
    shares = {name: None if np.isnan(seconds) else float(seconds) for name, seconds in known.items()}
    return {**shares, "seconds_compute": compute, "seconds_wait": float(between)}


class Spent:
    """Seconds and steps since each worker's first report, whose closure traced the graph."""

    def __init__(self, workers: int) -> None:
        self._begun = np.zeros(workers)
        self._steps, self._seconds = np.zeros(workers, np.int64), np.zeros((workers, 3))
        self._idle = np.zeros(workers)

    def look(
        self, now: float, steps: npt.NDArray[np.int64], seconds: npt.NDArray[np.float64]
    ) -> dict[str, dict[str, float | None]]:
        """Returns the times of each worker, as in events.Step.

        Args:
            steps: of each worker.
            seconds: for which the steps of each waited for their data, of its exchange with ps, and in all of its
                closures; NaN if unknown.
        """
        new = (steps > 0) & (self._begun == 0)
        self._begun[new], self._steps[new], self._seconds[new] = now, steps[new], seconds[new]
        waited, exchanged, busy = (seconds - self._seconds).T
        # A closure reports at its end, so what it takes counts as idle until then: the sum must not decrease.
        self._idle = np.maximum(self._idle, np.where(self._begun > 0, now - self._begun, 0.0) - busy)
        return {
            f"worker:{i}": {
                "steps_made": int(steps[i] - self._steps[i]),
                **parts(waited[i], exchanged[i], busy[i], self._idle[i]),
            }
            for i in range(len(steps))
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
        """The share of the time of steps in which they waited for data."""
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
