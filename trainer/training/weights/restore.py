"""Begins a job with the values of its newest checkpoint, or of init_from."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

import keras
import numpy as np
import tensorflow as tf

from trainer.model_dir import checkpoint, checkpoint_meta, init_files
from trainer.model_dir.arrays import LARGE, DamagedError
from trainer.protocol import events
from trainer.training.model.state import TrainState, description
from trainer.training.runtime.channel import Channel
from trainer.training.task import TrainingTask
from trainer.training.weights import rates
from trainer.training.weights.init_from import initial_values
from trainer.training.weights.untracked import assign_here, candidates
from trainer.workloads.types import Strategy, Variable

_PACK_BYTES = LARGE
"""Small variables are sent together. At most the last of a pack is large: the memory of such an array is used again."""
_STEP, _PACKS = 23, 100
"""Uses of `from_chief`: the step, and the first pack of variables."""


def restore(strategy: Strategy, job: TrainingTask, state: TrainState, total: int) -> tuple[int, list[str]]:
    """Loads the newest intact checkpoint into the variables, or if there is none the file of init_from.

    Call it outside the strategy's scope, see `_restore`.

    Args:
        total: the step at which the job ends.

    Returns:
        The step of the checkpoint, or 0; and a line for each damaged one.

    Raises:
        UserError: it does not fit the spec or the model, or is past the job's end; the message names the difference.
    """
    state.note_rates()
    return _restore(strategy, job, state, total, lambda _, arrays: _assign(state, arrays))


def restore_everywhere(
    strategy: Strategy, job: TrainingTask, state: TrainState, total: int, channel: Channel, resume_step: int
) -> int:
    """The chief reads the checkpoint, or the file of init_from, and sends step and values to the other tasks through
    the cluster: its initial values, if there is neither. `resume_step` is 0 on all tasks if there is no checkpoint."""
    state.note_rates()
    reads, alone = resume_step > 0 or job.spec.init_from is not None, len(job.task.members()) == 1
    if not reads and alone:
        return 0
    if not job.task.is_chief:
        with strategy.scope():
            return _receive(job, state)
    if alone:
        step, broken = restore(strategy, job, state, total)
    else:
        step, broken = _send_all(strategy, job, state, total, reads=reads)
    for line in broken:
        channel.send(events.Line(line))
    return step


def _send_all(
    strategy: Strategy, job: TrainingTask, state: TrainState, total: int, *, reads: bool
) -> tuple[int, list[str]]:
    step, broken = 0, list[str]()
    if reads:
        step, broken = _restore(strategy, job, state, total, lambda step, arrays: _send(job, state, step, arrays))
    if state.restored is None and job.spec.init_from is None:
        with strategy.scope():
            _send(job, state, 0, iter(state.values().items()))
    _share_step(job, step, ends=True)
    return step, broken


_Take: TypeAlias = Callable[[int, checkpoint.Arrays], None]
"""Takes the step of a checkpoint, and the arrays of all variables in their order; what the iterator raises is for
`_restore`."""


def _restore(
    strategy: Strategy, job: TrainingTask, state: TrainState, total: int, take: _Take
) -> tuple[int, list[str]]:
    """Reads the file outside the strategy's scope, and calls `take` within it.

    To list the names of a model's weights Keras creates an optimizer (`get_attr_skipset`,
    keras/src/saving/saving_lib.py). Within the scope each task would have to create its variables.
    """
    directory = job.spec.directory

    def take_in_scope(step: int, arrays: checkpoint.Arrays) -> None:
        with strategy.scope():
            take(step, arrays)

    untracked, lines = candidates(job, state), list[str]()

    def require_fitting(meta: checkpoint_meta.Meta) -> None:
        saved = meta.get("variables", {})
        here = state.description() | {name: description(v) for name, v in untracked.items() if name in saved}
        described = rates.renamed(saved, here)
        if different := checkpoint_meta.differences(
            {**meta, "variables": described}, job.spec, job.compatibility_key, here, total
        ):
            raise checkpoint_meta.refusal(meta, directory, different)

    def take_checkpoint(restored: checkpoint.Checkpoint, arrays: checkpoint.Arrays) -> None:
        given, lines[:] = rates.given(restored.meta, state)
        with_rates = rates.with_given(arrays, restored.meta, state.description(), given)
        take_in_scope(restored.step, _of_variables(state, untracked, with_rates))

    restored, broken = checkpoint.restore(
        directory,
        require_fitting,
        take_checkpoint,
        reuse=not job.spec.traits.coordinated,  # what is sent to a ps is perhaps not there yet when `assign` returns
    )
    if restored is not None:
        state.restored = restored.meta.get("variables", {})
    if restored is not None or job.spec.init_from is None:
        return restored.step if restored else 0, [*broken, *lines]
    values, report = initial_values(job, state)
    init_files.write_report(directory, report)
    take_in_scope(0, iter((state.values() | values).items()))
    return 0, [*broken, report]


def _of_variables(state: TrainState, untracked: Mapping[str, Variable], arrays: checkpoint.Arrays) -> checkpoint.Arrays:
    """Yields the arrays of the variables, which come first in a file; then reads the rest, to verify it, and assigns
    those that nobody has on this task: the others get them once a step is traced."""
    for name, _ in state.variables:
        item = next(arrays, None)
        if item is None or item[0] != name:
            raise DamagedError(late=True)
        yield item
        del item  # before the next one is read
    for name, array in arrays:
        if name in untracked:
            assign_here(untracked[name], array)


def _assign(state: TrainState, arrays: checkpoint.Arrays) -> None:
    variables = dict(state.variables)
    for name, array in arrays:
        variables[name].assign(array)
        del array


# The chief's values for all. ----------------------------------------------------------------------


def _send(job: TrainingTask, state: TrainState, step: int, arrays: checkpoint.Arrays) -> None:
    """Sends the arrays to all tasks, in packs, and assigns them. After damage the packs that are left have others: the
    tasks wait for them."""
    _share_step(job, step, ends=False)
    damage = None
    for number, pack in enumerate(_packs(state)):
        values = _empty(state, pack)
        try:
            if damage is None:
                values = dict(itertools.islice(arrays, len(pack)))
        except DamagedError as error:
            damage = error
        received = job.from_chief(values, _PACKS + number)
        if damage is None:  # else the chief's own are still there
            _assign(state, iter(received.items()))
    if damage is not None:
        raise damage
    for _ in arrays:  # verifies the file
        pass


def _receive(job: TrainingTask, state: TrainState) -> int:
    """Takes what the chief sends, until a file was intact; returns the step."""
    while True:
        step, ends = _share_step(job, 0, ends=False)
        if ends:
            return step
        for number, pack in enumerate(_packs(state)):
            _assign(state, iter(job.from_chief(_empty(state, pack), _PACKS + number).items()))


def _share_step(job: TrainingTask, step: int, *, ends: bool) -> tuple[int, bool]:
    """Sends the chief's step, whose values follow, or with which training begins."""
    step, ends = job.from_chief({"step": np.array([step, ends], np.int64)}, _STEP)["step"].tolist()
    return step, bool(ends)


def _packs(state: TrainState) -> Iterator[list[str]]:
    """The names of the variables in groups, of which each but the last has at least _PACK_BYTES."""
    pack, size = [], 0
    for name, v in state.variables:
        pack.append(name)
        size += int(np.prod(v.shape)) * _numpy_dtype(v).itemsize
        if size >= _PACK_BYTES:
            yield pack
            pack, size = [], 0
    if pack:
        yield pack


def _empty(state: TrainState, names: Sequence[str]) -> checkpoint.Values:
    variables = dict(state.variables)
    return {name: np.zeros(variables[name].shape, _numpy_dtype(variables[name])) for name in names}


def _numpy_dtype(variable: Variable) -> np.dtype[np.generic]:
    dtype: np.dtype[np.generic] = np.dtype(tf.as_dtype(keras.backend.standardize_dtype(variable.dtype)).as_numpy_dtype)
    return dtype
