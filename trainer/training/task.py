"""What both loops share: the model, its optimizer and step, its values, and the final evaluation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainer import host
from trainer.job.derived import DEFAULT_STEPS, batch_sizes, learning_rate, replicas_in_sync, uses_tf_keras
from trainer.job.errors import UserError
from trainer.job.spec import JobSpec
from trainer.job.tf_config import Task
from trainer.model_dir import checkpoint, compatibility
from trainer.training import devices, gradients, inputs, per_example
from trainer.training.adam import Adam
from trainer.training.loss_scale import LossScale
from trainer.training.user_code import called, calling
from trainer.workloads import datasets, workload
from trainer.workloads.estimator import Context, Hook
from trainer.workloads.workload import Shard, Workload

OPTIMIZERS = {"adam": Adam, "sgd": keras.optimizers.SGD,
              "rmsprop": keras.optimizers.RMSprop, "adagrad": keras.optimizers.Adagrad}  # fmt: skip


PerExample = Callable[[Any, Any], Any]
"""From (y, prediction) to one value per example."""


@dataclass(frozen=True)
class Setup:
    """A child's job: what to train, as which task. `arrays` holds the named dataset, if the workload uses one."""

    spec: JobSpec
    task: Task
    workload: Workload
    arrays: datasets.Arrays | None

    def split(self, shard: Shard) -> inputs.Source:
        if self.workload.train_spec is not None:
            return inputs.Source()  # input_fn gives batches, see `training`
        if self.workload.data is not None:
            with calling(self.workload.name, f"data({shard.split!r})"):
                given = self.workload.data(shard)
            return inputs.source(given, shard.split)
        assert self.arrays is not None
        return inputs.source((self.arrays[f"x_{shard.split}"], self.arrays[f"y_{shard.split}"]), shard.split)

    def training(self, source: inputs.Source, *, shards: int, index: Any, local: int, start: int) -> Any:
        """One task's endless batches; arguments as those of `inputs.training`."""
        spec, batch = self.spec, batch_sizes(self.spec, self.task.counts)[1]
        if self.workload.train_spec is not None:
            asked = Context(shards, index, replicas_in_sync(spec, self.task.counts), batch)
            return inputs.batches(self.workload.train_spec.input_fn(asked), batch, start * local)
        return inputs.training(
            source, batch=batch, shards=shards, index=index, local=local, seed=spec.train.seed, start=start
        )

    def evaluation(self) -> Any:
        """Finite batches to evaluate on."""
        wanted = self.workload.eval_spec
        if wanted is not None:
            batch = batch_sizes(self.spec, self.task.counts)[1]
            given = inputs.pairs(wanted.input_fn(Context(1, 0, 1, batch)))
            given = given.take(-1 if wanted.steps is None else wanted.steps)
            return inputs.finite(given, "the EvalSpec's input_fn()")
        return inputs.evaluation(self.split(Shard("test", seed=self.spec.train.seed)))

    def begin(self) -> None:
        for hook in self._hooks:
            hook.begin()

    def after_run(self, step: int, names: Sequence[str], values: Any) -> None:
        """Tells the workload's hooks of a step; `values` is a vector of loss and metrics."""
        for hook in self._hooks:
            hook.after_run(step, dict(zip(names, np.array(values).tolist(), strict=True)))

    def end(self, step: int) -> None:
        for hook in self._hooks:
            hook.end(step)

    @property
    def _hooks(self) -> Sequence[Hook]:
        return self.workload.train_spec.hooks if self.workload.train_spec else ()

    @property
    def fits(self) -> dict[str, Any]:
        return compatibility.key(self.spec, self.task.counts, self.workload.sha256)

    @property
    def loss(self) -> PerExample:
        given = self.workload.loss
        return called(self.workload.name, "loss" if given else "the default loss", given or _cross_entropy)

    @property
    def metrics(self) -> dict[str, PerExample]:
        if self.workload.metrics is not None:
            name = self.workload.name
            return {key: called(name, f"METRICS[{key!r}]", f) for key, f in self.workload.metrics.items()}
        # Accuracy means something only where the default loss, hence integer labels, are used.
        return {"accuracy": _accuracy} if self.workload.loss is None else {}


Load = Callable[[], Setup]
"""Imports the workload, if that was not done while this process stood by; for after the strategy was made."""


@dataclass(frozen=True)
class Trainable:
    """A built model and its optimizer, of Keras 3 or of tf_keras."""

    model: Any
    optimizer: Any

    @property
    def variables(self) -> list[tuple[str, Any]]:
        """Everything a checkpoint holds, named by position: Keras' own names count up with each model built."""
        parts = {"model": self.model.variables, "optimizer": self.optimizer.variables}
        return [(f"{part}.{i:03d}", v) for part, variables in parts.items() for i, v in enumerate(variables)]

    def description(self) -> dict[str, dict[str, Any]]:
        def described(v: Any) -> dict[str, Any]:
            dtype = keras.backend.standardize_dtype(v.dtype)
            return {"path": getattr(v, "path", v.name), "shape": list(v.shape), "dtype": dtype}

        return {name: described(v) for name, v in self.variables}

    def values(self) -> checkpoint.Values:
        """Copies: a CPU variable's .numpy() may be a view that the next step changes."""
        tensors = {name: v.value if isinstance(v, keras.Variable) else v.read_value() for name, v in self.variables}
        return {name: np.array(tensor) for name, tensor in tensors.items()}

    def assign(self, values: checkpoint.Values) -> None:
        for name, v in self.variables:
            v.assign(values[name])


def load(spec: JobSpec, task: Task) -> Setup:
    """Imports the workload and reads its dataset."""
    loaded = workload.load(spec)
    arrays = datasets.load(loaded.dataset, spec.dataset_sha256) if loaded.dataset and not loaded.data else None
    return Setup(spec, task, loaded, arrays)


def prepare_process(spec: JobSpec, task: Task) -> None:
    """Thread counts, GPUs, determinism and precision; before the first TensorFlow operation, which a workload file
    may run when it is imported.

    Raises:
        TrainerError: Exit.DEVICES, if the task sees fewer GPUs than the spec asks for.
    """
    group = spec.tasks.of(task.type)
    devices.limit_threads(host.cpus(group.cpu))
    tf.config.set_visible_devices(devices.require_gpus(group.gpus)[: group.gpus], "GPU")
    if group.cpu_devices > 1:
        logical = [tf.config.LogicalDeviceConfiguration()] * group.cpu_devices
        tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], logical)
    if spec.train.deterministic:
        tf.config.experimental.enable_op_determinism()
    if spec.train.mixed_precision != "none":
        library = tf.keras if spec.api == "keras_fit" else keras
        library.mixed_precision.set_global_policy(f"mixed_{spec.train.mixed_precision}")


def keras_name(spec: JobSpec) -> str:
    """What tf.keras is in this job."""
    return "tf_keras" if uses_tf_keras(spec) else "Keras 3"


def build(setup: Setup) -> Trainable:
    """Model and optimizer, to be called inside the strategy's scope: Keras stores the strategy then."""
    spec, counts = setup.spec, setup.task.counts
    keras.utils.set_random_seed(spec.train.seed)
    model = _model(setup)
    _require_aggregation(setup, model)
    optimizer = OPTIMIZERS[spec.train.optimizer](learning_rate(spec, counts))
    if spec.communication.gradients == "bfloat16":
        gradients.compress(optimizer)
    if spec.train.mixed_precision == "float16":
        optimizer = LossScale(optimizer)
    optimizer.build(model.trainable_variables)
    return Trainable(model, optimizer)


def _model(setup: Setup) -> Any:
    """A new model of the workload, whole."""
    with calling(setup.workload.name, "model()"):
        model = setup.workload.model()
    what = f"workload: {setup.workload.name}: model() must give"
    if not isinstance(model, (keras.Model, tf.keras.Model)):
        raise UserError(f"{what} a Keras model, gave {type(model).__name__}")
    if not model.built:
        raise UserError(f"{what} a built model; begin with keras.Input")
    return model


def check(setup: Setup, model: Any, source: inputs.Source) -> list[str]:
    """Looks whether data, model and loss fit, for what would train wrongly without an error: gives warnings.

    Raises:
        UserError: a Dataset of batches, or labels that the default loss cannot take.
    """
    name = setup.workload.name
    inputs.require_examples(source, getattr(model, "inputs", None) or [], name)
    if setup.workload.loss is not None or setup.spec.api == "keras_fit":
        return []
    outputs = getattr(model, "outputs", None) or []
    if len(outputs) != 1:
        return []
    units = outputs[0].shape[-1]
    if units == 1:
        raise UserError(
            f"workload: {name}: the model has one output, and the default loss tells classes apart; give loss()"
        )
    if source.arrays is not None and tf.is_tensor(labels := source.arrays[1]) and labels.dtype.is_integer and units:
        # On a GPU the loss of such a label is NaN, and no error.
        least, most = int(tf.reduce_min(labels)), int(tf.reduce_max(labels))
        if least < 0 or most >= units:
            raise UserError(
                f"workload: {name}: data(): labels are {least} to {most}, and the last layer has {units} units; the "
                f"default loss takes 0 to {units - 1}: give it more units, or other labels, or give loss()"
            )
    activation = _last_activation(outputs[0])
    if activation in ("softmax", "sigmoid"):
        return [
            f"warning: workload: {name}: the last layer has {activation}, and the default loss expects logits; take "
            "the activation away, or give loss()"
        ]
    return []


def _last_activation(output: Any) -> str | None:
    """Of the layer that gives the model's output, by name; an activation may be a layer of its own."""
    layer = getattr(getattr(output, "_keras_history", None), "operation", None)
    if type(layer).__name__ == "Softmax":
        return "softmax"
    return getattr(getattr(layer, "activation", None), "__name__", None)


def predict(setup: Setup, model: Any, x: Any, *, training: bool) -> Any:
    """What the model makes of a batch.

    Raises:
        UserError: it fails, or it makes variables only now: none of them would be trained.
    """
    count, name = len(model.variables), setup.workload.name
    try:
        with calling(name, "model(x)", x=x):
            return model(x, training=training)
    finally:
        if len(model.variables) != count:
            raise UserError(
                f"workload: {name}: model() must give a model with all its variables; begin with keras.Input, or let "
                "model() call it once, on zeros of an example's shape behind a first dimension of 1"
            )


def _require_aggregation(setup: Setup, model: Any) -> None:
    # Keras 3's random seeds and moving statistics; TensorFlow says so within the first step (ps_values.py).
    spec = setup.spec
    if spec.strategy != "central_storage" or (replicas := replicas_in_sync(spec, setup.task.counts)) == 1:
        return
    lonely = [v.path for v in model.non_trainable_variables if v.aggregation in (None, "none")]
    if lonely:
        raise UserError(
            f"workload: {spec.workload}: {lonely[0]}: {replicas} devices cannot share a variable that a layer updates "
            "by itself (Dropout, BatchNormalization) under central_storage; use mirrored, or one device"
        )


def make_step(setup: Setup, trainable: Trainable, replicas: int) -> Any:
    """One replica's step: from an (x, y) batch to whether it was applied, and [loss, *metrics], means over that batch.

    Only under float16 may it not be applied, see `LossScale`.
    Gradients are of sum(loss) / global_batch, so that their sum over replicas is the mean over the global batch.
    As in Keras' own fit, no AutoGraph: a loss or metric that branches on a tensor uses tf.cond or tf.where.
    """
    model, optimizer = trainable.model, trainable.optimizer
    global_batch, _ = batch_sizes(setup.spec, setup.task.counts)

    @tf.autograph.experimental.do_not_convert
    def step(batch: Any) -> Any:
        x, y = batch
        with tf.GradientTape() as tape:
            prediction = predict(setup, model, x, training=True)
            total = tf.reduce_sum(per_example.values("loss(y, prediction)", setup.loss, y, prediction))
            total /= float(global_batch)
            if model.losses:
                total += tf.add_n([tf.cast(each, tf.float32) for each in model.losses]) / float(replicas)
            scale = tf.identity(optimizer.dynamic_scale.value) if isinstance(optimizer, LossScale) else None
            scaled = total if scale is None else total * scale
        slopes = tape.gradient(scaled, model.trainable_variables)
        if scale is None:
            optimizer.apply(slopes, model.trainable_variables)
            applied = tf.constant(True)
        else:
            applied = optimizer.apply_if_finite(slopes, model.trainable_variables, scale)
        figures = [per_example.values(f"METRICS[{name!r}]", f, y, prediction) for name, f in setup.metrics.items()]
        return applied, tf.stack([total * float(replicas), *map(tf.reduce_mean, figures)])

    return step


def total_steps(setup: Setup, training: inputs.Source) -> int:
    spec = setup.spec
    global_batch, _ = batch_sizes(spec, setup.task.counts)
    if spec.train.epochs is not None:
        return inputs.steps_in_epochs(training, spec.train.epochs, global_batch)
    default = setup.workload.train_spec and setup.workload.train_spec.max_steps
    return spec.train.steps or default or DEFAULT_STEPS


def newest_values(setup: Setup, trainable: Trainable, total: int) -> tuple[int, checkpoint.Values | None, list[str]]:
    """Step and values of the newest whole checkpoint, in the order of `trainable.variables`; `total` is the step at
    which the job ends.

    Returns:
        (0, None) if there is none; and a line for each damaged one that was passed over.

    Raises:
        UserError: it does not fit the spec or the model, or is past the job's end; the difference is named.
    """
    directory = setup.spec.directory
    found, broken = checkpoint.latest(directory)
    if found is None:
        return 0, None, broken
    if different := checkpoint.differences(found.meta, setup.spec, setup.fits, trainable.description(), total):
        raise checkpoint.refusal(found.meta, directory, different)
    values = checkpoint.read(found)
    return found.step, {name: values[name] for name, _ in trainable.variables}, broken


def restore(setup: Setup, trainable: Trainable, total: int) -> tuple[int, list[str]]:
    """Loads the newest whole checkpoint into the variables; gives what `newest_values` says of it."""
    step, values, broken = newest_values(setup, trainable, total)
    if values is not None:
        trainable.assign(values)
    return step, broken


def evaluate(setup: Setup, values: checkpoint.Values) -> tuple[Any, dict[str, float]]:
    """A copy of the model with these values, and its figures on the test split."""
    model = copy_of_model(setup, values)
    return model, score(setup, model)


def copy_of_model(setup: Setup, values: checkpoint.Values) -> Any:
    """The model with these values outside any strategy.

    Under parameter_server the trained variables live on the ps, and under multi_worker_mirrored a metric's
    result is a collective; a local copy needs neither.
    """
    model = _model(setup)
    for i, variable in enumerate(model.variables):
        variable.assign(values[f"model.{i:03d}"])
    return model


def score(setup: Setup, model: Any) -> dict[str, float]:
    """A model's figures on the test split."""
    if setup.workload.evaluate is not None:
        with calling(setup.workload.name, "evaluate(model), which must give numbers by name"):
            return {name: float(value) for name, value in setup.workload.evaluate(model).items()}
    if setup.spec.api == "keras_fit":
        with calling(setup.workload.name, "model.evaluate"):
            found = model.evaluate(setup.evaluation(), verbose=0, return_dict=True)
        return {name: float(value) for name, value in found.items()}
    functions = {"loss(y, prediction)": setup.loss, **{f"METRICS[{name!r}]": f for name, f in setup.metrics.items()}}
    names = ["loss", *setup.metrics]

    @tf.function(autograph=False)
    def sums_of(x: Any, y: Any) -> Any:
        prediction = predict(setup, model, x, training=False)
        return tf.stack([tf.reduce_sum(per_example.values(*each, y, prediction)) for each in functions.items()])

    sums, count = np.zeros(len(names)), 0
    for x, y in setup.evaluation():
        sums += sums_of(x, y).numpy()
        count += len(tf.nest.flatten(y)[0])
    if count == 0:
        raise UserError(f"workload: {setup.workload.name}: there are no examples to evaluate on")
    return {name: float(s / count) for name, s in zip(names, sums, strict=True)}


def _cross_entropy(y: Any, prediction: Any) -> Any:
    return tf.nn.sparse_softmax_cross_entropy_with_logits(tf.cast(y, tf.int32), tf.cast(prediction, tf.float32))


def _accuracy(y: Any, prediction: Any) -> Any:
    return tf.cast(tf.equal(tf.argmax(prediction, -1), tf.cast(y, tf.int64)), tf.float32)
