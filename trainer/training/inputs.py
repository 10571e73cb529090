"""Input pipelines: endless, sharded by task, and able to begin at any step.

An epoch is one permutation of all examples, drawn from (seed, epoch); step s is its row s, divided among the shards. So
no example occurs twice in an epoch, N shards of b examples read the same examples as one shard of N*b, and a resumed
run continues without reading earlier examples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tensorflow as tf

from trainer.job.errors import UserError
from trainer.workloads.types import Dataset, Tensor

INT64_MAX = 2**63 - 1


@dataclass(frozen=True)
class Source:
    """A split as eager tensors [n, ...] of inputs and labels, each one or a dict of them by name, or as a
    tf.data.Dataset of one shard's examples.

    A graph captures eager tensors as inputs; NumPy arrays would be copied into it as constants, 2 GB at most.
    """

    arrays: tuple[Tensor, Tensor] | None = None
    dataset: Dataset | None = None

    def count(self) -> int | None:
        """Number of examples, or None if a Dataset does not know."""
        return None if self.arrays is None else len(tf.nest.flatten(self.arrays)[0])


def source(value: object, what: str) -> Source:
    """Checks and wraps the return value of a workload's data function.

    Raises:
        UserError: it is neither arrays of equal length nor a Dataset of pairs.
    """
    if isinstance(value, tf.data.Dataset):
        if not isinstance(value.element_spec, tuple) or len(value.element_spec) != 2:
            raise UserError(
                f"workload: data({what!r}): the Dataset must yield (x, y), it yields {value.element_spec}"
                f"{_way_out(value.element_spec)}"
            )
        return Source(dataset=value)
    if not isinstance(value, tuple) or len(value) != 2:
        raise UserError(
            f"workload: data({what!r}): must give (x, y) or a tf.data.Dataset, gave {type(value).__name__}"
            f"{_way_out(value)}"
        )
    try:
        x, y = (_tensors(part) for part in value)
    except (TypeError, ValueError) as error:
        raise UserError(f"workload: data({what!r}): must give arrays: {' '.join(str(error).split())[:200]}") from None
    parts = tf.nest.flatten((x, y))
    if any(part.shape.rank == 0 for part in parts):
        raise UserError(f"workload: data({what!r}): must give arrays, gave single values")
    counts = [len(part) for part in parts]
    if len(counts) == 2 and (counts[0] != counts[1] or counts[0] == 0):
        raise UserError(
            f"workload: data({what!r}): x has {counts[0]} examples and y {counts[1]}; they must be equal, not 0"
        )
    if set(counts) != {counts[0]} or counts[0] == 0:
        raise UserError(f"workload: data({what!r}): its arrays have {counts} examples; they must be equal, not 0")
    return Source(arrays=(x, y))


def _tensors(part: object) -> Tensor:
    """An array as a tensor, or a dict of arrays by name as one of tensors."""
    if isinstance(part, dict) and part:
        return {name: tf.constant(array) for name, array in part.items()}
    return tf.constant(part)


def _way_out(given: object) -> str:
    """The fix for a value that is not a pair."""
    if isinstance(given, tuple) and len(given) == 3:
        return "; sample weights go into y, for your loss(y, prediction) to apply them"
    if isinstance(given, dict):
        return "; give a pair: the inputs, which may be a dict, and the labels"
    return ""


def require_examples(source: Source, model_inputs: Sequence[Tensor], workload: str) -> None:
    """Checks that a Dataset yields single examples, as far as the ranks of the model's inputs show.

    Raises:
        UserError: it yields batches.
    """
    if source.dataset is None:
        return
    given = tf.nest.flatten(source.dataset.element_spec[0])
    if len(given) != len(model_inputs):
        return
    for part, wanted in zip(given, model_inputs, strict=True):
        shape = part.shape
        # Keras removes a last dimension of 1, so with one dimension more it may be an example.
        if shape.rank == len(wanted.shape) and not (shape[-1] == 1 and wanted.shape[-1] != 1):
            raise UserError(
                f"workload: {workload}: data() gives a Dataset of batches, with x {shape} for the model's input "
                f"{tuple(wanted.shape)}; it must give single examples: leave .batch(...) out, or add .unbatch()"
            )


def batches(
    source: Source, *, batch: int, shards: int, index: int | Tensor, local: int, seed: int, start: int
) -> Dataset:
    """Endless Dataset of one shard's (x, y) batches.

    Args:
        batch: examples per replica.
        shards, index: number of tasks that read, and this task's index (a tensor under parameter_server).
        local: replicas in this task; they take turns.
        start: the first step; all shards together make one step.

    Raises:
        UserError: fewer examples than one step needs.
    """
    if source.dataset is not None:
        endless = source.dataset.repeat().batch(batch, drop_remainder=True)
        return endless.skip(start * local).prefetch(2)
    assert source.arrays is not None
    arrays, count, per_step = source.arrays, source.count() or 0, batch * shards * local
    steps = count // per_step
    if steps == 0:
        raise UserError(f"train.batch_size: one step takes {per_step} examples, the data has {count}; make it smaller")

    # AutoGraph would parse and convert these functions at each start, a tenth of a second for no benefit.
    @tf.autograph.experimental.do_not_convert
    def one_epoch(epoch: Tensor) -> Dataset:
        order = tf.random.experimental.stateless_shuffle(tf.range(count), seed=[seed, epoch])
        rows = tf.reshape(order[: steps * per_step], [steps, shards, local * batch])
        return tf.data.Dataset.from_tensor_slices(tf.reshape(tf.gather(rows, index, axis=1), [steps * local, batch]))

    @tf.autograph.experimental.do_not_convert
    def examples(row: Tensor) -> Tensor:
        return tf.nest.map_structure(lambda tensor: tf.gather(tensor, row), arrays)

    epochs = tf.data.Dataset.range(start // steps, INT64_MAX)
    rows = epochs.flat_map(one_epoch).skip(start % steps * local)
    return rows.map(examples, num_parallel_calls=1).prefetch(4)


def batches_of_input_fn(value: Dataset, batch: int, skip: int) -> Dataset:
    """Repeats an input_fn's batches, which are those of one replica; smaller ones at its end are left out.

    Raises:
        UserError: it is not a Dataset of (features, labels), is empty, or its batch size differs from the spec's.
    """
    value = pairs(value)
    if tf.executing_eagerly():  # and not in the graph that ps-workers are sent
        given = next((_examples(labels) for _, labels in value.take(1)), "nothing")
        if given != f"batches of {batch}":
            raise UserError(
                f"workload: input_fn(): gives {given}, the spec asks for {batch}: batch(context.batch_size)"
            )
    whole = value.filter(lambda _, labels: tf.equal(tf.shape(tf.nest.flatten(labels)[0])[0], batch))
    return whole.repeat().skip(skip).prefetch(2)


def pairs(value: Dataset) -> Dataset:
    """Checks the return value of an input_fn.

    Raises:
        UserError: it is not a Dataset of (features, labels).
    """
    what = "workload: input_fn()"
    if not isinstance(value, tf.data.Dataset):
        raise UserError(f"{what}: must give a tf.data.Dataset, gave {type(value).__name__}")
    if not isinstance(value.element_spec, tuple) or len(value.element_spec) != 2:
        raise UserError(f"{what}: the Dataset must yield (features, labels), it yields {value.element_spec}")
    return value


def _examples(labels: Tensor) -> str:
    shape = tf.nest.flatten(labels)[0].shape
    return f"batches of {shape[0]}" if shape.rank else "single examples"


def steps_in_epochs(source: Source, epochs: int, examples_per_step: int) -> int:
    """Number of steps in these epochs.

    Raises:
        UserError: the size of the Dataset is not known.
    """
    count = source.count()
    if count is None:
        raise UserError("train.epochs: data() gives a Dataset, whose size is not known; give train.steps instead")
    return max(1, count // examples_per_step) * epochs


def evaluation(source: Source, batch: int = 500) -> Dataset:
    """Finite Dataset of (x, y) batches over the whole split, in order.

    Raises:
        UserError: it never ends.
    """
    if source.dataset is not None:
        return finite(source.dataset, "data('test')").batch(batch)
    return tf.data.Dataset.from_tensor_slices(source.arrays).batch(batch)


def finite(dataset: Dataset, what: str) -> Dataset:
    """Returns the Dataset unless it is known to be endless. A generator's length is not known: a deadline limits it.

    Raises:
        UserError: it never ends.
    """
    if dataset.cardinality() == tf.data.INFINITE_CARDINALITY:
        raise UserError(f"workload: {what}: the Dataset never ends; leave repeat() out, or add take(n)")
    return dataset
