"""Gradients in fewer bytes (communication.gradients), with error feedback: what one step leaves out is added to the
gradient of the next (arXiv 1901.09847)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import keras
import tensorflow as tf

from trainer.training.private.keras_patches import AddUp, replace_gradient_sum
from trainer.training.runtime import created_variables
from trainer.workloads.types import Optimizer, Tensor, Variable

Pairs = list[tuple[Tensor, Variable]]
SEED = 7
"""The seed of the first guess of a gradient's columns, which is the same on all replicas."""


def to_bfloat16(optimizer: Optimizer, *, feedback: bool) -> None:
    """Makes an optimizer sum gradients over replicas in bfloat16, half the bytes of float32. Updates stay float32, and
    sparse gradients are sent unchanged.

    Args:
        feedback: whether what is rounded off is kept for the next step. Not with a loss scale, which may change, and
            after an overflow what is kept would not be finite.
    """
    kept: dict[int, Variable] = {}

    def replacement(add_up: AddUp) -> AddUp:
        def add_up_rounded(gradients: Iterable[tuple[Tensor, Variable]]) -> Pairs:
            pairs = list(gradients)
            rounded = [(_rounded(g, kept.get(_key(v))) if _is_dense(g) else g, v) for g, v in pairs]
            return [
                (tf.cast(total, g.dtype) if _is_dense(g) else total, v)
                for (total, v), (g, _) in zip(add_up(rounded), pairs, strict=True)
            ]

        return add_up_rounded

    def build(variables: Sequence[Variable]) -> None:
        kept.update({_key(v): _of_replica(v.shape) for v in variables if v.dtype == "float32"})

    replace_gradient_sum(optimizer, replacement)
    if feedback:
        _keep(optimizer, build, lambda: [(v, tf.zeros_like(v)) for v in kept.values()])


def _rounded(gradient: Tensor, kept: Variable | None) -> Tensor:
    if kept is None:
        return tf.cast(gradient, tf.bfloat16)
    # In place: two new tensors less took 0.8 of the time.
    rounded = tf.cast(tf.convert_to_tensor(kept.assign_add(gradient)), tf.bfloat16)
    with tf.control_dependencies([rounded]):
        kept.assign_sub(tf.cast(rounded, gradient.dtype))
    return rounded


@dataclass
class _LowRank:
    """What is kept of a gradient."""

    left_out: Variable
    """What earlier steps have left out of this replica's gradient, as a matrix."""
    guess: Variable
    """The step before's guess of the space of the gradient's columns; the same on all replicas."""
    first: Tensor
    """The guess with which the first step begins."""


def to_low_rank(optimizer: Optimizer, rank: int, replicas: int) -> None:
    """Makes an optimizer sum dense gradients over replicas as products of two thin matrices: PowerSGD (arXiv
    1905.13727). Gradients that would not become smaller, and sparse ones, are sent unchanged."""
    states: dict[int, _LowRank] = {}

    def replacement(add_up: AddUp) -> AddUp:
        def add_up_low_rank(gradients: Iterable[tuple[Tensor, Variable]]) -> Pairs:
            pairs = list(gradients)
            dense = {i: states[_key(v)] for i, (g, v) in enumerate(pairs) if _is_dense(g) and _key(v) in states}
            matrices = {i: tf.reshape(pairs[i][0], s.left_out.shape) + s.left_out for i, s in dense.items()}
            thin = {i: tf.matmul(matrices[i], s.guess) for i, s in dense.items()}
            sums = [total for total, _ in add_up((thin.get(i, g), v) for i, (g, v) in enumerate(pairs))]
            bases = {i: tf.linalg.qr(sums[i]).q for i in dense}
            columns = add_up((tf.matmul(matrices[i], bases[i], transpose_a=True), pairs[i][1]) for i in dense)
            for (i, state), (column, _) in zip(dense.items(), columns, strict=True):
                total = tf.matmul(bases[i], column, transpose_b=True)
                state.left_out.assign(matrices[i] - total / replicas)
                state.guess.assign(column)
                sums[i] = tf.reshape(total, pairs[i][0].shape)
            return [(total, v) for total, (_, v) in zip(sums, pairs, strict=True)]

        return add_up_low_rank

    def build(variables: Sequence[Variable]) -> None:
        for i, v in enumerate(variables):
            rows, columns = math.prod(v.shape[:-1]), v.shape[-1] if v.shape else 1
            if v.dtype == "float32" and 2 * rank * (rows + columns) < rows * columns:
                first = tf.random.stateless_normal([columns, rank], [SEED, i])
                states[_key(v)] = _LowRank(_of_replica([rows, columns]), _of_replica([columns, rank]), first)

    def begin() -> list[tuple[Variable, Tensor]]:
        left_out = [(s.left_out, tf.zeros_like(s.left_out)) for s in states.values()]
        return left_out + [(s.guess, s.first) for s in states.values()]

    replace_gradient_sum(optimizer, replacement)
    _keep(optimizer, build, begin)


def forget(optimizer: Optimizer) -> None:
    """Begins anew with what replicas keep. At a checkpoint, which has none of it: a job that resumes from one and a job
    that goes on then train alike."""
    getattr(optimizer, "forget", lambda: None)()


def _keep(
    optimizer: Optimizer,
    build: Callable[[Sequence[Variable]], None],
    begin: Callable[[], list[tuple[Variable, Tensor]]],
) -> None:
    """Has an optimizer build state of its replicas with its own variables; `begin` gives the values that it has then,
    and at each call of `forget`."""
    original = optimizer.build

    def forget() -> None:
        for variable, value in begin():
            variable.assign(value)

    def build_both(variables: Sequence[Variable]) -> None:
        original(variables)
        build(list(variables))
        forget()

    optimizer.build, optimizer.forget = build_both, forget


def _of_replica(shape: Sequence[int]) -> Variable:
    """A variable that has another value on each replica, and is in no checkpoint."""
    return created_variables.own(
        tf.zeros(shape), synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
    )  # fmt: skip


def _key(variable: Variable) -> int:
    """The same of a Keras variable, with which an optimizer is built, and of the variable within it, which comes with
    a gradient."""
    return id(variable.value if isinstance(variable, keras.Variable) else variable)


def _is_dense(gradient: Tensor) -> bool:
    return isinstance(gradient, tf.Tensor) and gradient.dtype == tf.float32
