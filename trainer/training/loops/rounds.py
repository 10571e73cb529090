"""Rounds of local steps: each replica trains on its own batches alone, then the weights of all are averaged
(communication.every).

Local SGD (arXiv 1805.09767); after first steps in sync, post-local SGD (arXiv 1808.07217); with an outer optimizer,
DiLoCo (arXiv 2311.08105).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import keras
import tensorflow as tf

from trainer.job.errors import UserError
from trainer.job.spec import Communication, JobSpec, Outer
from trainer.training.exchange import averages
from trainer.training.model.state import TrainState
from trainer.training.private import keras_patches, keras_private
from trainer.training.runtime import created_variables
from trainer.workloads.types import Model, Optimizer, Strategy, Tensor, Variable


def local(communication: Communication, step: int) -> bool:
    """Whether the step after this one is of a replica alone."""
    return communication.every > 1 and step >= communication.warmup_steps


def steps_left(communication: Communication, step: int) -> int:
    """Steps until the next end of a round, or the last step in sync. Rounds end at the same steps whatever happens in
    between: what ends one early, such as a checkpoint, does not move the others."""
    if step < communication.warmup_steps:
        return communication.warmup_steps - step
    return communication.every - (step - communication.warmup_steps) % communication.every


def make_outer(outer: Outer | None, model: Model) -> Optimizer | None:
    """The outer optimizer. Its momentum is part of the checkpoints, and all replicas compute the same."""
    if outer is None:
        return None
    optimizer = keras.optimizers.SGD(outer.learning_rate, momentum=outer.momentum, nesterov=True)
    keras_patches.replace_gradient_sum(optimizer, lambda _: list)
    optimizer.build(model.trainable_variables)
    return optimizer


class Rounds:
    """The rounds of a job. Its methods do nothing if it has none."""

    def __init__(self, strategy: Strategy, spec: JobSpec, state: TrainState) -> None:
        """To be called within the strategy's scope."""
        self._given = spec.communication
        self._open = False
        """Whether replicas have trained alone since their weights were the same."""
        self._apart = False
        """Whether replicas have trained alone since what their optimizers keep was the same."""
        if self._given.every == 1:
            return
        _require_listed(state)
        weights, small = list(state.model.trainable_variables), self._given.gradients == "bfloat16"
        before = []
        if state.outer or small:
            before = [created_variables.own(tf.zeros(v.shape, v.dtype)) for v in weights]
        self._begin, self._end = _make_graphs(strategy, weights, before, state.outer, small=small)
        slots = [v for each in (state.optimizer, *state.others) for v in keras_private.slots(each)]
        self._average_slots = averages.make_average(strategy, slots)

    def begin(self, step: int) -> bool:
        """To be called before steps are made after `step`; returns whether they are of each replica alone."""
        if not local(self._given, step):
            return False
        if not self._open:
            self._begin()
            self._open = self._apart = True
        return True

    def end_at(self, step: int) -> float:
        """Averages the weights, if a round ends at this step; returns the seconds that this took."""
        if not self._open or steps_left(self._given, step) < self._given.every:
            return 0.0
        begun = time.perf_counter()
        self._end_round()
        return time.perf_counter() - begun

    def end(self) -> None:
        """Makes all replicas the same, for a checkpoint: ends the round early, and averages also what the optimizers
        keep. Between checkpoints each replica keeps that for itself, as in DiLoCo."""
        self._end_round()
        if self._apart:
            self._average_slots()
            self._apart = False

    def _end_round(self) -> None:
        if self._open:
            self._end()
            self._open = False


def _require_listed(state: TrainState) -> None:
    listed = {id(v) for v in state.model.trainable_variables}
    updated = [v for each in state.optimizers.values() for v in keras_private.variables_of(keras_private.inner(each))]
    if others := [v for v in updated if id(v) not in listed]:
        raise UserError(
            f"communication.every: {keras_private.path_of(others[0])} is trained and is none of the model's trainable "
            "variables, whose mean ends a round; create it with self.add_weight(), or remove communication.every"
        )


def _make_graphs(
    strategy: Strategy,
    weights: Sequence[Variable],
    before: Sequence[Variable],
    outer: Optimizer | None,
    *,
    small: bool,
) -> tuple[Callable[[], None], Callable[[], None]]:
    """Functions that begin and end a round.

    Args:
        before: variables for the weights that a round begins with; empty if they are not needed.
        small: sends the change of the weights as bfloat16.
    """

    @tf.function(autograph=False)
    def begin() -> None:
        for v, kept in zip(weights, before, strict=True):
            kept.assign(v.value)

    def to_send() -> list[Tensor]:
        values = [tf.convert_to_tensor(v.value) for v in weights]
        if before:
            values = [value - kept for value, kept in zip(values, before, strict=True)]
        if small:
            values = [tf.cast(value, tf.bfloat16) for value in values]
        return values

    @tf.function(autograph=False)
    def end() -> None:
        sums = averages.sums(strategy, to_send)
        means = [tf.cast(each, v.dtype) / strategy.num_replicas_in_sync for each, v in zip(sums, weights, strict=True)]
        if outer is None:
            for i, v in enumerate(weights):
                v.assign(before[i] + means[i] if before else means[i])
            return
        for v, kept in zip(weights, before, strict=True):
            v.assign(kept)
        strategy.run(outer.apply, args=([-mean for mean in means], weights))

    return (begin if before else lambda: None), end
