"""What a model's `train_step` does, as a trace of it shows: nothing is computed, and no variable changes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from trainer.training.private import keras_patches, keras_private, tensorflow_patches
from trainer.training.runtime import created_variables
from trainer.workloads.types import Metric, Model, Optimizer, Strategy, Tensor, Variable

Empty = npt.NDArray[np.generic]
"""The value of a metric's variable before the first step."""


@dataclass(frozen=True)
class TrainStep:
    """The trace of one step."""

    updates: list[tuple[Optimizer, list[Variable]]] = field(default_factory=list)
    """Each call of an optimizer by a replica, in order, with the variables that it is to update."""
    nested: list[Optimizer] = field(default_factory=list)
    """Those that are called within a graph in that of the step, as of tf.cond, a loop or a tf.function."""
    scaled: list[Tensor] = field(default_factory=list)
    """The losses that the model's optimizer is given for scaling."""
    returned: dict[str, Tensor] = field(default_factory=dict)
    """The values that the step returns, by name."""
    changed: set[int] = field(default_factory=set)
    """Indices of the metrics' variables that are updated."""
    arguments: dict[int, list[Tensor]] = field(default_factory=dict)
    """The (args, kwargs) of a call of `update_state`, by the id of its metric; tensors are tf.TensorSpec."""

    @property
    def optimizers(self) -> list[tuple[Optimizer, list[Variable]]]:
        """Each optimizer, in the order of its last call, with all variables that it updates."""
        last_calls: dict[int, tuple[Optimizer, dict[int, Variable]]] = {}
        for optimizer, variables in self.updates:
            _, known = last_calls.pop(id(optimizer), (optimizer, {}))
            last_calls[id(optimizer)] = optimizer, known | {id(v): v for v in variables}
        return [(optimizer, list(variables.values())) for optimizer, variables in last_calls.values()]


def flat(returned: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The values that a `train_step` returns, with those of dicts in it: the metrics of compile are one metric, which
    gives a dict (pythonify_logs, keras/src/utils/python_utils.py)."""
    values: dict[str, Tensor] = {}
    for name, value in returned.items():
        values |= flat(value) if isinstance(value, Mapping) else {name: value}
    return values


def trace(
    strategy: Strategy,
    model: Model,
    batch: Tensor,
    variables: Sequence[Variable],
    empty: Sequence[Empty],
    watched: Sequence[Metric] = (),
) -> TrainStep:
    """Traces a step, within the strategy's scope.

    Args:
        batch: tf.TensorSpec of each part of a replica's batch.
        variables: of all metrics, with their `empty` values.
        watched: metrics, the arguments of which are to be known.
    """
    traced = TrainStep()
    replicas: list[tuple[int, object]] = []  # those of one task are traced in a thread each

    def record(optimizer: Optimizer, updated: list[Variable] | None) -> None:
        thread, graph = replicas[0]
        if threading.get_ident() == thread:
            traced.updates.append((optimizer, keras_private.variables_of(optimizer) if updated is None else updated))
            if tf.compat.v1.get_default_graph() is not graph:
                traced.nested.append(optimizer)

    def step(batch: Tensor) -> None:
        replicas.append((threading.get_ident(), tf.compat.v1.get_default_graph()))
        drawing = created_variables.drawing(model)
        with keras_patches.hold(variables, empty) as held, tensorflow_patches.as_one_replica(), drawing:
            before = [held.get_current_value(v) for v in variables]
            returned: Mapping[str, Tensor] = model.train_step(batch)
            after = [held.get_current_value(v) for v in variables]
            if isinstance(returned, Mapping):
                traced.returned.update({name: tf.convert_to_tensor(value) for name, value in flat(returned).items()})
        traced.changed.update(i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a is not b)

    undo = [_watch(metric, traced.arguments) for metric in watched]
    if model.optimizer is not None:
        undo.append(_note_scaling(model.optimizer, traced.scaled))
    try:
        with keras_patches.recording_updates(record):
            look = tf.function(lambda batch: strategy.run(step, (batch,)), autograph=False)
            look.get_concrete_function(batch)
    finally:
        for each in undo:
            each()
    return traced


def _note_scaling(optimizer: Optimizer, scaled: list[Tensor]) -> Callable[[], None]:
    original = optimizer.scale_loss

    def scale_loss(loss: Tensor) -> Tensor:
        scaled.append(loss)
        return original(loss)

    optimizer.scale_loss = scale_loss
    return lambda: delattr(optimizer, "scale_loss")


def _watch(metric: Metric, arguments: dict[int, list[Tensor]]) -> Callable[[], None]:
    original = metric.update_state

    def update_state(*args: Tensor, **kwargs: Tensor) -> Tensor:
        def described(value: Tensor) -> Tensor:
            return tf.TensorSpec.from_tensor(value) if tf.is_tensor(value) else value

        arguments[id(metric)] = [tf.nest.map_structure(described, args), tf.nest.map_structure(described, kwargs)]
        return original(*args, **kwargs)

    metric.update_state = update_state
    return lambda: delattr(metric, "update_state")
