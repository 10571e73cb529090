"""trainer.keras.Report: a callback for model.fit, which sends figures of the training by trainer.report.

It imports no Keras and has no base class: a program may use Keras 3, tf_keras or Keras 2, or several of them, and each
calls the hooks of any object among the callbacks.
"""

from __future__ import annotations

import math
import re
import threading
import time

from trainer import reporting

TYPE_CHECKING = False  # typing's own takes milliseconds to import
if TYPE_CHECKING:
    from collections.abc import Callable

WATCH_SECONDS = 1.0


class Report:
    """Reports step, loss, metrics and throughput of a fit: `model.fit(..., callbacks=[trainer.keras.Report()])`.

    A step is a batch; steps continue from those that the optimizer has made. Does nothing outside of a job.
    """

    async_safe = True
    """Asked by Keras 3: with JAX, fit need not wait for the logs of a batch before it begins the next one."""
    _supports_tf_logs = True
    """Asked by tf_keras and Keras 2: logs come as tensors, so only those that are sent are fetched from the device."""

    def __init__(self, batch_size: int | None = None) -> None:
        """Without arguments it works with every model.

        Args:
            batch_size: the examples of a step, over all workers, from which examples_per_second is computed: of each
                worker its share, so that the job's rate is their sum. Keras does not tell it to callbacks; without it
                the figure is there for models with a fixed batch size only.

        Raises:
            TypeError, ValueError: no batch has this size.
        """
        self.model: object = None
        self.params: dict[str, object] = {}
        self._batch_size = None if batch_size is None else reporting.count("batch_size", batch_size, least=1)
        self._begin(fits=False)

    def _begin(self, *, fits: bool) -> None:
        self._fits = fits
        """Whether a fit goes on whose figures are read."""
        self._epoch = 0
        self._step: int | None = None
        """None before the first batch of the fit."""
        self._ahead = 0
        """By how many steps `_step` is ahead of the optimizer's, as after a load of weights alone."""
        self._offset: int | None = None
        """The step at batch 0 of the epoch; None before the first batch of the epoch."""
        self._steps: int | None = None
        """Of the last epoch."""
        self._last = math.inf
        """The last step of the epoch, if known."""
        self._total: int | None = None
        self._due = 0.0
        """When to report again."""
        self._since: tuple[float, int] | None = None
        """Time and step of the last measurement of the throughput."""
        self._test_began = 0.0
        self._epoch_over: threading.Event | None = None
        """While the optimizer is watched. Not always: a lock cannot be copied, and tuners copy callbacks."""

    # Hooks and attributes that every Keras uses. ----------------------------------------------------------------------

    def set_model(self, model: object) -> None:
        self.model = model

    def set_params(self, params: dict[str, object]) -> None:
        self.params = params

    def _implements_train_batch_hooks(self) -> bool:
        return True

    def _implements_test_batch_hooks(self) -> bool:
        return True

    def _implements_predict_batch_hooks(self) -> bool:
        return False

    def __getattr__(self, name: str) -> Callable[..., None]:
        """All other hooks, those of later versions too."""
        if name.startswith("on_"):
            return _nothing
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def on_train_begin(self, logs: object = None) -> None:
        self._end_watch()  # of an earlier fit that failed
        self._begin(fits=reporting.is_read())

    def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
        self._epoch, self._offset = epoch, None

    def on_train_batch_begin(self, batch: int, logs: object = None) -> None:
        if self._fits and self._offset is None:
            self._begin_epoch(batch)

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        if self._offset is None or self._step is None:
            return
        # With steps_per_execution Keras 3 counts batches beyond the end of an epoch. With JAX, hooks are called by
        # several threads, in any order.
        self._step = max(self._step, int(min(self._offset + batch + 1, self._last)))
        if not isinstance(logs, dict):
            self._watch()
        elif time.monotonic() >= self._due:
            self._report(self._step, _of_batch(self.model, _figures(logs)))

    def on_test_begin(self, logs: object = None) -> None:
        self._test_began = time.monotonic()

    def on_test_batch_end(self, batch: int, logs: object = None) -> None:
        """A sign of life: a figure that changes, where the step does not."""
        if self._fits and self._step is not None and time.monotonic() >= self._due:
            reporting.report(step=self._step, total=self._total, validation_batch=batch + 1)
            self._due = time.monotonic() + reporting.INTERVAL

    def on_test_end(self, logs: object = None) -> None:
        """The throughput is that of training."""
        if self._since is not None:
            self._since = (self._since[0] + time.monotonic() - self._test_began, self._since[1])

    def on_epoch_end(self, epoch: int, logs: object = None) -> None:
        self._end_watch()
        if self._offset is not None and self._step is not None:
            self._steps = self._step - self._offset
            self._report(self._step, _figures(logs))

    def on_train_end(self, logs: object = None) -> None:
        if self._fits:
            reporting.flush()
        self._fits, self._offset = False, None

    # ------------------------------------------------------------------------------------------------------------------

    def _begin_epoch(self, batch: int) -> None:
        """Not before the first batch: callbacks restore a model in other hooks, and tf_keras then begins in the midst
        of an epoch."""
        steps, epochs = self._param("steps") or self._steps, self._param("epochs")
        if self._step is None:
            made = _made(self.model)
            self._step = max(made, self._epoch * (steps or 0) + batch)
            self._ahead = self._step - made
        self._offset = self._step - batch
        if steps:
            self._last = self._offset + steps
            self._total = None if epochs is None else self._offset + (epochs - self._epoch) * steps

    def _param(self, name: str) -> int | None:
        index = getattr(self.params.get(name), "__index__", None)
        return None if index is None else int(index())

    def _report(self, step: int, figures: dict[str, float]) -> None:
        self._send(step, figures)
        self._due = time.monotonic() + reporting.INTERVAL

    def _send(self, step: int, figures: dict[str, float]) -> None:
        rate = self._rate(time.monotonic(), step)  # the step is over: its figures were read
        own = {} if rate is None else {"examples_per_second": rate}
        reporting.report(step=step, total=self._total, **figures, **own)

    def _rate(self, now: float, step: int) -> float | None:
        """Examples per second since the last measurement."""
        if self._since is None:  # the first step is not counted: it has traced and compiled the model
            self._since = (now, step)
            return None
        seconds, steps = now - self._since[0], step - self._since[1]
        if seconds < reporting.INTERVAL or steps <= 0:
            return None
        self._since = (now, step)
        size = self._batch_size or self._param("batch_size") or _fixed_batch_size(self.model)
        return size * steps / seconds / _workers(self.model) if size else None

    def _watch(self) -> None:
        """tf_keras under ParameterServerStrategy calls the hooks of an epoch's batches as soon as it has scheduled
        them, with promises in place of logs: the steps that are made are the optimizer's."""
        if self._epoch_over is not None:
            return
        self._epoch_over = over = threading.Event()
        threading.Thread(target=self._report_made, args=[over], name="trainer.keras.Report", daemon=True).start()

    def _end_watch(self) -> None:
        if self._epoch_over is not None:
            self._epoch_over.set()
            self._epoch_over = None

    def _report_made(self, over: threading.Event) -> None:
        last = 0
        while not over.wait(WATCH_SECONDS):
            step = _made(self.model) + self._ahead
            if step > last and not over.is_set():
                last = step
                self._send(step, {})


def _nothing(*args: object, **kwargs: object) -> None:
    """A hook that does nothing."""


def _made(model: object) -> int:
    """The batches from which the model's optimizer has learnt; 0 if that is not known."""
    try:
        optimizer = getattr(model, "optimizer", None)
        made = reporting.count("step", getattr(optimizer, "iterations", None))
        return made * (getattr(optimizer, "gradient_accumulation_steps", None) or 1)
    except Exception:  # there is none, or none that counts, or its ps is lost, which ends the fit by itself
        return 0


def _workers(model: object) -> int:
    """The workers that make a step together, each of which reports: those of MultiWorkerMirroredStrategy."""
    try:
        strategy = getattr(model, "distribute_strategy", None)
        replicas = getattr(strategy, "num_replicas_in_sync", 1)
        own = getattr(getattr(strategy, "extended", None), "worker_devices", ())
        return max(1, int(replicas // len(own))) if own else 1
    except Exception:  # a strategy of another kind
        return 1


def _fixed_batch_size(model: object) -> int | None:
    """That of the model's input; None if it is not fixed, or if it is that of a replica."""
    try:
        if getattr(getattr(model, "distribute_strategy", None), "num_replicas_in_sync", 1) > 1:
            return None
        size = getattr(model, "inputs", [])[0].shape[0]
    except Exception:  # a model of the user's own class may have no inputs
        return None
    return size if isinstance(size, int) else None


def _figures(logs: object) -> dict[str, float]:
    """Those of the logs that are numbers, by names as trainer.report wants them."""
    found: dict[str, float] = {}
    for name, value in logs.items() if isinstance(logs, dict) else ():
        key = re.sub(r"\W", "_", name)
        if not key.isidentifier():
            key = f"_{key}"
        if key in ("step", "total", "examples_per_second", "validation_batch"):
            key += "_"
        try:
            found[key] = float(reporting.plain(key, value))
        except (TypeError, ValueError):  # a metric may have several values
            continue
    return found


def _of_batch(model: object, figures: dict[str, float]) -> dict[str, float]:
    """Nothing if they may be wrong: of several replicas, tf_keras, and Keras 2 from 2.11 on, give the mean or the sum
    of means, depending on the strategy and its devices (reduce_per_replica). At the end of an epoch they are right.
    """
    replicas = getattr(getattr(model, "distribute_strategy", None), "num_replicas_in_sync", 1)
    is_keras_3 = hasattr(model, "stateless_call")
    is_sum = getattr(model, "distribute_reduction_method", "first") in ("auto", "sum")
    return {} if replicas > 1 and is_sum and not is_keras_3 else figures
