"""A loss or a variable that is not finite ends the job, with the step at which it was found."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trainer.job.errors import Exit, TrainerError

SMALLER_RATE = "lower train.learning_rate, in another model_dir, or look at the data"


def raise_if_not_finite(losses: npt.NDArray[np.floating], step_before: int) -> None:
    """Checks the losses of consecutive steps after step_before.

    Raises:
        TrainerError: Exit.DIVERGED, naming the first step whose loss is not finite.
    """
    bad = np.flatnonzero(~np.isfinite(losses))
    if len(bad):
        step = step_before + int(bad[0]) + 1
        raise TrainerError(f"the loss is {losses[bad[0]]} at step {step}; {SMALLER_RATE}", Exit.DIVERGED)
