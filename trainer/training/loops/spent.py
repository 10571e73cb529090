"""What the workers of parameter_server spend their time on, by the times that their closures report."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


class Spent:
    """Seconds and steps since each worker's first report, whose closure traced the graph."""

    def __init__(self, workers: int) -> None:
        self._begun = np.zeros(workers)
        self._steps, self._seconds = np.zeros(workers, np.int64), np.zeros((workers, 2))
        self._idle = np.zeros(workers)

    def look(
        self, now: float, steps: npt.NDArray[np.int64], seconds: npt.NDArray[np.float64]
    ) -> dict[str, dict[str, float]]:
        """By worker, as in events.Step.

        Args:
            steps: of each worker.
            seconds: for which the steps of each waited for their data, and in all of its closures.
        """
        new = (steps > 0) & (self._begun == 0)
        self._begun[new], self._steps[new], self._seconds[new] = now, steps[new], seconds[new]
        waited, busy = (seconds - self._seconds).T
        # A closure reports at its end, so what it takes counts as idle until then: the sum must not decrease.
        self._idle = np.maximum(self._idle, np.where(self._begun > 0, now - self._begun, 0.0) - busy)
        return {
            f"worker:{i}": {
                "steps_made": int(steps[i] - self._steps[i]),
                "seconds_input": float(waited[i]),
                "seconds_compute": float(max(0.0, busy[i] - waited[i])),
                "seconds_wait": float(self._idle[i]),
            }
            for i in range(len(steps))
        }
