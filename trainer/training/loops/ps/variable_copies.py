"""Copies of a job's variables on the ps-worker that runs a graph, in place of those on the ps."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence

import tensorflow as tf

from trainer.job.errors import UserError
from trainer.training.exchange import step_time
from trainer.training.private import keras_private, tensorflow_private
from trainer.training.private.tensorflow_private import Internal
from trainer.training.runtime.created_variables import OWN
from trainer.workloads.types import Tensor, Variable


class Copies:
    """Copies of Keras variables. Those of a worker keep their memory from one call of the graph to the next."""

    def __init__(self, variables: Sequence[Variable], rounded: Collection[Variable]) -> None:
        """
        Args:
            rounded: those of the variables that are read in bfloat16 (communication.weights).
        """
        self.variables = list(variables)
        self._rounded = {id(v) for v in rounded}
        self._own = [keras_private.tf_variable(v) for v in self.variables]
        self._name = f"{OWN}_{uuid.uuid4().hex}"
        self._copies: list[Variable] | None = None

    def read(self) -> list[Tensor]:
        """Builds the part of a graph that sets the copies to the values on the ps; returns these values."""
        values = []
        for v, on_ps in zip(self.variables, self._own, strict=True):
            if id(v) in self._rounded:
                with tf.device(on_ps.device):
                    small = tf.cast(on_ps, tf.bfloat16)
                values.append(tf.cast(small, on_ps.dtype))
            else:
                values.append(tf.identity(on_ps))
        self._copies = [
            tensorflow_private.named_variable(f"{self._name}_{i}", on_ps) for i, on_ps in enumerate(self._own)
        ]
        for copy, value in zip(self._copies, values, strict=True):
            copy.assign(value, read_value=False)
        return values

    def values(self) -> list[Tensor]:
        """What the copies are now."""
        assert self._copies is not None
        return [copy.read_value() for copy in self._copies]

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Within, the Keras variables are the copies to what is traced."""
        assert self._copies is not None
        with keras_private.replaced(self.variables, self._copies):
            yield

    @contextlib.contextmanager
    def of_a_step(self) -> Iterator[None]:
        """Within, the Keras variables are copies that were just read, and a step is traced.

        Raises:
            UserError: the step assigns to a copy, so that the variable on the ps would not change.
        """
        self.read()
        with self.in_use(), step_time.added() as made:
            yield
        self._require_unchanged(made.operations)

    def _require_unchanged(self, operations: Iterable[Internal]) -> None:
        assert self._copies is not None
        paths = {copy.handle.name: v.path for copy, v in zip(self._copies, self.variables, strict=True)}
        for op in operations:
            if op.type.startswith(("Assign", "ResourceScatter")) and op.inputs and op.inputs[0].name in paths:
                path = paths[op.inputs[0].name]
                raise UserError(
                    f"communication.weights: bfloat16: {path} is changed within the step, not by its optimizer alone "
                    "(as by SpectralNormalization); remove it"
                )

    @contextlib.contextmanager
    def put_aside(self) -> Iterator[None]:
        """Within, they are those on the ps again."""
        with keras_private.replaced(self.variables, self._own):
            yield
