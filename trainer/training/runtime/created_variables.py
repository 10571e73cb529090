"""The variables that the user's code has created: those of a model, and others that neither Keras nor TensorFlow lists,
such as a tf.Variable at the top of the file or in an attribute of a layer."""

from __future__ import annotations

import contextlib
import random
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import keras
import tensorflow as tf

from trainer.training.private import keras_private
from trainer.workloads.types import Model, Variable

OWN = "trainer_own"
"""Begins the names of the variables of trainer's loops."""


class Created:
    """Variables in the order in which they were created."""

    def __init__(self) -> None:
        self._variables: list[weakref.ref[Variable]] = []

    def clear(self) -> None:
        self._variables.clear()

    def add(self, variable: Variable) -> None:
        self._variables.append(weakref.ref(variable))

    def alive(self) -> list[Variable | None]:
        """The variables; None for one that nobody holds any more."""
        return [variable() for variable in self._variables]

    @contextlib.contextmanager
    def noting(self) -> Iterator[None]:
        """Within, adds each tf.Variable that this thread creates, also those within the variables of Keras."""

        def create(make: Callable[..., Variable], **arguments: object) -> Variable:
            variable = make(**arguments)
            if arguments.get("name") != OWN:
                self.add(variable)
            return variable

        with tf.variable_creator_scope(create):
            yield


def own(value: object, **arguments: object) -> tf.Variable:
    """A variable of a loop of trainer's, which is in no checkpoint."""
    return tf.Variable(value, name=OWN, trainable=False, **arguments)


@dataclass
class _Made:
    """What a call of model() has created beside the model."""

    generator: keras.random.SeedGenerator
    """From which its layers draw if they have no seed of their own, see `drawing`."""
    others: list[weakref.ref[Variable]]
    """The variables that the model does not list."""
    described: list[str]
    """The same, by name, type and shape."""
    declares_inputs: bool
    """Whether it begins with an Input, and is not built for the data."""


_made: weakref.WeakKeyDictionary[Model, _Made] = weakref.WeakKeyDictionary()


def note(model: Model, created: Created, *, declares_inputs: bool) -> None:
    """Notes what was created with a model, while that is still noted, and makes the generator from which it draws
    without a seed.

    Keras would make that one in the first draw, within the trace of a step, where it cannot. It is the same as Keras'
    own would be, and what is drawn by Python's `random` does not depend on it.
    """
    drawn = random.getstate()
    generator = keras.random.SeedGenerator()
    random.setstate(drawn)
    listed = {id(keras_private.tf_variable(v)) for v in model.variables}
    others = [v for v in created.alive() if v is not None and id(v) not in listed]
    described = [f"{v.name} {v.dtype.name} {v.shape}" for v in others]
    _made[model] = _Made(generator, [weakref.ref(v) for v in others], described, declares_inputs)


def of(model: Model) -> list[Variable | None]:
    """The variables that were created with a model and that it does not list: those of its copies have the same places
    if they are `alike`."""
    return [variable() for variable in _made[model].others]


def alike(model: Model, other: Model) -> bool:
    """Whether two calls of model() have created the same variables. They have not if the first one has imported a
    module that creates some, or keeps some for the next."""
    return _made[model].described == _made[other].described


def declares_inputs(model: Model) -> bool:
    """Whether a model has named the types of its inputs, by an Input."""
    return _made[model].declares_inputs


@contextlib.contextmanager
def drawing(model: Model) -> Iterator[None]:
    """Within, in this thread, random numbers without a seed are drawn from the model's own generator: each replica has
    it, it is in checkpoints, and the copy that is evaluated has another.

    A model of which nothing was noted draws as by Keras.
    """
    made = _made.get(model)
    with keras_private.drawing_from(made.generator) if made else contextlib.nullcontext():
        yield
