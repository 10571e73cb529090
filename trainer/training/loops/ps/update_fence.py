"""Gradients of a worker go to the ps, and change all variables there or none."""

from __future__ import annotations

import contextlib
import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

import tensorflow as tf

from trainer.training.exchange import step_time
from trainer.training.private import keras_private, tensorflow_patches
from trainer.workloads.types import Optimizer, Strategy, Tensor, Variable

SMALL = 100_000
"""Bytes of a gradient that is sent together with others."""


class Fence:
    """Makes optimizers apply their gradients only if `holds()`, and then to all variables.

    `holds` is evaluated when all gradients and what it takes have arrived on the ps, and what follows does not depend
    on the worker: even if it dies or stops, its update is applied to all variables, or to none. `begun` counts an
    update before the check, `ended` when all variables are updated. If a step has several optimizers, a worker that
    dies between two of them leaves the update of the first; the last one counts the step.
    """

    def __init__(
        self, optimizers: Sequence[Optimizer], begun: tf.Variable, ended: tf.Variable, *, as_bfloat16: bool = False
    ) -> None:
        """
        Args:
            as_bfloat16: whether dense float32 gradients are sent as bfloat16.
        """
        self._begun, self._ended, self._as_bfloat16 = begun, ended, as_bfloat16
        self.holds: Callable[..., Tensor] = lambda: tf.constant(True)
        self.sent: Sequence[Tensor] = ()
        """The arguments of `holds`, which are sent to the ps with the gradients."""
        self.put_aside: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
        """A context in which variables are those on the ps; see `Copies`."""
        self._ready: Tensor | None = None
        for optimizer in optimizers:
            # Of a LossScaleOptimizer that within: the scale may well follow gradients that are not applied.
            within = keras_private.inner(optimizer)
            within.apply = functools.partial(self._apply_if_it_holds, within, within.apply)

    def take_ready(self) -> Tensor:
        """The time at which the gradients of the step that was traced last were computed, before they are sent.

        UNKNOWN if that is within another graph, as a condition of float16. Of several optimizers it is the last one's.
        """
        ready, self._ready = self._ready, None
        known = ready is not None and ready.graph is tf.compat.v1.get_default_graph()
        return ready if known else tf.constant(step_time.UNKNOWN, tf.float64)

    def _apply_if_it_holds(
        self,
        optimizer: Optimizer,
        original: Callable[[list[Tensor], list[Variable]], None],
        grads: list[Tensor],
        trainable_variables: Iterable[Variable] | None = None,
    ) -> None:
        device = keras_private.step_counter(optimizer).value.device
        variables = list(trainable_variables or keras_private.variables_of(optimizer))

        def across(strategy: Strategy, gradients: list[Tensor]) -> None:
            self._ready = step_time.arrived([g for g in gradients if g is not None])
            there = _sent(gradients, variables, as_bfloat16=self._as_bfloat16)
            arrived = [t for t in tf.nest.flatten(there, expand_composites=True) if t is not None]

            def apply() -> bool:
                with tensorflow_patches.updating_together():
                    original(there, variables)
                return True

            apply_if(self.holds, self.sent, self._begun, self._ended, device, arrived, apply)

        # As in Keras' LossScaleOptimizer: in a replica's context no branch may merge_call, which `apply` does.
        with self.put_aside():
            tf.distribute.get_replica_context().merge_call(across, args=(grads,))


def _sent(gradients: Sequence[Tensor], variables: Sequence[Variable], *, as_bfloat16: bool) -> list[Tensor]:
    """The gradients, on the ps of their variables. Small ones go there in one message: most variables of a model with
    normalization are small, and a message takes as long as 100 KB."""
    there, small = list(gradients), defaultdict[tuple[str, tf.DType], list[int]](list)
    for i, (gradient, variable) in enumerate(zip(gradients, variables, strict=True)):
        device = variable.value.device
        if _is_small(gradient):
            small[device, gradient.dtype].append(i)
        elif gradient is not None:  # None: the loss does not use this variable
            there[i] = _moved(gradient, device, as_bfloat16)
    for (device, _), members in small.items():
        flat = [tf.reshape(gradients[i], [-1]) for i in members]
        message = _moved(tf.concat(flat, 0), device, as_bfloat16)
        with tf.device(device):
            parts = tf.split(message, [each.shape[0] for each in flat])
            for i, part in zip(members, parts, strict=True):
                there[i] = tf.reshape(part, gradients[i].shape)
    return there


def _is_small(gradient: Tensor) -> bool:
    dense = isinstance(gradient, tf.Tensor) and gradient.shape.is_fully_defined()
    return dense and gradient.shape.num_elements() * gradient.dtype.size <= SMALL


def _moved(gradient: Tensor, device: str, as_bfloat16: bool) -> Tensor:
    if as_bfloat16 and isinstance(gradient, tf.Tensor) and gradient.dtype == tf.float32:
        rounded = tf.cast(gradient, tf.bfloat16)
        with tf.device(device):
            return tf.cast(rounded, tf.float32)
    with tf.device(device):
        return tf.nest.map_structure(tf.identity, gradient, expand_composites=True)


def apply_if(
    holds: Callable[..., Tensor],
    sent: Sequence[Tensor],
    begun: tf.Variable,
    ended: tf.Variable,
    device: str,
    arrived: Sequence[Tensor],
    apply: Callable[[], bool],
) -> None:
    """Builds the part of a graph that changes variables on the ps, if `holds(*sent)` once all has arrived there."""
    # Places operations without a device on a ps; the default would be the worker.
    with tf.device(device):
        there = [tf.identity(each) for each in sent]
        with tf.control_dependencies([*arrived, *there]):
            began = begun.assign_add(1, read_value=False)
        with tf.control_dependencies([began]):
            held = holds(*there)
        applied = tf.cond(held, apply, lambda: False)
        with tf.control_dependencies([applied]):
            ended.assign_add(1, read_value=False)
