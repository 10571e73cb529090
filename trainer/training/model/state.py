"""The variables that a job trains, those of a model and its optimizer, and the construction of both."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import keras
import numpy as np
import tensorflow as tf

from trainer.job.errors import UserError
from trainer.model_dir import checkpoint, checkpoint_meta
from trainer.training import inputs
from trainer.training.exchange import collective_sums, compression, gradients, whole_batch
from trainer.training.model import batches, compile_rules, compiled
from trainer.training.model.build_model import build_model, require_new
from trainer.training.model.checks import has_own_step, require_shareable
from trainer.training.model.loss_scale import LossScale
from trainer.training.private import keras_patches, keras_private
from trainer.training.private.adam import Adam
from trainer.training.runtime.created_variables import Created
from trainer.training.runtime.user_code import calling
from trainer.training.task import TrainingTask
from trainer.workloads.types import Model, Optimizer, Strategy, Tensor, Variable

OPTIMIZERS = {"adam": Adam, "sgd": keras.optimizers.SGD,
              "rmsprop": keras.optimizers.RMSprop, "adagrad": keras.optimizers.Adagrad}  # fmt: skip


@dataclass
class TrainState:
    """A built model and its optimizers."""

    model: Model
    optimizer: Optimizer
    """The one whose updates count the steps: the only one, or the last that a step uses."""
    others: Sequence[Optimizer] = ()
    """The other optimizers that a model's own `train_step` uses."""
    outer: Optimizer | None = None
    """The optimizer that applies the mean change of a round (communication.outer)."""
    compiled_step: compiled.CompiledStep | None = None
    """The step of a compiled model; of others it is made of functions (step.py)."""
    warnings: Sequence[str] = ()
    """Lines for the log about the model."""
    created: Created = field(default_factory=Created)
    """What was created with the optimizers."""
    untracked: Mapping[str, Variable] = field(default_factory=dict)
    """Variables that a step uses and nobody else has, by their names in a checkpoint."""
    rates: Mapping[str, float | None] = field(default_factory=dict)
    """The learning rate of each optimizer as code or spec gives it, by its name; None of a schedule."""
    restored: Collection[str] | None = None
    """The names of the values in the checkpoint from which training continues."""

    @property
    def variables(self) -> list[tuple[str, Variable]]:
        """The variables in a checkpoint, named by position: Keras' own names change with each model that is built."""
        parts = {"model": self.model} | self.optimizers | ({"outer": self.outer} if self.outer else {})
        tracked = [(f"{part}.{i:03d}", v) for part, owner in parts.items() for i, v in enumerate(owner.variables)]
        return [*tracked, *self.untracked.items()]

    @property
    def owned(self) -> list[Variable]:
        """The variables of the model, its metrics and its optimizers."""
        owners = [self.model, *self.optimizers.values(), *([self.outer] if self.outer else [])]
        of_metrics = self.compiled_step.variables if self.compiled_step else ()
        return [*(v for owner in owners for v in owner.variables), *of_metrics]

    @property
    def optimizers(self) -> dict[str, Optimizer]:
        """All of them, by the names of their variables in a checkpoint."""
        return {"optimizer": self.optimizer} | {f"optimizer{i}": other for i, other in enumerate(self.others, 2)}

    def note_rates(self) -> None:
        """To be called before values are restored."""
        rates = {name: keras_private.rate(keras_private.inner(each)) for name, each in self.optimizers.items()}
        self.rates = {name: None if math.isnan(rate) else rate for name, rate in rates.items()}

    def description(self) -> dict[str, checkpoint_meta.Variable]:
        averages = self._averages()
        described = {name: description(v) for name, v in self.variables}
        for name, v in self.variables:
            if id(v) in averages:
                described[name]["average"] = averages[id(v)]
        return described

    def _averages(self) -> dict[int, str]:
        """Returns the name of each variable's average, which the export has, by the variable's id. As in fit the
        optimizer of compile has these averages."""
        optimizer = keras_private.inner(getattr(self.model, "optimizer", None) or self.optimizer)
        names = {id(v): name for name, v in self.variables}
        return {
            id(v): names[id(average)] for v, average in keras_private.averages_of(optimizer) if id(average) in names
        }

    def tensors(self) -> dict[str, Tensor]:
        """The present values, each on its variable's device.

        They are no copies as long as nothing changes: the next update of a variable leaves the values to this tensor,
        and goes on with a copy of them (PrepareToUpdateVariable, tensorflow/core/kernels/training_op_helpers.h).
        """
        tensors = {name: v.value if isinstance(v, keras.Variable) else v for name, v in self.variables}
        return {name: tf.convert_to_tensor(v) for name, v in tensors.items()}

    def snapshot(self) -> dict[str, Tensor]:
        """The same; but those of a GPU or TPU are copied to this host, because their memory may not suffice."""
        tensors = self.tensors()
        _require_read(tensors.values())
        return {name: t if "CPU" in t.backing_device else as_array(t) for name, t in tensors.items()}

    def values(self) -> checkpoint.Values:
        """The values as arrays, to be read only: those on this task's CPU are no copies, see `snapshot`."""
        return {name: as_array(tensor) for name, tensor in self.snapshot().items()}

    def assign(self, values: checkpoint.Values) -> None:
        for name, v in self.variables:
            v.assign(values[name])


def description(v: Variable) -> checkpoint_meta.Variable:
    dtype = keras.backend.standardize_dtype(v.dtype)
    return {"path": keras_private.path_of(v), "shape": list(v.shape), "dtype": dtype}


def as_array(value: Tensor) -> checkpoint.Array:
    """The values of a tensor, without a copy if they are in this task's memory."""
    if tf.is_tensor(value) and value.dtype == tf.bfloat16 and not value.shape.rank:  # np.asarray fails (2.21)
        alone: checkpoint.Array = np.array(value.numpy())
        alone.flags.writeable = False
        return alone
    return np.asarray(value)


def _require_read(tensors: Iterable[Tensor]) -> None:
    """Waits until the variables on ps are read: until then this task has only asked for it."""
    on_ps = defaultdict[str, list[Tensor]](list)
    for each in tensors:
        if "/job:ps/" in each.backing_device:
            on_ps[each.backing_device].append(each)
    for device, there in on_ps.items():
        with tf.device(device):
            tf.add_n([tf.raw_ops.Size(input=each) for each in there]).numpy()


def build_state(job: TrainingTask) -> TrainState:
    """Builds model and optimizer; to be called inside the strategy's scope, because Keras stores the strategy.

    Optimizers of the workload are built once its data is known, see `prepare`.
    """
    spec = job.spec
    warnings: list[str] = []
    model = build_model(job, warnings.append)
    require_shareable(job, model)
    compile_rules.require_usable(job, model)
    if model.compiled or job.workload.optimizer is not None:
        return TrainState(model, model.optimizer if model.compiled else None, warnings=warnings)
    optimizer = _communicating(job, OPTIMIZERS[spec.train.optimizer](job.learning_rate))
    if spec.train.mixed_precision == "float16":
        optimizer = LossScale(optimizer)
    optimizer.build(model.trainable_variables)
    return TrainState(model, optimizer, warnings=warnings)


def prepare(strategy: Strategy, job: TrainingTask, state: TrainState, source: inputs.Source) -> list[str]:
    """Builds the optimizers of the workload: of its compiled model, or of its optimizer(); returns warnings.

    To be called inside the strategy's scope.

    Raises:
        UserError: the model or its optimizers cannot be trained.
    """
    model = state.model
    if not (model.trainable_variables or has_own_step(model)):
        raise UserError(
            f"workload: {job.workload.name}: model() has no trainable variables, so nothing can be trained; set "
            "trainable = True on a layer"
        )
    if state.compiled_step is not None or not (model.compiled or job.workload.optimizer is not None):
        return []
    if not model.compiled:
        with state.created.noting():
            state.optimizer = _communicating(job, given_optimizer(job, source))
            if job.spec.train.mixed_precision == "float16":
                state.optimizer = LossScale(state.optimizer)
            elif not job.spec.traits.coordinated:
                whole_batch.add_up_first(state.optimizer)
            state.optimizer.build(model.trainable_variables)
        return []
    with state.created.noting():
        compiled_model = compiled.prepare(strategy, job, model, batches.replica_spec(job, source))
        optimizers = [(_usable(job, optimizer), variables) for optimizer, variables in compiled_model.optimizers]
        for optimizer, variables in optimizers:
            optimizer.build(variables)
    *others, (state.optimizer, _) = optimizers
    state.others = [optimizer for optimizer, _ in others]
    state.compiled_step = replace(compiled_model.step, optimizer=state.optimizer)
    if isinstance(state.optimizer, LossScale):
        model.optimizer = state.optimizer
    return compiled_model.warnings


def _usable(job: TrainingTask, optimizer: Optimizer) -> Optimizer:
    """An optimizer of a compiled model, as the strategy needs it."""
    if job.spec.train.mixed_precision == "float16":
        scaled = optimizer if isinstance(optimizer, keras.optimizers.LossScaleOptimizer) else None
        return LossScale(_communicating(job, scaled.inner_optimizer if scaled else optimizer), scaled, job.replicas)
    if not job.spec.traits.coordinated:
        if job.replicas > 1:
            _require_apply(job, optimizer)
        _communicating(job, optimizer)
        whole_batch.add_up_first(optimizer, job.replicas)
    return optimizer


def _require_apply(job: TrainingTask, optimizer: Optimizer) -> None:
    """Checks that an optimizer changes gradients only in `apply`, which is given those of the whole batch.

    Raises:
        UserError: it has an apply_gradients of its own.
    """
    if type(optimizer).apply_gradients is not keras.optimizers.Optimizer.apply_gradients:
        raise UserError(
            f"workload: {job.workload.name}: {type(optimizer).__name__} has its own apply_gradients, which would not "
            "see the gradients of the whole batch; rename it to apply(self, grads, trainable_variables)"
        )


def _communicating(job: TrainingTask, optimizer: Optimizer) -> Optimizer:
    """The optimizer, which adds up gradients over replicas as one would have them, and sends them as the spec wants."""
    spec = job.spec
    if job.replicas > 1:
        if not job.ring:
            gradients.gather_in_float32(optimizer)
        if spec.traits.collective and not job.ring and not spec.tasks.of(job.task.type).gpus:  # NCCL has its own
            collective_sums.send_in_parts(optimizer)
        gradients.add_up_rows(optimizer, job.part.batch)
        gradients.note_rows(optimizer)
    communication = spec.communication
    if spec.traits.coordinated:
        return optimizer  # a Fence sends its gradients
    if communication.gradients == "bfloat16":
        compression.to_bfloat16(optimizer, feedback=spec.train.mixed_precision != "float16")
    if communication.gradients == "powersgd":
        compression.to_low_rank(optimizer, communication.rank, job.replicas)
    if communication.every > 1:
        gradients.keep_local(optimizer)
    return optimizer


def given_optimizer(job: TrainingTask, source: inputs.Source) -> Optimizer:
    """What the workload's optimizer() gives.

    Raises:
        UserError: it fails, or gives something else.
    """
    name, make = job.workload.name, job.workload.optimizer
    assert make is not None
    with keras_patches.noting_created() as created, calling(name, "optimizer(steps, replicas)"):
        optimizer = make(job.total_steps(source), job.replicas)
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise UserError(f"workload: {name}: optimizer() must give a Keras optimizer, gave {type(optimizer).__name__}")
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        raise UserError(
            f"workload: {name}: optimizer() gives a LossScaleOptimizer; give its inner optimizer, and set "
            "train.mixed_precision=float16"
        )
    require_new(job, "optimizer()", created, [optimizer])
    _require_apply(job, optimizer)
    return optimizer
