"""Builds a workload's model, and copies of it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Container, Iterable, Iterator, Mapping

import keras
import tensorflow as tf

from trainer.job.errors import UserError
from trainer.training import inputs
from trainer.training.model import batches
from trainer.training.model.checks import HOW_TO_BUILD, has_own_step, require_labels_for_loss
from trainer.training.private import keras_patches, keras_private
from trainer.training.private.keras_private import all_layers
from trainer.training.runtime import created_variables
from trainer.training.runtime.user_code import calling, essence, hint
from trainer.training.task import TrainingTask
from trainer.workloads.types import Metric, Model, Optimizer


def build_model(job: TrainingTask, warn: Callable[[str], object] | None = None) -> Model:
    """Builds a complete new model of the workload, and sets all random seeds to that of the job before.

    Args:
        warn: is called with each warning about the model.
    """

    variables = created_variables.Created()

    def make() -> Model:
        variables.clear()  # of an attempt before
        keras.utils.set_random_seed(job.spec.train.seed)
        return job.workload.model()

    with keras_patches.noting_created() as created, variables.noting():
        with calling(job.workload.name, "model()"):
            model = keras_patches.named_alike(make)
        if not isinstance(model, keras.Model):
            raise UserError(f"workload: {job.workload.name}: model() must give a Keras model, gave {_kind(model)}")
        declares_inputs = bool(getattr(model, "inputs", None))
        others = [layer for layer in all_layers(model) if layer is not model]
        called = type(model).call is not keras.Model.call
        if has_own_step(model) and all(map(_has_variables, [model, *others] if called else others)):
            for layer in (model, *others):  # such as a GAN, which is never called itself
                layer.built = True
        if not model.built:
            _build(job, model)  # some layers create others in build()
        elif _only_marked_as_built(model):
            _build_marked(job, model)
        created_variables.note(model, variables, declares_inputs=declares_inputs)
        if not job.models:
            job.models.append(model)
    require_new(job, "model()", created, _parts(model))
    if warn:
        for layer in _left_out(model, created):
            warn(
                f"warning: workload: {job.workload.name}: model(): the weights of {type(layer).__name__} "
                f"{layer.name!r} are not in the model and are not trained; call it on a tensor that depends on the "
                "inputs, as ops.zeros_like(x) + ops.arange(n), or make it an attribute of a layer"
            )
    return model


def build_copy(job: TrainingTask) -> Model:
    """Builds the model once more, while another is trained.

    It draws the same random numbers: what the workload computes in model() becomes a constant of the model, is none of
    its variables, and so is not given to the copy. For the rest of the program no numbers are drawn.
    """
    with keras_patches.keeping_random_state():
        return build_model(job)


def _left_out(model: Model, created: Mapping[int, object]) -> list[Model]:
    """Layers with weights that Keras has not found in the model, such as one that was called on constants alone: Keras
    makes a constant of its result.

    Those of another model, as one of whose layers only the first are taken, are not meant.
    """
    layers = [each for each in created.values() if isinstance(each, keras.layers.Layer)]
    known = {id(each) for each in all_layers(model)}
    known |= {id(part) for each in layers for part in all_layers(each) if part is not each}
    others = [each for each in layers if id(each) not in known and not isinstance(each, keras.Model)]
    return [each for each in others if each.built and each.trainable_variables and not keras_private.was_called(each)]


def _parts(model: Model) -> list[Model | Optimizer | Metric]:
    """What copies of a model must not share: layers that are trained, optimizers and metrics."""
    layers = [layer for layer in all_layers(model) if layer.trainable_variables]
    optimizers = [each for each in _values(vars(model)) if isinstance(each, keras.optimizers.Optimizer)]
    return [
        *layers,
        *optimizers,
        *map(keras_private.inner, optimizers),
        *model.metrics,
        *keras_private.metrics_of_compile(model),
    ]


def _values(collection: Iterable[object]) -> Iterator[object]:
    """What lists, tuples and dicts hold, at any depth; one may hold itself."""
    rest, seen = [collection], set[int]()
    while rest:
        if id(each := rest.pop()) in seen:
            continue
        seen.add(id(each))
        for value in each.values() if isinstance(each, dict) else each:
            if isinstance(value, (list, tuple, dict)):
                rest.append(value)
            else:
                yield value


def require_new(
    job: TrainingTask, function: str, created: Container[int], parts: Iterable[Model | Optimizer | Metric]
) -> None:
    """Checks that a call of the workload's function has created what it gives.

    Otherwise the model that is trained and its copies, as for validation and export, have variables in common.

    Args:
        created: ids of what the call has created.

    Raises:
        UserError: something is older, such as a layer at the top of the file.
    """
    for part in parts:
        if id(part) not in created:
            raise UserError(
                f"workload: {job.workload.name}: {function}: {type(part).__name__} {part.name!r} was created outside "
                f"it, and several models would share it; create it within {function}"
            )


def _build(job: TrainingTask, model: Model) -> None:
    """Creates the variables of a model without Input, as fit does before its first step: it sees a batch."""
    x = batches.x_spec(job)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the error that follows, without its text
            model(tf.nest.map_structure(_symbolic, x))
    except Exception as error:
        inputs.require_one_split(job.training)
        require_labels_for_loss(job, model, job.training)
        reason = str(error).rpartition("Error encountered:")[2]
        what = f"workload: {job.workload.name}: model() must give a built model, and a call does not build it"
        raise UserError(f"{what} ({type(error).__name__}: {essence(reason)}); {hint(reason) or HOW_TO_BUILD}") from None


def _only_marked_as_built(model: Model) -> bool:
    """Whether model() has called `build` of a model that has none: Keras marks it as built, and builds no layer in it
    (`Layer.build`, keras/src/layers/layer.py)."""
    parts = all_layers(model)
    return type(model).build is keras.Model.build and not all(map(_has_variables, parts))


def _build_marked(job: TrainingTask, model: Model) -> None:
    """Builds a model that is only marked as built."""
    model.built = False
    try:
        _build(job, model)
    except UserError:
        if not has_own_step(model):
            raise
        model.built = True  # its step may not call it, nor the layer that has no variables


def _symbolic(part: tf.TensorSpec) -> keras.KerasTensor:
    return keras.KerasTensor((None, *part.shape[1:]), keras.backend.standardize_dtype(part.dtype))


def _has_variables(layer: keras.layers.Layer) -> bool:
    """Whether the layer has all its variables: it is built, or its class has no build() that would create some."""
    return bool(layer.built or type(layer).build is keras.layers.Layer.build)


def _kind(value: object) -> str:
    kind = type(value)
    if any(base.__module__.startswith("tf_keras.") for base in kind.__mro__):
        return f"{kind.__name__} of tf_keras (Keras 2); import keras, or leave TF_USE_LEGACY_KERAS out"
    return kind.__name__
