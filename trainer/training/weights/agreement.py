"""Checks that all tasks train the same model on the same data, whose gradients are added up by position.

A task compares itself with the chief; the chief's supervisor ends the job with the first error.
"""

from __future__ import annotations

import hashlib

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from trainer.job.errors import UserError
from trainer.model_dir import checkpoint
from trainer.protocol import events
from trainer.training import inputs
from trainer.training.exchange.gradients import fixed_rows
from trainer.training.model import batches
from trainer.training.model.state import TrainState
from trainer.training.private.keras_private import inner, path_of, variables_of
from trainer.training.task import TrainingTask
from trainer.workloads.types import Variable

_FILES, _ROWS, _SAMPLE, _DATA, _VARIABLES = 21, 22, 25, 26, 28
"""Uses of `from_chief`; a text has two. Others are in restore.py, untracked.py, epochs.py and keras_fit.py."""
_SAMPLED_ROWS = 64
"""Examples whose bytes are compared."""
_OTHERS = (
    "other examples, or another order, than on the chief: tasks divide them by number, so some are read twice and "
    "others never; sort the names of files, and give random numbers a seed"
)
_REPAIR = "build the same model on all tasks, with layers in one order: that of sorted(), not of a set or os.listdir"


def require_same_files(job: TrainingTask) -> None:
    """Checks that this task trains on the same records as the chief, from its own copy of the files perhaps.

    It waits for tasks that still find their records.

    Raises:
        UserError: it does not.
    """
    records = job.records
    if records is None or _alone(job):
        return
    job.send(events.Indexed())
    of_task: checkpoint.Values = {
        "sha256": np.frombuffer(bytes.fromhex(records.index.sha256), np.int32),
        "files": np.array([len(records.index.files), records.count()], np.int64),
    }
    chiefs = job.from_chief(of_task, _FILES)
    if all((of_task[name] == chiefs[name]).all() for name in of_task):
        return
    sizes = [f"{int(counts[0])} files with {int(counts[1])} records" for counts in (of_task["files"], chiefs["files"])]
    raise UserError(
        f"workload: {records.what}: {job.task.name} has {sizes[0]}, and the chief {sizes[1]}, or other contents; every "
        "task must see the same files"
    )


def require_same_data(job: TrainingTask, source: inputs.Source, total: int) -> None:
    """Checks that this task has as many examples as the chief, of the same shapes and types, and ends at the same step.

    Arrays whose examples differ get a warning: tasks divide them by number. It cannot be more than that, since values
    may differ by rounding.

    Args:
        total: the step at which the job ends.

    Raises:
        UserError: it has not.
    """
    if _alone(job):
        return
    facts = _facts(job, source, total)
    chiefs = job.text_from_chief("\n".join(facts), _DATA).splitlines()
    plain = inputs.unweighted(source)
    sample = _sample(plain) if isinstance(plain, inputs.Arrays) else np.zeros(1, np.int32)
    same_sample = (job.from_chief({"sample": sample}, _SAMPLE)["sample"] == sample).all()
    for here, there in zip(facts, chiefs, strict=True):
        if here != there:
            raise UserError(
                f"workload: {job.workload.name}: data('train'): {job.task.name} has {here}, and the chief {there}; "
                "every task must see the same data"
            )
    if not same_sample:
        job.send(events.Line(f"warning: {job.task.name}: data('train') gives {_OTHERS}"))


def _facts(job: TrainingTask, source: inputs.Source, total: int) -> list[str]:
    parts = tf.nest.flatten(batches.replica_spec(job, source), expand_composites=True)
    return [
        "examples of its own shard" if source.of_one_shard else f"{source.count()} examples",
        f"batches of {', '.join(f'{part.dtype.name} {part.shape}' for part in parts)}",
        f"{total} steps in all",
    ]


def _sample(source: inputs.Arrays) -> npt.NDArray[np.int32]:
    """A digest of some examples."""
    rows = np.linspace(0, source.count() - 1, _SAMPLED_ROWS).astype(np.int64)
    digest = hashlib.sha256()
    for part in tf.nest.flatten(source.parts):
        for tensor in tf.nest.flatten(tf.gather(part, rows), expand_composites=True):
            values = tensor.numpy()
            # Of text an array has the addresses.
            texts = [b"%d " % len(each) + each for each in values.reshape(-1)] if values.dtype == object else []
            digest.update(b"".join(texts) if texts else np.ascontiguousarray(values).tobytes())
    return np.frombuffer(digest.digest(), np.int32)


def require_same_variables(job: TrainingTask, state: TrainState) -> None:
    """Checks, before the first step, that what this task adds up with the chief's is of the same variables, in order.

    Names may differ, as if each task gives its model a name of its own; but if both have the same ones, then in the
    same order.

    Raises:
        UserError: names the first variable that differs.
    """
    if _alone(job):
        return
    updated = [v for each in state.optimizers.values() for v in variables_of(inner(each))]
    lines = [f"trained variable {_described(v)}" for v in updated]
    lines += [f"variable {_described(v)}" for _, v in state.variables]
    theirs = job.text_from_chief("\n".join(lines), _VARIABLES).splitlines()
    same_names = sorted(lines) == sorted(theirs)
    for i in range(max(len(lines), len(theirs))):
        here, there = (f"the {each[i]}" if i < len(each) else "none" for each in (lines, theirs))
        if here != there and (same_names or here.rpartition(" ")[2] != there.rpartition(" ")[2]):
            raise UserError(
                f"workload: {job.workload.name}: model(): {job.task.name} has {here} where the chief has "
                f"{there}; {_REPAIR}"
            )


def _described(variable: Variable) -> str:
    """Path, type and shape; the last word, without a space, is what must be equal."""
    shape = ",".join(map(str, variable.shape))
    return f"{path_of(variable)} {keras.backend.standardize_dtype(variable.dtype)}[{shape}]"


def require_same_rows(job: TrainingTask, state: TrainState) -> None:
    """Checks, once a step is traced, that all replicas look up the same constant rows of an Embedding, whose gradients
    are added up. Random numbers of NumPy's are constants too: others on each task, and in each call of a layer.

    Raises:
        UserError: they do not.
    """
    of_task = fixed_rows(state.optimizers.values())
    if len(of_task) == 1 and not _alone(job):
        digest = hashlib.sha256(*of_task).digest()
        with tf.init_scope():
            chiefs = job.from_chief({"rows": np.frombuffer(digest, np.int32)}, _ROWS)
        of_task = {digest, chiefs["rows"].tobytes()}
    if len(of_task) > 1:
        raise UserError(
            f"workload: {job.workload.name}: replicas look up different constant rows of an Embedding, as by random "
            "numbers of NumPy's; give NumPy a seed at the top of the file, or use tf.random in call()"
        )


def _alone(job: TrainingTask) -> bool:
    return len(job.task.members()) == 1 or job.spec.traits.coordinated
