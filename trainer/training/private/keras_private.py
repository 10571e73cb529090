"""Every private part of Keras that trainer reads or calls, to be reviewed at each upgrade.

Each function names the source file, the reason, and the test that fails when an upgrade changes what it relies on.
keras_patches.py has the parts that trainer replaces.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trainer.workloads.types import Callback, Model, Optimizer, Tensor, Variable

if TYPE_CHECKING:
    import keras
    import tensorflow as tf


def step_counter(optimizer: Optimizer) -> Variable:
    """The variable that counts an optimizer's calls (keras/src/optimizers/base_optimizer.py).

    The public `iterations` counts updates: with accumulated gradients one for several calls, as a tensor.
    Test: test_a_compiled_optimizer_counts_steps_and_not_updates.
    """
    return inner(optimizer)._iterations


def inner(optimizer: Optimizer) -> Optimizer:
    """The optimizer within a LossScaleOptimizer, or else the optimizer itself."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def slots(optimizer: Optimizer) -> list[Variable]:
    """What an optimizer keeps of the gradients, such as momentum; not its counter and its learning rate.

    Test: tests/unit/training/loops/test_rounds.py.
    """
    import keras

    others = {id(optimizer.iterations), id(optimizer._learning_rate)}
    slots = [v for v in optimizer.variables if id(v) not in others]
    return [v for v in slots if keras.backend.is_float_dtype(v.dtype)]


def adam_slots(optimizer: Optimizer, variable: Variable) -> tuple[Variable, Variable]:
    """Adam's momentum and velocity of a variable (keras/src/optimizers/adam.py), for one fused update (adam.py).

    Test: tests/unit/training/private/test_adam.py, which compares with Keras' own update.
    """
    index = optimizer._get_variable_index(variable)
    return optimizer._momentums[index], optimizer._velocities[index]


def tf_variable(variable: Variable) -> tf.Variable:
    """The tf.Variable within a Keras variable, or itself; `value` may be a cast of it
    (keras/src/backend/common/variables.py).

    Test: tests/unit/training/loops/ps/test_variable_copies.py.
    """
    return vars(variable).get("_value", variable)


@contextlib.contextmanager
def replaced(variables: Sequence[Variable], others: Sequence[tf.Variable]) -> Iterator[None]:
    """Within, Keras variables have other tf.Variables.

    A StatelessScope has tensors instead, which optimizers of the TensorFlow backend cannot update
    (keras/src/backend/tensorflow/optimizer.py).
    Test: tests/unit/training/loops/ps/test_variable_copies.py.
    """
    before = [v._value for v in variables]
    for v, other in zip(variables, others, strict=True):
        v._value = other
    try:
        yield
    finally:
        for v, value in zip(variables, before, strict=True):
            v._value = value


def path_of(variable: Variable) -> str:
    """The path of a Keras variable, or the name of one of TensorFlow's."""
    return str(getattr(variable, "path", variable.name))


@contextlib.contextmanager
def drawing_from(generator: keras.random.SeedGenerator) -> Iterator[None]:
    """Within, in this thread, random numbers without a seed are drawn from a generator
    (`global_seed_generator`, keras/src/random/seed_generator.py).

    Test: tests/unit/training/runtime/test_created_variables.py.
    """
    from keras.src.backend.common import global_state
    from keras.src.random.seed_generator import GLOBAL_SEED_GENERATOR

    before = global_state.get_global_attribute(GLOBAL_SEED_GENERATOR)
    global_state.set_global_attribute(GLOBAL_SEED_GENERATOR, generator)
    try:
        yield
    finally:
        global_state.set_global_attribute(GLOBAL_SEED_GENERATOR, before)


def created_as_not_trainable(model: Model) -> Iterator[Variable]:
    """Variables of all layers that were created as not trainable, and random seeds (keras/src/layers/layer.py).

    The public `non_trainable_variables` also has the weights of a frozen layer, which no layer updates by itself.
    Test: tests/unit/training/exchange/test_averages.py.
    """
    for layer in all_layers(model):
        yield from own_variables(layer)


def own_variables(layer: Model) -> Iterator[Variable]:
    """The same of one layer, without those in it."""
    yield from layer._non_trainable_variables
    yield from (generator.state for generator in layer._seed_generators)


def all_layers(model: Model) -> Iterator[Model]:
    """A model and all layers in it, also those that are attributes of others (keras/src/layers/layer.py).

    Test: tests/unit/training/weights/test_init_from.py.
    """
    yield from model._flatten_layers()


def was_called(layer: Model) -> bool:
    """Whether the layer was called on a symbolic tensor outside of other layers (keras/src/ops/node.py).

    Test: test_weights_that_are_not_in_the_model_are_reported.
    """
    return bool(layer._inbound_nodes)


def metrics_of_compile(model: Model) -> list[keras.metrics.Metric]:
    """The metrics that compile was given as objects (`CompileMetrics`, keras/src/trainers/compile_utils.py), which are
    attributes of the model only once it is built on data.

    Test: tests/unit/training/model/test_checks.py.
    """
    import keras

    return [each for each in _given_metrics(model) if isinstance(each, keras.metrics.Metric)]


def _given_metrics(model: Model) -> list[Any]:
    """What compile was given as metrics: names, functions and objects."""
    import keras

    compiled = model._compile_metrics
    metrics: list[Any] = [] if compiled is None else [compiled._user_metrics, compiled._user_weighted_metrics]
    return [each for each in keras.tree.flatten(metrics) if each is not None]


def loss_weights(model: Model) -> list[object]:
    """The loss_weights that compile was given (`CompileLoss`, keras/src/trainers/compile_utils.py).

    Test: test_metrics_as_the_third_argument_of_compile_are_refused_with_the_fix.
    """
    import keras

    loss = model._compile_loss
    return [] if loss is None or loss._user_loss_weights is None else keras.tree.flatten(loss._user_loss_weights)


def weight_groups(model: Model) -> dict[str, tuple[str | None, Mapping[str, Variable]]]:
    """The groups of a model's weights as Keras saves them (keras/src/saving/saving_lib.py, `_save_state`): by path the
    layer's name and its variables.

    Test: tests/unit/training/weights/test_init_from.py.
    """
    from keras.src.saving import saving_lib

    groups: dict[str, tuple[str | None, Mapping[str, Variable]]] = {}

    class Recorder(saving_lib.NpzIOStore):  # type: ignore[misc]
        def __init__(self) -> None:
            pass

        def make(self, path: str, metadata: Mapping[str, str] | None = None) -> dict[str, Variable]:
            made: dict[str, Variable] = {}
            groups[path] = ((metadata or {}).get("name"), made)
            return made

    saving_lib._save_state(model, weights_store=Recorder(), assets_store=None, inner_path="", visited_saveables=set())
    return groups


def build_compiled(model: Model, batch: Tensor) -> None:
    """Creates the variables of a compiled model's losses and metrics, as fit does before its first step
    (`Trainer._symbolic_build`, keras/src/trainers/trainer.py).

    It would also build the optimizer, on all variables: a `train_step` of the model's own may use another one. And it
    calls the model with the first part of the batch, although a `train_step` may give all parts to `call`, as of
    triplets: without losses and metrics it is left out.
    If the model cannot be called on x, as without a `call`, and has a `train_step` of its own, losses and metrics are
    built for predictions that are like the labels: that decides only what "accuracy" and "crossentropy" stand for.
    Tests: tests/unit/training/model/test_compiled.py, test_losses_of_compile_are_there_for_a_train_step_without_call.

    Args:
        batch: KerasTensors as of a batch of (x, y) or (x, y, sample_weight).

    Raises:
        ValueError: what compile was given depends on the shape of predictions, which is not known.
    """
    import keras

    if model._compile_loss is None and not _given_metrics(model):
        return
    optimizer, model.optimizer = model.optimizer, None
    try:
        model._symbolic_build(data_batch=batch)
    except (RuntimeError, ValueError, TypeError):
        if type(model).train_step is keras.Model.train_step:
            raise
        _build_for_labels(model, batch)
    finally:
        model.optimizer = optimizer


def _build_for_labels(model: Model, batch: Tensor) -> None:
    import keras

    x, y, _ = keras.utils.unpack_x_y_sample_weight(batch)
    loss = model._compile_loss
    given = _given_metrics(model) + ([] if loss is None else keras.tree.flatten(loss._user_loss))
    if by_shape := [each for each in given if each in ("accuracy", "acc", "crossentropy", "ce")]:
        raise ValueError(
            f"{by_shape[0]!r} depends on the shape of predictions, and the model cannot be called on x: define "
            "call(self, x), or name a class, as keras.metrics.SparseCategoricalAccuracy()"
        )
    labels = keras.tree.map_structure(
        lambda part: keras.KerasTensor(part.shape, keras.backend.standardize_dtype(part.dtype)), x if y is None else y
    )
    for part in (loss, model._compile_metrics):
        if part is not None and not part.built:
            part.build(labels, labels)


def variables_of(optimizer: Optimizer) -> list[Variable]:
    """The variables that an optimizer was built to update (keras/src/optimizers/base_optimizer.py).

    Test: test_an_optimizer_may_be_given_gradients_alone.
    """
    return list(optimizer._trainable_variables)


def averages_of(optimizer: Optimizer) -> list[tuple[Variable, Variable]]:
    """The variables of which an optimizer keeps averages, and these (keras/src/optimizers/base_optimizer.py).

    Test: test_of_a_job_with_use_ema_the_exported_weights_are_taken.
    """
    if optimizer is None or not optimizer.use_ema or not optimizer.built:
        return []
    pairs = zip(variables_of(optimizer), optimizer._model_variables_moving_average, strict=True)
    return [(variable, average) for variable, average in pairs if average is not None]


def is_default_hook(hook: Callable[..., object]) -> bool:
    """Whether a method of a callback is the empty one of Keras (`utils.default`, keras/src/utils/python_utils.py).

    Keras asks the same of callbacks (keras/src/callbacks/callback_list.py).
    Test: test_callbacks_with_hooks_of_batches_are_found.
    """
    return bool(getattr(hook, "_is_default", False))


def has_settable_rate(optimizer: Optimizer) -> bool:
    """Whether an optimizer's learning rate is a variable, not a schedule (keras/src/optimizers/base_optimizer.py).

    Test: test_a_rate_that_follows_a_schedule_is_not_set.
    """
    import keras

    return isinstance(getattr(optimizer, "_learning_rate", None), keras.Variable)


def rate(optimizer: Optimizer) -> float:
    """An optimizer's learning rate; NaN if it follows a schedule."""
    if not has_settable_rate(optimizer):
        return float("nan")
    # convert_to_numpy of a keras.Variable is slower by far.
    return float(optimizer.learning_rate.value.numpy())


def decide_direction(callback: Callback) -> None:
    """Has a callback that monitors a metric decide whether more of it is better, and negate `min_delta` accordingly.

    Keras does so at the end of the first epoch (keras/src/callbacks/monitor_callback.py), too late for a callback that
    goes on with the state of an earlier process.
    Test: test_a_killed_job_goes_on_in_the_middle_of_an_epoch_with_the_state_of_its_callbacks.
    """
    if hasattr(callback, "_set_monitor_op") and callback.monitor_op is None:
        callback._set_monitor_op()


def traces_batches(callback: Callback) -> bool:
    """Whether a TensorBoard callback traces batches (keras/src/callbacks/tensorboard.py).

    Test: test_callbacks_with_hooks_of_batches_are_found.
    """
    return bool(callback._should_trace)


def flush_summaries(callback: Callback) -> None:
    """Writes what a TensorBoard callback keeps in memory (keras/src/callbacks/tensorboard.py): a process that is killed
    would lose up to two minutes of it.

    Test: test_summaries_are_on_disk_at_the_end_of_an_epoch.
    """
    import keras

    if isinstance(callback, keras.callbacks.TensorBoard):
        for writer in callback._writers.values():
            writer.flush()


def export(model: Model, folder: str, x: Tensor = None) -> None:
    """Writes a SavedModel for inference, as `Model.export` is meant to (keras/src/export/saved_model.py).

    That one calls the model without `training`: a layer with `call(x, training=True)`, such as RandomTranslation, is
    random in what it writes. The input signature is private. Of a model without Input it has float32 for whatever the
    data are (`_infer_input_signature_from_model`, keras/src/export/export_utils.py).
    Tests: tests/unit/training/outputs/test_reload.py, with the case "augments"; tests/unit/training/outputs/
    test_exports.py.

    Args:
        x: tf.TensorSpec of each part of x, of a model without Input.
    """
    import keras
    from keras.src.export.export_utils import get_input_signature

    archive = keras.export.ExportArchive()
    archive.track(model)
    signature = get_input_signature(model)
    flat, of_data = keras.tree.flatten(signature), keras.tree.flatten(x)
    if x is not None and len(flat) == len(of_data):
        typed = [
            spec if part.dtype.is_floating else keras.InputSpec(dtype=part.dtype.name, shape=spec.shape)
            for spec, part in zip(flat, of_data, strict=True)
        ]
        signature = keras.tree.pack_sequence_as(signature, typed)
    archive.add_endpoint("serve", functools.partial(model, training=False), signature)
    archive.write_out(folder, verbose=False)


def layer_of(output: Tensor) -> Model | None:
    """The layer that produces a symbolic tensor, or None (keras/src/backend/common/keras_tensor.py).

    Test: test_what_would_train_wrongly_without_an_error_is_reported.
    """
    return getattr(getattr(output, "_keras_history", None), "operation", None)
