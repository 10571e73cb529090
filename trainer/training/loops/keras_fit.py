"""`api: keras_fit`: the workload calls model.fit, which is the loop of the strategy.

Keras' own fit fails under MultiWorkerMirrored (keras#20585) and ParameterServer (keras#18624), saves at the end of an
epoch only, and makes one step in each call on several replicas.
"""

from __future__ import annotations

import inspect
import json
import math
import operator
from collections.abc import Callable, Mapping
from types import TracebackType

import keras
import numpy as np
import tensorflow as tf

from trainer.job.errors import UserError
from trainer.training import inputs
from trainer.training.callbacks.of_workload import made
from trainer.training.outputs.finish import Train, Trained
from trainer.training.private import keras_private
from trainer.training.runtime.user_code import calling
from trainer.training.task import TrainingTask
from trainer.workloads import fit
from trainer.workloads.batched import batched
from trainer.workloads.types import Callback, History, Model
from trainer.workloads.workload import Shard

_FIT = inspect.signature(keras.Model.fit)
_FIGURES = 11
"""The use of `text_from_chief`."""


_TWO_JOBS = "in two jobs, of which one has the other's init_from"
_COMPILES = f"compile, freeze and unfreeze in model(); train in two phases {_TWO_JOBS}"
_OF_A_CLUSTER = (
    "the variables are those of a cluster; define evaluate(model), which is given a copy of the trained model"
)
_IN_A_CALLBACK = "in a callback the chief alone would have these weights; call it on self.model"


class _Stopped(BaseException):
    """Ends the workload's fit() after SIGTERM. It is no Exception, which the workload's code might catch."""


def run(job: TrainingTask, model: Model, train: Train) -> Trained:
    """Calls the workload's fit(), whose model.fit trains.

    Raises:
        UserError: it fails, or does not train.
    """
    name = job.workload.name
    if type(model).fit is not keras.Model.fit:
        raise UserError(f"workload: {name}: model() gives a {type(model).__name__} with its own fit(); rename it")
    if job.workload.callbacks is not None and job.workload.fit is not None:
        raise UserError(f"workload: {name}: has callbacks() and fit(); pass the callbacks to model.fit")
    return _Fitting(job, model, train).run()


class _Fitting:
    """A call of the workload's fit()."""

    def __init__(self, job: TrainingTask, model: Model, train: Train) -> None:
        self._job, self._model, self._train = job, model, train
        steps = job.steps_in_epoch(job.training)
        epochs = math.ceil(job.total_steps(job.training) / steps)
        self._run = fit.Fit(fit.TrainingData(), steps, epochs, job.task.is_chief)
        self._parts = _parts(model)
        self._trained: Trained | None = None
        self._failure: tuple[BaseException, TracebackType | None] | None = None

    def run(self) -> Trained:
        name = self._job.workload.name
        self._model.fit = self._fit
        if self._job.spec.traits.coordinated or len(self._job.task.members()) > 1:
            for method in ("evaluate", "predict"):  # keras#18624, keras#20585
                setattr(self._model, method, self._refusing(method, _OF_A_CLUSTER))
        self._model.compile = self._refusing("compile", _COMPILES)
        try:
            (self._job.workload.fit or fit.fit)(self._model, self._run)
        except _Stopped:
            pass
        except Exception:
            if self._failure is None:
                with calling(name, "fit(model, run)"):
                    raise
        if self._failure is not None:
            # With the frames of the loop only, as without fit(): it is no error at the line that calls model.fit.
            error, frames = self._failure
            raise error.with_traceback(frames)
        if self._trained is None:
            raise UserError(f"workload: {name}: fit(model, run) has not trained the model; call model.fit(run.train)")
        return self._trained

    def _fit(self, *given: object, **named: object) -> History:
        """Keras' fit, as far as it is possible in a job; it refuses the rest by name."""
        if self._trained is not None:
            if self._trained.stopped:
                raise _Stopped
            raise self._refusal("", f"is called a second time; train in one call, or {_TWO_JOBS}")
        arguments = _FIT.bind(self._model, *given, **named).arguments
        self._check(arguments)
        history = keras.callbacks.History()
        history.on_train_begin()  # on this task the loop may not call it
        callbacks = _list(arguments.get("callbacks"))
        validation, weights = self._validation(arguments), self._class_weight(arguments.get("class_weight"))
        self._loop(self._job.with_fit(lambda: [*made(self._job), *callbacks, history], validation, weights))
        self._take_weights()
        _share(self._job, history)
        history.set_model(self._model)
        self._model.history = history
        return history

    def _loop(self, job: TrainingTask) -> None:
        # A callback may have the model of fit(model, run), on the chief alone.
        only_one = len(self._job.task.members()) > 1 and not self._job.spec.traits.coordinated
        methods = ("set_weights", "load_weights") if only_one else ()
        for method in methods:
            setattr(self._model, method, self._refusing(method, _IN_A_CALLBACK))
        try:
            self._trained = self._train(job)
        except BaseException as error:
            self._failure = error, error.__traceback__
            raise
        for method in methods:
            delattr(self._model, method)
        if self._trained.stopped:
            raise _Stopped

    def _take_weights(self) -> None:
        """Gives the model its final weights, as fit does: the workload may save it.

        These are the averages of use_ema, and on the chief those that callbacks have restored.
        """
        optimizer = keras_private.inner(self._model.optimizer)
        with self._model.distribute_strategy.scope():
            if self._trained is not None and self._trained.weights is not None:
                for i, variable in enumerate(self._model.variables):
                    variable.assign(self._trained.weights.values[f"model.{i:03d}"])
            elif optimizer.use_ema and optimizer.built:
                optimizer.finalize_variable_values(self._model.trainable_variables)

    def _refusing(self, method: str, rule: str) -> Callable[..., None]:
        def refuse(*_: object, **__: object) -> None:
            raise UserError(f"workload: {self._job.workload.name}: model.{method}: {rule}")

        return refuse

    def _check(self, arguments: Mapping[str, object]) -> None:
        """Refuses what the job cannot do, or decides otherwise.

        `verbose` is not among it: the job logs as `train.log_steps` demands.
        """
        run, batch = self._run, self._job.global_batch
        if _parts(self._model) != self._parts:
            what = "was frozen, unfrozen or given another optimizer or schedule after model()"
            raise self._refusal("", f"the model {what}; do that in model()")
        if (x := arguments.get("x")) is not run.train:
            raise self._refusal(
                f"x={_short(x)}", "data(shard) gives the training data; write model.fit(run.train, ...)"
            )
        allowed: dict[str, tuple[tuple[object, ...], str]] = {
            "y": ((None,), "data(shard) gives the labels too; leave it out"),
            "batch_size": ((None, batch), f"the spec decides, by train.global_batch_size: {batch}; leave it out"),
            "epochs": ((run.epochs,), "the spec decides; set train.epochs, and write epochs=run.epochs"),
            "steps_per_epoch": ((None, run.steps_per_epoch), "write steps_per_epoch=run.steps_per_epoch"),
            "initial_epoch": ((0,), "a job resumes by itself; write initial_epoch=run.initial_epoch"),
            "validation_split": ((0,), "set train.validation_split in the spec"),
            "shuffle": ((True,), "arrays are shuffled; for an order of your own data(shard) may give a Dataset"),
            "sample_weight": ((None,), "data(shard) gives weights too: (x, y, sample_weight)"),
            "validation_freq": ((1,), "each epoch ends with a validation; leave it out"),
        }
        for name, (values, way_out) in allowed.items():
            value = arguments.get(name, values[0])
            if not any(value is each or (isinstance(value, int | float) and value == each) for each in values):
                raise self._refusal(f"{name}={_short(value)}", way_out)

    def _validation(self, arguments: Mapping[str, object]) -> Callable[[Shard], object] | None:
        data, steps = arguments.get("validation_data"), arguments.get("validation_steps")
        data = tuple(data) if isinstance(data, list) else data  # as Keras' unpack_x_y_sample_weight
        size = arguments.get("validation_batch_size") or self._job.global_batch
        if data is None:
            for name in ("validation_steps", "validation_batch_size"):
                if arguments.get(name) is not None:
                    raise self._refusal(f"{name}={arguments[name]}", "is for validation_data; leave it out")
            return None
        if self._job.workload.validation is not None or self._job.spec.train.validation_split:
            raise self._refusal("validation_data=...", "the job has other validation data; leave it out")
        for name, number in (("validation_batch_size", size), ("validation_steps", steps)):
            if number is not None and not (isinstance(number, int | np.integer) and number > 0):
                raise self._refusal(f"{name}={_short(number)}", "must be a whole number above 0")
        dataset = data
        if not isinstance(data, tf.data.Dataset):
            dataset = inputs.source(data, "model.fit(validation_data=...)").evaluation(operator.index(size))  # type: ignore[arg-type]
        batches = batched(dataset.take(steps) if steps is not None else dataset)  # type: ignore[attr-defined]
        return lambda _: batches

    def _class_weight(self, class_weight: object) -> dict[int, float] | None:
        if class_weight is None:
            return None
        try:
            weights = {operator.index(number): float(weight) for number, weight in class_weight.items()}  # type: ignore[attr-defined]
        except (AttributeError, TypeError, ValueError):
            weights = {}
        if not weights or not all(abs(n) < 2**31 and math.isfinite(weight) for n, weight in weights.items()):
            raise self._refusal(
                f"class_weight={_short(class_weight)}", "must be a dict of weights by class number: {0: 1.0, 1: 2.5}"
            )
        return weights

    def _refusal(self, what: str, rule: str) -> UserError:
        return UserError(f"workload: {self._job.workload.name}: model.fit({what}): {rule}")


def _share(job: TrainingTask, history: History) -> None:
    """Gives every task the figures, which the chief's callback has, for the code after fit."""
    if job.spec.traits.coordinated or len(job.task.members()) == 1:
        return
    text = json.dumps([history.epoch, history.history], default=_plain)
    history.epoch, history.history = json.loads(job.text_from_chief(text, _FIGURES))


def _plain(value: object) -> object:
    """A callback may add numbers of NumPy or TensorFlow to the logs."""
    return np.asarray(value).tolist()


def _parts(model: Model) -> tuple[int, bool, list[int]]:
    """What the loop was built with."""
    optimizer = keras_private.inner(model.optimizer)
    settable = keras_private.has_settable_rate(optimizer)
    return id(optimizer), settable, [id(variable) for variable in model.trainable_variables]


def _list(callbacks: object) -> list[Callback]:
    """Returns callbacks as a list, from all forms that fit takes, a CallbackList too."""
    listed = callbacks.callbacks if isinstance(callbacks, keras.callbacks.CallbackList) else callbacks
    return [] if listed is None else list(keras.tree.flatten(listed))


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 and "\n" not in text else f"<{type(value).__name__}>"
