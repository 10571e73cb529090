"""Epochs in trainer's loops, on every task: when one ends, and that all tasks follow what the chief's callbacks decide.

while epochs.goes_on():      # hooks before a call; then their decisions hold everywhere
    ...                      # a call of at most epochs.left() steps
    epochs.add(...)          # hooks after it; the chief's variables, and so a checkpoint, have their decisions
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from trainer.model_dir import checkpoint, checkpoint_meta
from trainer.model_dir.checkpoint_meta import UNTRACKED
from trainer.protocol import events
from trainer.training.callbacks.hooks import Hooks, Logs, Replaced
from trainer.training.callbacks.state import Saved
from trainer.training.model.state import TrainState
from trainer.training.model.step import Step, Sums
from trainer.training.private import keras_private
from trainer.training.runtime.channel import Channel
from trainer.training.task import TrainingTask
from trainer.workloads.types import Tensor

Share = Callable[[int, checkpoint.Values], checkpoint.Values]
"""Sends the chief's values to all tasks. Each gives values of the same shapes, always those of this number."""
_PLAN, _DECIDED, _WEIGHTS, _CHANGED = 1, 2, 3, 4
_SUMS = f"{checkpoint.CALLBACKS}sums"


@dataclass(frozen=True)
class Cluster:
    """What differs between the loops."""

    scope: Callable[[], AbstractContextManager[object]]
    """The strategy's scope, in which variables are changed."""
    share: Share
    average: Callable[[], None]
    """Makes variables that layers update themselves equal on all replicas. See `Epochs.average`."""


@dataclass(frozen=True)
class Position:
    """Where a task is in its epochs."""

    number: int
    """The number of the present epoch, from 0."""
    done: int
    """Steps of this epoch that are made."""
    begun: bool
    """Whether on_epoch_begin of this epoch was called."""


class Epochs:
    """The epochs of a job that has callbacks."""

    def __init__(
        self,
        job: TrainingTask,
        state: TrainState,
        made: Step,
        channel: Channel,
        cluster: Cluster,
        batch: Tensor,
        *,
        steps: int,
        step: int,
        total: int,
    ) -> None:
        """Begins the training: all tasks make this call.

        Args:
            batch: tf.TensorSpec of each part of a replica's batch.
            steps: the length of an epoch.
            step: from which training continues.
            total: the step at which the job ends.
        """
        self._job, self._state, self._made, self._channel, self._cluster = job, state, made, channel, cluster
        self._steps, self._total = steps, total
        self._sums, self._count = np.zeros(made.width), 0.0
        self._step, self._asked, self._changed = step, False, False
        self._wanted, self._last = math.inf, math.inf
        """The step after which callbacks end the training: on the chief, and what all tasks know of it."""
        self.reason: str | None = None
        """Why the training ended early."""
        self._known_rates = self._rates()
        self._hooks: Hooks | None = None
        values = state.values()
        plan = self._begin_hooks(batch, values) if job.task.is_chief else np.zeros(4, np.int64)
        number, done, begun, self._stride = map(int, cluster.share(_PLAN, {"plan": plan})["plan"])
        self._at = Position(number, done, bool(begun))
        self._apply_own()
        self._follow()
        if done and (done >= steps or step >= total or self.over):
            self._end_epoch()  # the task was asked to stop before its hooks
            self._follow()

    def _begin_hooks(self, batch: Tensor, values: checkpoint.Values) -> npt.NDArray[np.int64]:
        """Makes the hooks, with their state in the checkpoint if that fits, and calls on_train_begin; on the chief.

        Returns:
            The epoch, how many of its steps are done, whether it was begun, and every how many steps hooks are called.
        """
        step, steps, total, width = self._step, self._steps, self._total, self._made.width
        self._names = list(self._made.figures(np.zeros(width), 1.0))
        read = checkpoint.read_epochs(self._job.spec.directory, step) if step else None
        in_checkpoint = Saved(*read) if read else None
        changed = _changed(in_checkpoint, steps, self._names, width)
        saved = None if changed else in_checkpoint
        if changed:
            text = f"warning: callbacks(): they begin anew, without their state in checkpoint {step}: {changed}"
            self._channel.send(events.Line(text))
        self._hooks = hooks = Hooks(
            self._job, self._state, self._channel, batch, self._names,
            epochs=math.ceil(total / steps), steps=steps,
        )  # fmt: skip
        number, done = divmod(step, steps)
        begun = done > 0
        if saved is not None:
            number, done, begun = saved.epochs["number"], saved.epochs["done"], saved.epochs["begun"]
            self._sums, self._count = saved.arrays[_SUMS], saved.epochs["count"]
        hooks.begin(values, step, in_checkpoint, restores=not changed)
        if hooks.reason is not None:
            self._wanted = step + 1
        elif saved is not None and saved.epochs["total"] == total and saved.epochs["over"]:
            hooks.reason, self._wanted = saved.epochs["over"], step  # else the job was given more steps
        return np.array([number, done, begun, hooks.stride], np.int64)

    def left(self) -> int:
        """The maximum of steps in the next call."""
        left = min(self._steps - self._at.done, self._last - self._step)
        return int(min(left, self._stride - self._step % self._stride) if self._stride else left)

    def goes_on(self) -> bool:
        """Calls the hooks before a call, and lets decisions hold on all tasks; whether training is to go on.

        As in Keras a step is still made if a hook before it ends the training.
        """
        if self._at.begun and not self._stride and not self._asked and math.isinf(self._last):
            return True
        if not self.over:
            self._before_call()
        if self.over and self._at.done and not self._asked:
            self._end_epoch()
            self._follow()
        return not self.over and not self._asked

    def _before_call(self) -> None:
        self._let_end(self._step)
        if self._hooks and not self._asked and self._wanted > self._step:
            if not self._at.begun:
                self._hooks.epoch_begin(self._at.number)
            if self._stride == 1:
                self._hooks.batch_begin(self._at.number, self._at.done)
            self._let_end(self._step + 1)
        self._apply_own()
        self._follow()
        if not self.over and not self._asked:
            self._at = replace(self._at, begun=True)

    def add(self, step: int, done: int, sums: Sums, count: float, *, stopping: bool) -> None:
        """Counts the steps of a call, the last of which is `step`, and calls the hooks after it.

        Args:
            sums: the vector of figures, added up over `count` steps of replicas.
            stopping: whether all tasks will stop now. Hooks at the end of an epoch are left to the next start, except
                at the end of the job.
        """
        self._step, self._at = step, replace(self._at, done=self._at.done + done)
        self._sums, self._count = self._sums + sums, self._count + count
        at = self._at
        if done and self._stride and (step % self._stride == 0 or at.done == self._steps):
            values = self._state.values()
            if self._hooks:
                self._hooks.batch_end(at.number, at.done - 1, self._logs(), values)
            self._apply_own()
        if done and step >= self._total:
            self._end_epoch()
            self._follow()
        elif done and at.done >= self._steps and not stopping:
            self._end_epoch()

    @property
    def asked(self) -> bool:
        """Whether the chief was asked to stop while the others waited for its hooks."""
        return self._asked

    @property
    def over(self) -> bool:
        """Whether a callback has ended the training."""
        return self._step >= self._last

    def ends(self) -> bool:
        """Whether a callback has ended the training, which all tasks ask after a call: the checkpoint of this step then
        follows once its epoch has ended, whose hooks may change weights."""
        self._let_end(self._step)
        self._follow()
        return self.over

    def average(self) -> None:
        """Makes all variables equal on all replicas, for a checkpoint or the end of an epoch.

        The weights that a callback has set come first: they may have new values for the layers' own variables, which
        the other tasks lack, and a mean of both would be neither.
        """
        changed = self._cluster.share(_CHANGED, {"changed": np.array(self._changed, np.int64)})["changed"]
        self._follow_weights(bool(changed))
        self._cluster.average()

    def saved(self) -> Saved:
        """Position, figures and the state of the callbacks, for a checkpoint; on the chief."""
        assert self._hooks is not None
        callbacks, arrays = self._hooks.saved()
        epochs: checkpoint_meta.Epochs = {
            "number": self._at.number, "done": self._at.done, "begun": self._at.begun, "count": self._count,
            "steps": self._steps, "figures": self._names, "total": self._total, "callbacks": callbacks,
            "over": self._hooks.reason if self._step < self._total else None,
        }  # fmt: skip
        return Saved(epochs, arrays | {_SUMS: self._sums})

    def end(self) -> Replaced | None:
        """Calls on_train_end; returns the values of the model's variables if callbacks have replaced them."""
        values = self._state.values()
        if self._hooks is None:
            return None
        if self.over:
            self.reason = self._hooks.reason
            self._channel.send(events.Line(f"training ends at step {self._step} of {self._total}: {self.reason}"))
        return self._hooks.end(values)

    def _logs(self) -> Logs:
        return self._made.figures(self._sums, max(1.0, self._count))

    def _end_epoch(self) -> None:
        self.average()
        values = self._state.values()
        if self._hooks and not self._hooks.epoch_end(self._at.number, self._logs(), values):
            self._asked = True
            return
        self._apply_own()
        self._at = Position(self._at.number + 1, 0, begun=False)
        self._sums, self._count = np.zeros_like(self._sums), 0.0

    def _let_end(self, step: int) -> None:
        """Notes on the chief whether a hook has ended the training, at this step."""
        if self._hooks and self._hooks.reason is not None:
            self._wanted = min(self._wanted, step)

    def _apply_own(self) -> None:
        """Makes the chief's variables those that the callbacks want; `_follow` does on the others."""
        if self._hooks is None:
            return
        # A function within fit(model, run) may set that of the model that fit was given.
        for i, (rate, known) in enumerate(zip(self._rates(), self._known_rates, strict=True)):
            if rate != known and not math.isnan(rate):
                self._hooks.set_rate(i, rate)
        self._set_rates(self._hooks.rates())
        self._known_rates = self._rates()
        if (changed := self._hooks.changed_weights()) is not None:
            self._changed = True
            self._set_weights(changed)

    def _follow(self) -> None:
        """Lets what the chief's callbacks decided hold on this task."""
        hooks = self._hooks
        decided = np.zeros(3 + len(self._state.optimizers))
        if hooks:
            decided[:] = [self._wanted, self._asked, self._changed, *hooks.rates()]
        self._last, asked, changed, *rates = self._cluster.share(_DECIDED, {"decided": decided})["decided"].tolist()
        self._asked = bool(asked)
        self._follow_weights(bool(changed))
        self._set_rates(rates)

    def _follow_weights(self, changed: bool) -> None:
        self._changed = False
        if changed:
            of_model = ("model.", UNTRACKED)
            values = {name: value for name, value in self._state.values().items() if name.startswith(of_model)}
            self._set_weights(self._cluster.share(_WEIGHTS, values))

    def _rates(self) -> list[float]:
        """The learning rate of each optimizer; NaN if it is a schedule."""
        return [keras_private.rate(keras_private.inner(each)) for each in self._state.optimizers.values()]

    def _set_rates(self, rates: Sequence[float]) -> None:
        for optimizer, now, rate in zip(self._state.optimizers.values(), self._rates(), rates, strict=True):
            if not math.isnan(rate) and now != rate:
                with self._cluster.scope():
                    keras_private.inner(optimizer).learning_rate = rate

    def _set_weights(self, values: checkpoint.Values) -> None:
        with self._cluster.scope():
            for name, variable in self._state.variables:
                if name in values:
                    variable.assign(values[name])


def _changed(saved: Saved | None, steps: int, names: list[str], width: int) -> str | None:
    """Why the callbacks' state in a checkpoint does not fit these epochs and figures; None if it does."""
    if saved is None:
        return None
    if missing := checkpoint_meta.Epochs.__required_keys__ - saved.epochs.keys():
        return f"another version of trainer wrote it, without {', '.join(sorted(missing))}"
    if saved.epochs["steps"] != steps:
        return f"an epoch had {saved.epochs['steps']} steps, and now has {steps}"
    if saved.epochs["figures"] != names:
        return f"the figures of a step were {', '.join(saved.epochs['figures'])}, and now are {', '.join(names)}"
    if saved.arrays[_SUMS].shape != (width,):
        return f"the metrics have other variables than before: {saved.arrays[_SUMS].size} numbers, now {width}"
    return None
