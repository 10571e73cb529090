"""A loss or a variable that is not finite ends the job, with the step at which it was found."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from trainer.job.errors import Exit, TrainerError
from trainer.model_dir.arrays import Array
from trainer.training.inputs import Arrays, unweighted
from trainer.training.inputs.source import Source

SMALLER_RATE = "lower the learning rate, in another model_dir, or look at the data"
_PART = 1 << 18
"""Numbers that a core's cache holds."""
_PARTS = ("x", "y", "sample_weight")


def raise_if_not_finite(losses: npt.NDArray[np.floating], step_before: int, source: Source) -> None:
    """Checks the losses of consecutive steps after step_before.

    Args:
        source: of the examples, in which the cause may be.

    Raises:
        TrainerError: Exit.DIVERGED, naming the first step whose loss is not finite.
    """
    bad = np.flatnonzero(~np.isfinite(losses))
    if len(bad):
        step = step_before + int(bad[0]) + 1
        raise TrainerError(f"the loss is {losses[bad[0]]} at step {step}; {what_to_do(source)}", Exit.DIVERGED)


def is_finite(value: Array) -> bool:
    """Whether all numbers of an array are; it takes no memory that grows with the array."""
    if not np.issubdtype(value.dtype, np.floating) and value.dtype != ml_dtypes.bfloat16:
        return True
    # NaN is the least and the largest of numbers among which it is.
    flat = value.reshape(-1)
    parts = (flat[i : i + _PART] for i in range(0, len(flat), _PART))
    return all(np.isfinite(part.min()) and np.isfinite(part.max()) for part in parts)


def what_to_do(source: Source) -> str:
    """The first example with a value that is not finite, or another advice if there is none, or it is not known."""
    return _bad_row(source) or SMALLER_RATE


def _bad_row(source: Source) -> str:
    source = unweighted(source)
    if not isinstance(source, Arrays) or not isinstance(source.parts, tuple):
        return ""
    for name, part in zip(_PARTS, source.parts, strict=False):
        for tensor in tf.nest.flatten(part):
            if not tensor.dtype.is_floating:
                continue
            values = tf.reshape(tensor, [tensor.shape[0], -1])
            bad = np.flatnonzero(~tf.reduce_all(tf.math.is_finite(values), axis=1).numpy())
            if len(bad):
                rows = "is 1 such row" if len(bad) == 1 else f"are {len(bad)} such rows"
                return f"row {bad[0]} of {name} in the data is not finite (there {rows}): correct it, or leave it out"
    return ""
