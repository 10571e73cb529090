"""What a workload's callbacks() gives: it is checked before the first step."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence

import keras

from trainer.job.errors import UserError
from trainer.keras import Report
from trainer.training.private import keras_private
from trainer.training.runtime.user_code import calling
from trainer.training.task import TrainingTask
from trainer.workloads.types import Callback, Optimizer

_VALIDATION = "define validation(shard), or set train.validation_split"
_OTHER_NAMES = {"on_train_batch_begin": "on_batch_begin", "on_train_batch_end": "on_batch_end"}


def made(job: TrainingTask) -> Sequence[Callback]:
    """Calls the workload's callbacks().

    Raises:
        UserError: it gives no list.
    """
    name, function = job.workload.name, job.workload.callbacks
    if function is None:
        return []
    with calling(name, "callbacks()"):
        takes_folder = "model_dir" in inspect.signature(function).parameters
        callbacks = function(model_dir=job.spec.directory) if takes_folder else function()
    if not isinstance(callbacks, (list, tuple)):
        raise UserError(f"workload: {name}: callbacks() must give a list, gave {type(callbacks).__name__}")
    return callbacks


def callbacks(job: TrainingTask, metrics: Sequence[str], *, validates: bool) -> tuple[list[Callback], list[str]]:
    """Calls the workload's callbacks(), and returns its callbacks with a line for each that is left out.

    Raises:
        UserError: it gives something else, or a callback that cannot work in this job.
    """
    name, given_callbacks = job.workload.name, made(job)
    kept, lines = [], []
    for callback in given_callbacks:
        kind = type(callback).__name__
        if isinstance(callback, Report):
            lines.append(f"callbacks(): {kind} is left out: the job itself reports these figures")
            continue
        if not isinstance(callback, keras.callbacks.Callback):
            raise UserError(f"workload: {name}: callbacks() must give Keras callbacks, one is {kind}")
        if isinstance(callback, keras.callbacks.SwapEMAWeights):
            raise UserError(
                f"workload: {name}: callbacks(): {kind} exchanges the weights that are trained; remove it: with "
                "use_ema the final model has their averages"
            )
        if isinstance(callback, keras.callbacks.BackupAndRestore):
            lines.append(f"callbacks(): {kind} is left out: checkpoints of trainer replace it, at any step")
            continue
        if isinstance(callback, keras.callbacks.ProgbarLogger):
            lines.append(f"callbacks(): {kind} is left out: the job logs every train.log_steps steps")
            continue
        kept.append(callback)
    _require_monitored(name, kept, metrics, validates)
    return kept, lines


def _require_monitored(workload: str, callbacks: list[Callback], metrics: Sequence[str], validates: bool) -> None:
    """Checks that what callbacks of Keras monitor will be in the logs.

    Raises:
        UserError: it will not; Keras would only warn after each epoch.
    """
    names = [*metrics, *(f"val_{name}" for name in metrics if validates)]
    others_add = not all(map(_is_of_keras, callbacks))
    for callback in filter(_is_of_keras, callbacks):
        what = f"workload: {workload}: callbacks(): {type(callback).__name__}"
        saves = isinstance(callback, keras.callbacks.ModelCheckpoint)
        if saves and "{val_" in callback.filepath and not validates:
            raise UserError(f"{what} needs validation data for its file's name; {_VALIDATION}")
        monitor = None if saves and not callback.save_best_only else getattr(callback, "monitor", None)
        if monitor is None or monitor in (*names, "learning_rate"):
            continue
        if monitor.startswith("val_") and not validates:
            raise UserError(f"{what} monitors {monitor}, and there is no validation data; {_VALIDATION}")
        if not others_add:
            raise UserError(f"{what} monitors {monitor}, and the logs have {', '.join(names)}")


def _is_of_keras(callback: Callback) -> bool:
    return type(callback).__module__.startswith("keras.")


def require_settable_rate(job: TrainingTask, callbacks: list[Callback], optimizer: Optimizer) -> None:
    """Checks that callbacks which set the learning rate can.

    Raises:
        UserError: it is a schedule.
    """
    setters = (keras.callbacks.LearningRateScheduler, keras.callbacks.ReduceLROnPlateau)
    inner = keras_private.inner(optimizer)
    if inner is None or keras_private.has_settable_rate(inner):
        return
    for callback in callbacks:
        if isinstance(callback, setters):
            raise UserError(
                f"workload: {job.workload.name}: callbacks(): {type(callback).__name__}: the optimizer was created "
                "with a `LearningRateSchedule` object as its `learning_rate` constructor argument, hence its learning "
                "rate is not settable"
            )


def set_modes(callbacks: list[Callback]) -> None:
    """Sets what Keras takes from the metrics of a compiled model: that more accuracy is better."""
    for callback in callbacks:
        monitor = getattr(callback, "monitor", "")
        if getattr(callback, "mode", None) == "auto" and monitor in ("accuracy", "val_accuracy"):
            callback.mode = "max"


def stride(callbacks: list[Callback]) -> int:
    """The number of batches from one call of batch hooks to the next; 0 if no callback has any."""
    return math.gcd(*map(_stride_of, callbacks))


def _stride_of(callback: Callback) -> int:
    if type(callback) is keras.callbacks.ModelCheckpoint:
        return 0 if callback.save_freq == "epoch" else int(callback.save_freq)
    if type(callback) is keras.callbacks.TensorBoard:
        return int(callback.update_freq != "epoch" or keras_private.traces_batches(callback))
    if type(callback) is keras.callbacks.TerminateOnNaN:
        return 0  # the loops themselves end a job whose loss is not finite
    return int(any(has_hook(callback, hook) for hook in _OTHER_NAMES))


def has_hook(callback: Callback, hook: str) -> bool:
    """Whether a callback does something in a hook."""
    names = (hook, _OTHER_NAMES.get(hook, hook))
    return not all(keras_private.is_default_hook(getattr(callback, name)) for name in names)


def line_about_batches(callbacks: list[Callback], steps: int) -> str:
    names = ", ".join(dict.fromkeys(type(each).__name__ for each in callbacks if _stride_of(each)))
    what = "one step" if steps == 1 else f"at most {steps} steps"
    return f"callbacks(): hooks of batches ({names}): each graph call has {what}, which takes longer"
