"""The callbacks of a job, on the chief: hooks are called with a copy of the model outside any strategy.

To read a variable of the trained model may be a collective, which one task alone must not begin.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import keras
import numpy as np

from trainer.job.errors import UserError
from trainer.model_dir import checkpoint, checkpoint_meta
from trainer.model_dir.checkpoint_meta import UNTRACKED
from trainer.protocol import events
from trainer.training.callbacks import of_workload
from trainer.training.callbacks.state import Saved, States, begins_anew
from trainer.training.model import evaluation
from trainer.training.model.build_model import build_copy
from trainer.training.model.checks import can_evaluate, has_own_step
from trainer.training.model.state import TrainState, given_optimizer
from trainer.training.private import keras_private
from trainer.training.runtime import created_variables
from trainer.training.runtime.channel import Channel
from trainer.training.runtime.user_code import calling
from trainer.training.task import TrainingTask
from trainer.workloads.types import Callback, Dataset, Model, Optimizer, Tensor

Logs = dict[str, float]


@dataclass(frozen=True)
class Replaced:
    """Values of the model's variables at the end of the training."""

    values: checkpoint.Values
    by: str
    """The callbacks that have set them."""


class Hooks:
    """Calls the callbacks, and keeps what they decide: to stop, another learning rate, other weights."""

    def __init__(
        self,
        job: TrainingTask,
        state: TrainState,
        channel: Channel,
        batch: Tensor,
        metrics: Sequence[str],
        *,
        epochs: int,
        steps: int,
    ) -> None:
        """Makes the callbacks and their model.

        Args:
            batch: tf.TensorSpec of each part of a replica's batch.
            metrics: the names in the logs of an epoch, validation aside.
        """
        self._job, self._channel, self._trained = job, channel, state.model
        self.model = build_copy(job)
        evaluates = not has_own_step(self.model) or can_evaluate(self.model)
        self._validation = job.validation() if evaluates else None
        self.callbacks, lines = of_workload.callbacks(job, metrics, validates=self._validation is not None)
        for line in lines:
            channel.send(events.Line(line))
        of_optimizer = created_variables.Created()
        if self.model.compiled:
            keras_private.build_compiled(self.model, batch)
        else:
            with of_optimizer.noting():
                self.model.optimizer = _new_optimizer(job, state)
            of_workload.set_modes(self.callbacks)
        self._optimizers = self._copies(state)
        self.model.stop_training = self._trained.stop_training = False
        of_workload.require_settable_rate(job, self.callbacks, self.model.optimizer)
        self.stride = of_workload.stride(self.callbacks)
        if self.stride:
            channel.send(events.Line(of_workload.line_about_batches(self.callbacks, self.stride)))
        self._score = None if self.model.compiled else evaluation.make_score(job, self.model)
        self._all = self._list_of_all(epochs, steps)
        self.reason: str | None = None
        """Why the training ends early."""
        self._logs: Logs = {}
        self._had_rates: list[float] = []
        self._given: checkpoint.Values = {}
        of_model = {f"model.{i:03d}": v.value for i, v in enumerate(self.model.variables)}
        of_model |= evaluation.untracked(job, self.model, state.untracked)
        alike = {f"{UNTRACKED}optimizer.{i:03d}": v for i, v in enumerate(of_optimizer.alive()) if v is not None}
        of_model |= {name: v for name, v in alike.items() if name in state.untracked}
        self._of_model = of_model
        """Variables of the callbacks' model and its optimizer, by the names of those of the trained one."""
        self._variables = {**{name: v for name, v in state.untracked.items() if name not in of_model}, **of_model}
        """The same, and those outside the model, which callbacks change for the trained model too."""
        self._called = False
        """Whether a hook was called since `changed_weights`."""
        self._states = States(self._all.callbacks, lambda text: channel.send(events.Line(text)), job.spec.directory)

    def _list_of_all(self, epochs: int, steps: int) -> keras.callbacks.CallbackList:
        """The job's callbacks with those that Keras' fit adds."""
        callbacks = keras.callbacks.CallbackList(
            [*self.callbacks, evaluation.Ends(self._channel.stopping.is_set)],
            add_history=True,
            model=self.model,
            epochs=epochs,
            steps=steps,
            verbose=0,
        )
        for callback in self.callbacks:
            with _naming(self._job.workload.name, type(callback).__name__):
                keras_private.decide_direction(callback)
        return callbacks

    def begin(self, values: checkpoint.Values, step: int, in_checkpoint: Saved | None, *, restores: bool) -> None:
        """on_train_begin.

        Args:
            found: the state of the callbacks in the checkpoint of `step`, from which training continues.
            restores: whether they get it. Files are continued in any case.
        """
        saved = in_checkpoint if restores else None
        self._states.before_begin(in_checkpoint, step)
        self._give(values)
        self._call("on_train_begin", None)
        self._states.after_begin(saved)
        if saved is not None:
            for callback in filter(begins_anew, self.callbacks if saved.epochs["begun"] else ()):
                self._call_one(callback, "on_epoch_begin", saved.epochs["number"])
            self._give(values)  # a callback may have set the rate with which an epoch begins
            self.reason = None
            self.model.stop_training = self._trained.stop_training = False

    def epoch_begin(self, epoch: int) -> None:
        self._call("on_epoch_begin", epoch, None, epoch=epoch)

    def batch_begin(self, epoch: int, batch: int) -> None:
        self._call("on_train_batch_begin", batch, None, epoch=epoch)

    def batch_end(self, epoch: int, batch: int, logs: Logs, values: checkpoint.Values) -> None:
        self._give(values)
        self._call("on_train_batch_end", batch, logs, epoch=epoch)

    def epoch_end(self, epoch: int, logs: Logs, values: checkpoint.Values) -> bool:
        """Validates, and calls on_epoch_end; False if the task was asked to stop meanwhile, and no hook was called."""
        self._give(values)
        self._channel.send(events.EpochEnd(over=False))
        validated = {} if self._validation is None else self._validate(self._validation)
        if validated is None:
            return False
        self._logs = logs | {f"val_{name}": value for name, value in validated.items()}
        self._call("on_epoch_end", epoch, self._logs, epoch=epoch)
        for callback in self.callbacks:
            keras_private.flush_summaries(callback)
        self._channel.send(events.EpochEnd(over=True))
        return True

    def end(self, values: checkpoint.Values) -> Replaced | None:
        """on_train_end; returns the values of the model's variables if callbacks have replaced them."""
        self._give(values)
        optimizer = self._optimizers["optimizer"]
        if optimizer is not None and optimizer.use_ema:
            optimizer.finalize_variable_values(self.model.trainable_variables)
        by: list[str] = []
        before = self._weights()
        for callback in self._all.callbacks:
            self._call_one(callback, "on_train_end", self._logs)
            after = self._weights()
            if not _equal(before, after):
                before, by = after, [*by, type(callback).__name__]
        return Replaced(before, ", ".join(by)) if by else None

    def rates(self) -> list[float]:
        """The learning rate of each optimizer of the state; NaN if it is a schedule."""
        rates = [float("nan") if each is None else keras_private.rate(each) for each in self._optimizers.values()]
        self._had_rates = self._had_rates or rates
        for now, had in zip(rates, self._had_rates, strict=True):
            if math.isnan(now) and not math.isnan(had):
                raise UserError(
                    f"workload: {self._job.workload.name}: a callback has set a learning rate to a schedule; give "
                    "numbers, or a schedule in model()"
                )
        return rates

    def set_rate(self, i: int, rate: float) -> None:
        """Sets the learning rate of the copy of an optimizer of the state."""
        optimizer = list(self._optimizers.values())[i]
        if optimizer is not None:
            optimizer.learning_rate = rate

    def changed_weights(self) -> checkpoint.Values | None:
        """The values of the model's variables if a callback has changed them since they were given, or since the last
        time."""
        if not self._called:
            return None
        self._called = False
        present = {name: v.numpy() for name, v in self._variables.items()}
        if _equal(present, self._given):
            return None
        self._given = self._weights()
        return self._given

    def saved(self) -> tuple[list[checkpoint_meta.CallbackState], checkpoint.Values]:
        """The state of each callback for a checkpoint, and the arrays in it."""
        return self._states.saved()

    def _give(self, values: checkpoint.Values) -> None:
        for name, variable in self._of_model.items():
            variable.assign(values[name])  # not Keras' own, which converts and copies first
        for name, optimizer in self._optimizers.items():
            # Of an optimizer that was not built: iterations and the learning rate, the first of all.
            for i, variable in enumerate(() if optimizer is None else optimizer.variables):
                variable.value.assign(values[f"{name}.{i:03d}"])
        self._given = values

    def _copies(self, state: TrainState) -> dict[str, Optimizer | None]:
        """The optimizers of the copy, by the names of those of the state; None for one that is no attribute of the
        model, so that no callback can reach it."""
        copies: dict[str, Optimizer | None] = {}
        for name, trained in state.optimizers.items():
            attribute = "optimizer" if not self.model.compiled else _attribute(state.model, trained)
            copy = None if attribute is None else keras_private.inner(getattr(self.model, attribute))
            if copy is not None and (self.model.compiled or copy.use_ema):
                _build_alike(copy, keras_private.inner(trained), self.model, state.model)
            copies[name] = copy
        return copies

    def _weights(self) -> checkpoint.Values:
        return {name: np.array(v.numpy()) for name, v in self._variables.items()}

    def _validate(self, data: Dataset) -> Logs | None:
        name = self._job.workload.name
        if self._score is None:
            with calling(name, "model.evaluate on the validation data"), created_variables.drawing(self.model):
                figures = self.model.evaluate(data, verbose=0, return_dict=True, callbacks=self._all)
        else:
            self._call("on_test_begin", None)
            figures = self._score(data, self._channel.stopping.is_set)
            self._call("on_test_end", figures)
        return None if self._channel.stopping.is_set() else {key: float(value) for key, value in figures.items()}

    def _call(self, hook: str, *args: object, epoch: int | None = None) -> None:
        for callback in self._all.callbacks:
            if not of_workload.has_hook(callback, hook):
                continue
            self._call_one(callback, hook, *args)
            # A function within fit(model, run) may use the model that fit was given.
            if (self.model.stop_training or self._trained.stop_training) and self.reason is None:
                self.reason = _reason(callback, hook, epoch)

    def _call_one(self, callback: Callback, hook: str, *args: object) -> None:
        self._called = True
        with _naming(self._job.workload.name, f"{type(callback).__name__}.{hook}"):
            getattr(callback, hook)(*args)


def _new_optimizer(job: TrainingTask, state: TrainState) -> Optimizer:
    """An optimizer like that of a model that was not compiled."""
    if job.workload.optimizer is not None:
        return given_optimizer(job, job.training)
    trained = keras_private.inner(state.optimizer)
    return type(trained).from_config(trained.get_config())


def _build_alike(copy: Optimizer, built: Optimizer, model: Model, trained: Model) -> None:
    """Builds an optimizer for those variables of a model for which another is built in `trained`."""
    if not copy.built:
        places = {id(variable): i for i, variable in enumerate(trained.variables)}
        copy.build([model.variables[places[id(variable)]] for variable in keras_private.variables_of(built)])


def _attribute(model: Model, optimizer: Optimizer) -> str | None:
    """The name by which a model has an optimizer."""
    attributes = vars(model).items()
    return next(
        (name for name, value in attributes if keras_private.inner(value) is keras_private.inner(optimizer)), None
    )


def _equal(one: checkpoint.Values, other: checkpoint.Values) -> bool:
    return all(np.array_equal(value, other[name]) for name, value in one.items())


def _reason(callback: Callback, hook: str, epoch: int | None) -> str:
    """Why a callback has ended the training; epochs count from 1, as in Keras' own output."""
    name, when = type(callback).__name__, "" if epoch is None else f"; epoch {epoch + 1}"
    if isinstance(callback, keras.callbacks.EarlyStopping):
        patience = callback.patience
        return f"{name}: {callback.monitor} did not improve for {patience} epoch{'s' * (patience != 1)}{when}"
    return f"{name}: {hook} has set model.stop_training{when}"


@contextmanager
def _naming(workload: str, what: str) -> Iterator[None]:
    """Converts errors as `calling` does, but names the hook also where an error has a file and line, and for errors of
    files.

    Raises:
        UserError: in place of any error.
    """
    try:
        with calling(workload, what):
            yield
    except UserError as error:
        if what in str(error):
            raise
        raise UserError(f"{error} (in {what})") from error
    except OSError as error:
        text = f"{error.filename}: {error.strerror}" if error.filename else " ".join(str(error).split())[:300]
        raise UserError(f"workload: {workload}: {what}: {text}") from error
