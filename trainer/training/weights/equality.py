"""Verifies at each checkpoint that all replicas have the same weights.

They compute the same from the same sums. If they do not, as because a step draws other numbers on each task or changes
weights by itself, a job trains in silence something else than its spec says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from trainer.job.errors import UserError
from trainer.protocol import events
from trainer.training.exchange.averages import sums
from trainer.training.model.state import TrainState
from trainer.training.private.keras_private import inner, path_of, tf_variable, variables_of
from trainer.training.task import TrainingTask
from trainer.workloads.types import Strategy, Tensor, Variable

_MOST = 1 << 16
"""Values of a variable that are compared: of a larger one, those at equal distances."""
_SMALL = 1e-3
"""The size from which a value is compared by its relative difference."""
_ROUNDING = 1e-4
"""Relative difference of a value that rounding may make in a long job, as on processors of several kinds."""


def make_require_equal(strategy: Strategy, job: TrainingTask, state: TrainState) -> Callable[[int], None]:
    """Returns a function that compares the replicas' weights after a step; all tasks call it.

    A line is logged, once, if they differ by no more than rounding may explain.

    Raises, when called:
        UserError: they differ, naming the first variable and the first task that has another than the chief.
    """
    if job.replicas == 1:
        return lambda _: None
    variables = list({id(v): v for each in state.optimizers.values() for v in variables_of(inner(each))}.values())

    @tf.function(autograph=False)
    def gather() -> Tensor:
        return sums(strategy, lambda: [_row(variables, job.replicas)])[0]

    told = False

    def require_equal(step: int) -> None:
        nonlocal told
        bits, values, sizes = gather().numpy().transpose(2, 1, 0)  # each by variable and replica
        if (bits == bits[:, :1]).all():
            return
        for variable, row, size in zip(variables, values, sizes, strict=True):
            count = _count(variable)
            tolerance = _ROUNDING / math.sqrt(count) * max(size.max(), _SMALL * count)
            others = np.flatnonzero(np.abs(row - row[0]) > tolerance)
            if len(others):
                raise UserError(_difference(job, variable, int(others[0]), step))
        if not told and job.task.is_chief:
            text = (
                f"at step {step} the weights of replicas differ by no more than rounding on unlike processors explains"
            )
            job.send(events.Line(f"warning: {text}"))
        told = True

    return require_equal


def _difference(job: TrainingTask, variable: Variable, replica: int, step: int) -> str:
    members = job.task.members()
    kind, index = members[replica // job.local_replicas]
    return (
        f"workload: {job.workload.name}: at step {step} {path_of(variable)} of {kind}:{index} is another than the "
        "chief's: a step must do the same on all tasks; do not change weights without an optimizer, and draw random "
        "numbers by keras.random or tf.random, not by NumPy"
    )


def _row(variables: Sequence[Variable], replicas: int) -> Tensor:
    """The figures of this replica in its row, [replicas, variables, 3], and zeros in the others."""
    replica = tf.distribute.get_replica_context().replica_id_in_sync_group
    figures = tf.stack([_figures(tf.convert_to_tensor(tf_variable(v))) for v in variables])
    return tf.one_hot(replica, replicas, dtype=tf.float64)[:, tf.newaxis, tf.newaxis] * figures


def _figures(value: Tensor) -> Tensor:
    """The sum of a variable's bits, which is exact in float64; that of its values with fixed factors; and that of their
    sizes."""
    flat = tf.reshape(value, [-1])
    flat = flat[:: _stride(value)]
    words = tf.bitcast(flat, tf.int16 if flat.dtype.size == 2 else tf.int32)
    values = tf.cast(flat, tf.float64)
    factors = tf.cos(tf.range(tf.size(flat), dtype=tf.float64))
    return tf.stack([tf.reduce_sum(tf.cast(each, tf.float64)) for each in (words, values * factors, tf.abs(values))])


def _stride(variable: Variable) -> int:
    return max(1, _size(variable) // _MOST)


def _count(variable: Variable) -> int:
    return max(1, -(-_size(variable) // _stride(variable)))


def _size(variable: Variable) -> int:
    return int(np.prod(variable.shape))
