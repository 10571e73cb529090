"""Begins a job with the values of its newest checkpoint, or of init_from."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from trainer.job.cluster import Task
from trainer.job.errors import UserError
from trainer.model_dir import checkpoint, checkpoint_meta, init_files
from trainer.model_dir.arrays import LARGE, DamagedError
from trainer.protocol import events
from trainer.training.exchange.gradients import fixed_rows
from trainer.training.model.state import TrainState
from trainer.training.runtime.channel import Channel
from trainer.training.task import TrainingTask
from trainer.training.weights.init_from import initial_values
from trainer.workloads.types import Strategy, Variable

Words = npt.NDArray[np.int32]

_BROADCAST_KEY = 2**30
"""Distinct from the keys of TensorFlow's own collectives, which count up from 1 (cross_device_utils.py)."""
_BROADCAST_WORDS = 2**24
"""Values of 4 bytes in one message, which is in memory several times: as an array, a tensor and bytes of gRPC."""
_PACK_BYTES = LARGE
"""Small variables are sent together. At most the last of a pack is large: the memory of such an array is used again."""
_FILES, _ROWS, _STEP, _PACKS = 21, 22, 23, 100
"""`use` of the comparisons of files and rows, of the step, and of the first pack of variables; others are in
callbacks/epochs.py and keras_fit.py."""
_PIECES = 2**16
"""Maximum number of messages of one use."""


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
    return _restore(strategy, job, state, total, lambda _, arrays: _assign(state, arrays))


def restore_everywhere(
    strategy: Strategy, job: TrainingTask, state: TrainState, total: int, channel: Channel, resume_step: int
) -> int:
    """The chief reads the checkpoint, or the file of init_from, and sends step and values to the other tasks through
    the cluster. `resume_step` is 0 on all tasks if there is no checkpoint."""
    if not resume_step and job.spec.init_from is None:
        return 0
    if not job.task.is_chief:
        with strategy.scope():
            return _receive(job.task, state)
    if len(job.task.members()) == 1:
        step, broken = restore(strategy, job, state, total)
    else:
        step, broken = _restore(strategy, job, state, total, lambda step, arrays: _send(job.task, state, step, arrays))
        _share_step(job.task, step, ends=True)
    for line in broken:
        channel.send(events.Line(line))
    return step


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

    def require_fitting(meta: checkpoint_meta.Meta) -> None:
        if different := checkpoint_meta.differences(meta, job.spec, job.compatibility_key, state.description(), total):
            raise checkpoint_meta.refusal(meta, directory, different)

    restored, broken = checkpoint.restore(
        directory,
        require_fitting,
        lambda restored, arrays: take_in_scope(restored.step, _of_variables(state, arrays)),
        reuse=not job.spec.traits.coordinated,  # what is sent to a ps is perhaps not there yet when `assign` returns
    )
    if restored is not None or job.spec.init_from is None:
        return restored.step if restored else 0, broken
    values, report = initial_values(job, state)
    init_files.write_report(directory, report)
    take_in_scope(0, iter((state.values() | values).items()))
    return 0, [*broken, report]


def _of_variables(state: TrainState, arrays: checkpoint.Arrays) -> checkpoint.Arrays:
    """Yields the arrays of the variables, which come first in a file; then reads the rest, to verify it."""
    for name, _ in state.variables:
        item = next(arrays, None)
        if item is None or item[0] != name:
            raise DamagedError(late=True)
        yield item
        del item  # before the next one is read
    for _ in arrays:
        pass


def _assign(state: TrainState, arrays: checkpoint.Arrays) -> None:
    variables = dict(state.variables)
    for name, array in arrays:
        variables[name].assign(array)
        del array


# The chief's values for all. ----------------------------------------------------------------------


def _send(task: Task, state: TrainState, step: int, arrays: checkpoint.Arrays) -> None:
    """Sends the arrays to all tasks, in packs, and assigns them. After damage the packs that are left have others: the
    tasks wait for them."""
    _share_step(task, step, ends=False)
    damage = None
    for number, pack in enumerate(_packs(state)):
        values = _empty(state, pack)
        try:
            if damage is None:
                values = dict(itertools.islice(arrays, len(pack)))
        except DamagedError as error:
            damage = error
        _assign(state, iter(from_chief(values, task, _PACKS + number).items()))
    if damage is not None:
        raise damage
    for _ in arrays:  # verifies the file
        pass


def _receive(task: Task, state: TrainState) -> int:
    """Takes what the chief sends, until a file was intact; returns the step."""
    while True:
        step, ends = _share_step(task, 0, ends=False)
        if ends:
            return step
        for number, pack in enumerate(_packs(state)):
            _assign(state, iter(from_chief(_empty(state, pack), task, _PACKS + number).items()))


def _share_step(task: Task, step: int, *, ends: bool) -> tuple[int, bool]:
    """Sends the chief's step, whose values follow, or with which training begins."""
    step, ends = from_chief({"step": np.array([step, ends], np.int64)}, task, _STEP)["step"].tolist()
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


def require_same_files(job: TrainingTask) -> None:
    """Checks that this task trains on the same records as the chief, from its own copy of the files perhaps.

    It waits for tasks that still find their records.

    Raises:
        UserError: it does not.
    """
    records = job.records
    if records is None or len(job.task.members()) == 1:
        return
    job.send(events.Indexed())
    of_task: checkpoint.Values = {
        "sha256": np.frombuffer(bytes.fromhex(records.index.sha256), np.int32),
        "files": np.array([len(records.index.files), records.count()], np.int64),
    }
    chiefs = from_chief(of_task, job.task, _FILES)
    if all((of_task[name] == chiefs[name]).all() for name in of_task):
        return
    sizes = [f"{int(counts[0])} files with {int(counts[1])} records" for counts in (of_task["files"], chiefs["files"])]
    raise UserError(
        f"workload: {records.what}: {job.task.name} has {sizes[0]}, and the chief {sizes[1]}, or other contents; every "
        "task must see the same files"
    )


def require_same_rows(job: TrainingTask, state: TrainState) -> None:
    """Checks, once a step is traced, that all replicas look up the same constant rows of an Embedding, whose gradients
    are added up. Random numbers of NumPy's are constants too: others on each task, and in each call of a layer.

    Raises:
        UserError: they do not.
    """
    of_task = fixed_rows(state.optimizers.values())
    if len(of_task) == 1 and len(job.task.members()) > 1:
        digest = hashlib.sha256(*of_task).digest()
        with tf.init_scope():
            chiefs = from_chief({"rows": np.frombuffer(digest, np.int32)}, job.task, _ROWS)
        of_task = {digest, chiefs["rows"].tobytes()}
    if len(of_task) > 1:
        raise UserError(
            f"workload: {job.workload.name}: replicas look up different constant rows of an Embedding, as by random "
            "numbers of NumPy's; give NumPy a seed at the top of the file, or use tf.random in call()"
        )


def from_chief(values: checkpoint.Values, task: Task, use: int = 0) -> checkpoint.Values:
    """Sends the chief's values to every task: the concatenated bits of all values, in few broadcasts.

    The tasks wait for each other as long as the generation lasts. The chief's supervisor ends one that does not advance
    for deadlines.progress, or deadlines.evaluation while the chief evaluates.

    Args:
        use: a number for all calls with values of the same shapes.
    """
    words = _words(list(values.values()))
    shared = words if task.is_chief else np.empty_like(words)
    for number, i in enumerate(range(0, len(words), _BROADCAST_WORDS)):
        received = _broadcast(words[i : i + _BROADCAST_WORDS], use * _PIECES + number, task)
        if not task.is_chief:
            shared[i : i + _BROADCAST_WORDS] = received
    offset, result = 0, {}
    for name, v in values.items():
        result[name] = np.frombuffer(shared, v.dtype, v.size, offset).reshape(v.shape)
        offset += v.nbytes
    return result


def _words(arrays: list[checkpoint.Array]) -> Words:
    """Their bits. Those of a single array, which may be large, are no copy."""
    if len(arrays) == 1 and arrays[0].nbytes and arrays[0].nbytes % 4 == 0:
        return np.ascontiguousarray(arrays[0]).reshape(-1).view(np.int32)
    raw = b"".join(v.tobytes() for v in arrays)
    return np.frombuffer(raw + bytes(-len(raw) % 4), np.int32)


def _broadcast(bits: Words, number: int, task: Task) -> Words:
    common: dict[str, object] = {
        "group_size": len(task.members()),
        "group_key": _BROADCAST_KEY,
        "instance_key": _BROADCAST_KEY + number,
        "shape": bits.shape,
    }
    with tf.device("CPU:0"):
        if task.is_chief:
            received = tf.raw_ops.CollectiveBcastSend(input=bits, **common)
        else:
            received = tf.raw_ops.CollectiveBcastRecv(T=tf.int32, **common)
    return np.asarray(received)
