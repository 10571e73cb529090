"""What a model may not have been given: settings that the loop cannot follow, or that the spec has too."""

from __future__ import annotations

from collections.abc import Mapping

import keras
import tensorflow as tf

from trainer.job.derived import replicas_in_sync
from trainer.job.errors import UserError
from trainer.job.strategies import RATES
from trainer.training.model.checks import has_own_step
from trainer.training.model.step_trace import TrainStep
from trainer.training.private.keras_private import all_layers, loss_weights
from trainer.training.private.tensorflow_private import replicas_decide_by_themselves
from trainer.training.runtime.user_code import LOSS_WEIGHTS
from trainer.training.task import TrainingTask
from trainer.workloads.types import Model


def require_usable(job: TrainingTask, model: Model) -> None:
    """Checks what the model was compiled with, before the first step.

    Raises:
        UserError: the loop cannot follow it, or spec or workload file give it again.
    """
    name = job.workload.name
    if tf.config.functions_run_eagerly():
        raise UserError(
            f"workload: {name}: tf.config.run_functions_eagerly(True): the loop runs steps in a graph; remove it"
        )
    _require_precision(job, model)
    if not model.compiled:
        if has_own_step(model):
            raise UserError(
                f"workload: {name}: the model has its own train_step and is not compiled; call model.compile(...), and "
                "super().compile() in a compile of its own"
            )
        if job.workload.optimizer is not None:
            refuse_rates(job, "optimizer() sets it")
        if job.spec.api_traits.calls_fit:
            raise UserError(f"workload: {name}: model() must give a model that is compiled; call model.compile")
        return
    refuse_rates(job, "model() gives a compiled model")
    parts = {"loss()": job.workload.loss, "METRICS": job.workload.metrics, "optimizer()": job.workload.optimizer}
    if again := [key for key, value in parts.items() if value is not None]:
        fix = "" if job.spec.api_traits.calls_fit else ", or compile()"
        raise UserError(f"workload: {name}: model() gives a compiled model; remove {again[0]}{fix}")
    what = f"workload: {name}: model.compile"
    if model.optimizer is None and not has_own_step(model):
        raise UserError(f"{what}: has no optimizer; give one")
    if metrics := [each for each in loss_weights(model) if isinstance(each, (str, keras.metrics.Metric))]:
        raise UserError(f"{what}: loss_weights: {metrics[0]!r}: must be a number; {LOSS_WEIGHTS}")
    settings = {key: getattr(model, key) for key in ("run_eagerly", "steps_per_execution", "jit_compile")}
    if rule := _refused(job, settings):
        raise UserError(f"{what}: {rule}")


def _refused(job: TrainingTask, settings: Mapping[str, object]) -> str | None:
    """The rule that one of the settings of compile() breaks, with the fix."""
    if settings["run_eagerly"] is True:
        return "run_eagerly=True: the loop runs steps in a graph; remove it"
    if (count := settings["steps_per_execution"]) != 1:
        return f"steps_per_execution={count}: remove it, and set train.steps_per_call={count}"
    replicas, coordinated = replicas_in_sync(job.spec, job.task.counts), job.spec.traits.coordinated
    if settings["jit_compile"] is True and (replicas > 1 or coordinated):
        where = job.spec.strategy if coordinated else f"{replicas} replicas"
        return f"jit_compile=True: XLA cannot compile a step of {where}; remove it"
    return None


def require_trainable(job: TrainingTask, model: Model, traced: TrainStep) -> None:
    """Checks what a `train_step` does; to be called within the strategy's scope.

    Raises:
        UserError: it cannot be trained.
    """
    what = f"workload: {job.workload.name}: train_step"
    if not traced.returned:
        raise UserError(f"{what} gives nothing; return a dict of numbers by name, as {{'loss': loss}}")
    for name, value in traced.returned.items():
        if value.shape.num_elements() != 1:
            raise UserError(f"{what} gives {name} of shape {value.shape}; return one number, as its mean")
    optimizers = [optimizer for optimizer, _ in traced.optimizers]
    if not optimizers:
        raise UserError(f"{what} uses no optimizer; apply gradients by one, as self.optimizer.apply(...)")
    if traced.nested and not replicas_decide_by_themselves():
        raise UserError(
            f"{what} applies {type(traced.nested[0]).__name__} within tf.cond, a loop or a tf.function, which cannot "
            f"be under {job.spec.strategy}: apply it in each step, with gradients times 0 where it is to do nothing, "
            "as tf.where(condition, gradient, 0.0), or use one_device"
        )
    averaged = [type(each).__name__ for each in (*optimizers, model.optimizer) if getattr(each, "use_ema", False)]
    if averaged and not (len(optimizers) == 1 and optimizers[0] is model.optimizer):
        raise UserError(
            f"{what}: {averaged[0]} has use_ema=True; only the optimizer of compile, if it is alone, gives the model "
            "its averages in the end; remove it, or average in train_step"
        )
    if job.spec.train.mixed_precision == "float16":
        if len(optimizers) > 1:
            names = ", ".join(type(optimizer).__name__ for optimizer in optimizers)
            raise UserError(
                f"train.mixed_precision: float16: {what} uses {len(optimizers)} optimizers ({names}), and float16 "
                "scales the loss of one; set bfloat16"
            )
        if not traced.scaled:
            raise UserError(
                f"train.mixed_precision: float16: {what} does not scale its loss; take the gradients of "
                "self.optimizer.scale_loss(loss), or set bfloat16"
            )
    if not job.spec.traits.coordinated:
        return
    strategy = job.spec.strategy
    if (calls := sum(optimizer is optimizers[-1] for optimizer, _ in traced.updates)) > 1:
        raise UserError(
            f"{what} applies {type(optimizers[-1]).__name__} {calls} times, and {strategy} counts a step by the last "
            "update; apply the last optimizer once, or use multi_worker_mirrored"
        )


def refuse_rates(job: TrainingTask, why: str) -> None:
    """Checks that the spec sets no optimizer.

    Raises:
        UserError: it does.
    """
    if rates := [key for key in RATES if key in job.spec.train.model_fields_set]:
        raise UserError(f"train.{rates[0]}: workload {job.workload.name}: {why}; remove it from the spec")


def _require_precision(job: TrainingTask, model: Model) -> None:
    name, wanted = job.workload.name, job.spec.train.mixed_precision
    if wanted == "float16":
        if model.compiled and _has_float16(model) and not _scales(model):
            raise UserError(
                f"workload: {name}: model.compile: auto_scale_loss=False: train.mixed_precision: float16 scales the "
                "loss; remove it, or set bfloat16"
            )
        return
    if half := [layer.name for layer in all_layers(model) if _has_float16(layer)]:
        raise UserError(
            f"workload: {name}: layer {half[-1]} computes in float16, and train.mixed_precision is {wanted}; set "
            "train.mixed_precision=float16, and no policy in the file"
        )
    if model.compiled and _scales(model):
        raise UserError(
            f"workload: {name}: model.compile: LossScaleOptimizer is for float16; give its inner optimizer, or set "
            "train.mixed_precision=float16"
        )


def _has_float16(layer: keras.layers.Layer) -> bool:
    return bool(layer.compute_dtype == "float16")


def _scales(model: Model) -> bool:
    return isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
