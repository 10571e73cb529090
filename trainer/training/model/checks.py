"""Checks a workload's model against data and loss, and calls it."""

from __future__ import annotations

from collections.abc import Iterable

import keras
import tensorflow as tf

from trainer.job.errors import UserError
from trainer.protocol import events
from trainer.training import inputs
from trainer.training.model import batches
from trainer.training.private.keras_private import all_layers, created_as_not_trainable, layer_of, own_variables
from trainer.training.runtime import created_variables
from trainer.training.runtime.user_code import calling
from trainer.training.task import TrainingTask
from trainer.workloads.types import Model, Tensor, Variable
from trainer.workloads.workload import Shard

HOW_TO_BUILD = (
    "begin with keras.Input, or call it once in model(), on zeros of an example's shape behind a first dimension of 1"
)


def has_own_step(model: Model) -> bool:
    """Whether the model has a `train_step` of its own."""
    return isinstance(model, keras.Model) and type(model).train_step is not keras.Model.train_step


def can_evaluate(model: Model) -> bool:
    """Whether a model with its own train_step has what `evaluate` needs: test_step(), or call() and a loss. That of a
    GAN may have neither."""
    kind = type(model)
    if kind.test_step is not keras.Model.test_step:
        return True
    own_loss = kind.compute_loss is not keras.Model.compute_loss
    has_loss = own_loss or getattr(model, "loss", None) is not None or bool(model.losses)
    return has_loss and kind.call is not keras.Model.call


def check(job: TrainingTask, model: Model, source: inputs.Source) -> list[str]:
    """Checks data, model and loss for mistakes that would train wrongly without an error; returns warnings.

    Raises:
        UserError: a Dataset of batches or without examples, data of unknown shape or of two splits, or labels that the
            default loss cannot take.
    """
    name, model_inputs = job.workload.name, getattr(model, "inputs", None) or []
    inputs.require_examples(source, model_inputs, name)
    require_labels_for_loss(job, model, source)
    if len(model_inputs) == 1:
        inputs.require_one_split(source)
        if not has_own_step(model):
            inputs.require_one_input(source)
    inputs.require_shapes(source, name, of_x=bool(model_inputs), of_y=model.compiled and not has_own_step(model))
    _require_examples_for_each(job, source)
    return [*_left_out(job), *_small_batches(job, source), *_check_output(job, model, source)]


def _require_examples_for_each(job: TrainingTask, source: inputs.Source) -> None:
    """Checks that a task gets examples of a Dataset that data() divides; under parameter_server, that each worker does.

    If the size is not known, the first step shows it.

    Raises:
        UserError: it gets none.
    """
    source = inputs.unweighted(source)
    if not isinstance(source, inputs.Examples) or (count := _size(source)) is None:
        return
    counts: dict[str, int | None] = {job.task.name: count}
    if job.spec.traits.coordinated:
        counts = {"worker:0": count}
        if count <= 1:  # of a part that has more, the others have some
            counts |= {f"worker:{i}": _size(job.training_of(i)) for i in range(1, job.part.shards)}
    if (task := next((task for task, size in counts.items() if size == 0), None)) is not None:
        whole, tasks = job.split(Shard("train", seed=job.spec.train.seed)).count(), job.part.shards
        number = f"the Dataset has {whole}, and there are {tasks} tasks; give each task" if tasks > 1 else "give"
        raise UserError(f"workload: {job.workload.name}: data('train') gives {task} no examples: {number} at least one")


def _size(source: inputs.Source) -> int | None:
    """The number of examples; None if it is not known, or there is no end."""
    source = inputs.unweighted(source)
    count = int(source.dataset.cardinality()) if isinstance(source, inputs.Examples) else -1
    return count if count >= 0 else None


def require_data_to_evaluate(job: TrainingTask, model: Model) -> None:
    """Finds what is wrong with the data that are to evaluate before the first step of a job, and not after it. The
    other tasks wait meanwhile.

    Raises:
        UserError: there are no such data, no examples in them, or no labels that a loss needs.
    """
    if not job.task.is_chief:
        return
    given = {"validation()": job.workload.validation, "train.validation_split": job.spec.train.validation_split}
    for name in [name for name, value in given.items() if value and not job.validates]:
        what = "callbacks(), as EarlyStopping or CSVLogger, and keep_best"
        job.send(events.Line(f"warning: {name}: nothing uses it: validation data are for {what}"))
    job.send(events.EpochEnd(over=False))
    for split, what in job.splits_to_evaluate():
        inputs.require_some(split, what)
        x, y, _ = keras.utils.unpack_x_y_sample_weight(split.evaluation().element_spec)
        if y is None and _evaluates_with_labels(model):
            raise UserError(
                f"workload: {job.workload.name}: {what}: gives x alone, and the loss compares y with the prediction; "
                f"give (x, y), or define evaluate(model){_names_in(x)}"
            )
    job.send(events.EpochEnd(over=True))


def require_labels_for_loss(job: TrainingTask, model: Model, source: inputs.Source) -> None:
    """Checks that the training data have what the loss of a compiled model takes, before Keras meets None.

    Raises:
        UserError: they are x alone.
    """
    if not model.compiled or has_own_step(model) or not _evaluates_with_labels(model):
        return
    if (parts := inputs.structure(source)) is None:
        parts = batches.replica_spec(job, source)
    x, y, _ = keras.utils.unpack_x_y_sample_weight(parts)
    if y is None:
        raise UserError(
            f"workload: {job.workload.name}: data('train'): gives x alone, and the loss compares y with the "
            f"prediction; give (x, y){_names_in(x)}"
        )


def _names_in(x: Tensor) -> str:
    """The names in a dict, of which one may be that of the labels."""
    return f"; if the labels are in x, take them out: it has {', '.join(map(repr, x))}" if isinstance(x, dict) else ""


def _evaluates_with_labels(model: Model) -> bool:
    """Whether an evaluation computes a loss of labels; what methods of the model's own do is not known."""
    if has_own_step(model) and not can_evaluate(model):
        return False
    kind = type(model)
    own = kind.test_step is not keras.Model.test_step or kind.compute_loss is not keras.Model.compute_loss
    return not model.compiled or not (own or model.loss is None)


def _small_batches(job: TrainingTask, source: inputs.Source) -> list[str]:
    """Under parameter_server, whose workers only run graphs: elsewhere each task counts what it leaves out."""
    source = inputs.unweighted(source)
    if not job.spec.traits.coordinated or not isinstance(source, inputs.Batches):
        return []
    if not (count := inputs.small_batches(source.dataset, job.batch)):
        return []
    return [
        f"warning: {source.what}: batches of fewer than {job.batch} examples are left out: {count} of the first ones; "
        f"give all batches {job.batch} examples, but for the last"
    ]


def _left_out(job: TrainingTask) -> list[str]:
    if not job.bad_records or job.records is None:
        return []
    count, first = job.bad_records, job.records.index.first_left_out
    return [f"warning: {count} damaged records are left out (train.max_bad_records): {first}"]


def _check_output(job: TrainingTask, model: Model, source: inputs.Source) -> list[str]:
    """Checks the model's output, and compares it with the labels if they are arrays."""
    name = job.workload.name
    if job.workload.loss is not None or model.compiled:
        return []
    outputs = getattr(model, "outputs", None) or []
    if len(outputs) != 1:
        return []
    units = outputs[0].shape[-1]
    if units == 1:
        raise UserError(
            f"workload: {name}: the model has one output, and the default loss distinguishes classes; give loss()"
        )
    labels = keras.utils.unpack_x_y_sample_weight(source.parts)[1] if isinstance(source, inputs.Arrays) else None
    if isinstance(labels, tf.Tensor) and (labels.dtype.is_integer or labels.dtype.is_floating) and units:
        _check_classes(name, labels, units)
    activation = _last_activation(outputs[0])
    if activation in ("softmax", "sigmoid"):
        return [
            f"warning: workload: {name}: the last layer has {activation}, and the default loss expects logits; take "
            "the activation away, or give loss()"
        ]
    return []


def _check_classes(name: str, labels: Tensor, units: int) -> None:
    """Checks labels for the default loss, which takes classes.

    Raises:
        UserError: they are others than the model distinguishes.
    """
    if labels.dtype.is_floating:
        broken = tf.reshape(labels, [-1])
        broken = tf.boolean_mask(broken, broken != tf.floor(broken))  # the loss would cut them to whole numbers
        if tf.size(broken):
            raise UserError(
                f"workload: {name}: data(): a label is {float(broken[0]):g}, and the default loss distinguishes "
                "classes, which are whole numbers: give those, or give loss()"
            )
    # On a GPU the loss of a label that is too large is NaN, and no error.
    least, most = int(tf.reduce_min(labels)), int(tf.reduce_max(labels))
    if least < 0 or most >= units:
        raise UserError(
            f"workload: {name}: data(): labels are {least} to {most}, and the last layer has {units} units; the "
            f"default loss takes 0 to {units - 1}: give it more units, or other labels, or give loss()"
        )


def require_labels(job: TrainingTask, batch: Tensor) -> None:
    """Checks that batches of this structure have what the workload's loss(y, prediction) takes.

    Raises:
        UserError: they are x alone.
    """
    if keras.utils.unpack_x_y_sample_weight(batch)[1] is None:
        raise UserError(
            f"workload: {job.workload.name}: the data are x alone, and the loss compares y with the prediction; give "
            "(x, y), or let model() compile a model whose train_step needs no y"
        )


def _last_activation(output: Tensor) -> str | None:
    """Name of the activation before the model's output; it may be a separate layer."""
    layer = layer_of(output)
    if type(layer).__name__ == "Softmax":
        return "softmax"
    return getattr(getattr(layer, "activation", None), "__name__", None)


def predict(job: TrainingTask, model: Model, x: Tensor, *, training: bool) -> Tensor:
    """The model's output for a batch.

    Raises:
        UserError: the call fails, or creates variables, which would not be trained.
    """
    count, name = len(model.variables), job.workload.name
    try:
        with calling(name, "model(x)", x=x):
            return model(x, training=training)
    finally:
        if len(model.variables) != count:
            raise UserError(f"workload: {name}: model() must give a model with all its variables; {HOW_TO_BUILD}")


def require_shareable(job: TrainingTask, model: Model) -> None:
    """Checks that replicas can share all state of the model.

    Raises:
        UserError: a layer has a state that they cannot share.
    """
    coordinated = job.spec.traits.coordinated
    if job.replicas > 1 and (unsummed := [v for v in model.trainable_variables if "complex" in str(v.dtype)]):
        raise UserError(
            f"workload: {job.workload.name}: {unsummed[0].path} is {unsummed[0].dtype}, and replicas add up gradients "
            "of real numbers only; keep its real and its imaginary part in two weights, or use one replica"
        )
    stateful = [layer.name for layer in all_layers(model) if getattr(layer, "stateful", False)]
    if stateful and (coordinated or job.replicas > 1):
        whose = "the workers of parameter_server" if coordinated else f"{job.replicas} replicas"
        raise UserError(
            f"workload: {job.workload.name}: layer {stateful[0]} is stateful: it keeps the state of the last batch, "
            f"and {whose} train on different batches; leave stateful out, or use one replica"
        )
    # Keras 3's random seeds and moving statistics; TensorFlow reports it within the first step (ps_values.py).
    spec = job.spec
    if not spec.traits.shares_variables or (replicas := job.replicas) == 1:
        return
    lonely = [v for v in created_as_not_trainable(model) if v.aggregation in (None, "none")]
    with_own_step = has_own_step(model)
    if lonely and (refused := lonely if with_own_step else _updated(job, model, lonely)):
        path = refused[0].path
        owner = next(each for each in all_layers(model) if any(v is refused[0] for v in own_variables(each)))
        updates = f"{type(owner).__name__} {'may update' if with_own_step else 'updates'}"
        raise UserError(
            f"workload: {spec.workload}: {path}: {replicas} devices cannot share a variable that {updates} by itself "
            "under central_storage; use mirrored, or one device"
        )


def _updated(job: TrainingTask, model: Model, variables: Iterable[Variable]) -> list[Variable]:
    """Returns the variables that a call for training updates: a recurrent layer has a random seed for a dropout of 0
    too, and a Normalization layer has statistics that only adapt() changes."""
    updated: list[Variable] = []

    def call(x: Tensor) -> None:
        with keras.StatelessScope() as scope, created_variables.drawing(model):
            predict(job, model, x, training=True)
            updated.extend(v for v in variables if scope.get_current_value(v) is not None)

    x, *_ = keras.utils.unpack_x_y_sample_weight(batches.replica_spec(job, job.training))
    tf.function(call, autograph=False).get_concrete_function(x)
    return updated
