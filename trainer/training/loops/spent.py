"""What tasks spend their time on, and ps-workers by the times that their closures report."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def parts(waited: float, exchanged: float, elapsed: float, between: float) -> dict[str, float | None]:
    """Seconds of steps by part, as in events.Step.

    Args:
        waited: for data; NaN if unknown.
        exchanged: NaN if unknown.
        elapsed: in all.
    """
    known = {"seconds_input": waited, "seconds_exchange": exchanged}
    compute = max(0.0, float(elapsed - np.nansum([waited, exchanged])))
    found = {name: None if np.isnan(seconds) else float(seconds) for name, seconds in known.items()}
    return {**found, "seconds_compute": compute, "seconds_wait": float(between)}


class Spent:
    """Seconds and steps since each worker's first report, whose closure traced the graph."""

    def __init__(self, workers: int) -> None:
        self._begun = np.zeros(workers)
        self._steps, self._seconds = np.zeros(workers, np.int64), np.zeros((workers, 3))
        self._idle = np.zeros(workers)

    def look(
        self, now: float, steps: npt.NDArray[np.int64], seconds: npt.NDArray[np.float64]
    ) -> dict[str, dict[str, float | None]]:
        """By worker, as in events.Step.

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
