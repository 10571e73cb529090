"""What the time of a step goes to, measured within its graph: the wait for its data, and the exchange with the others.

The clock is read after operations that a step has anyway, and no operation of a step waits for a clock, so what
overlaps still does: batches are read while the step before runs, and the gradients of the last layers are added up
while those of the first are computed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import tensorflow as tf

from trainer.training.private.tensorflow_private import Internal, is_deterministic, without_order
from trainer.workloads.types import Tensor

BEGIN, END = "RingBegin", "RingEnd"
"""Names of the operations that give trainer's ring gradients, and that wait for their sums."""
UNKNOWN = float("nan")
"""Seconds that are not measured."""


def now() -> Tensor:
    """The time in seconds. With train.deterministic TensorFlow refuses to read a clock, and it is always 0."""
    return tf.constant(0.0, tf.float64) if is_deterministic() else without_order(tf.timestamp())


def measured(seconds: Tensor) -> Tensor:
    """Differences of times, UNKNOWN where there is no clock."""
    return tf.fill(tf.shape(seconds), tf.constant(UNKNOWN, seconds.dtype)) if is_deterministic() else seconds


def after(operations: Sequence[Internal]) -> Tensor:
    """The time at which all of these tensors or operations are there, in seconds."""
    # A group is one operation on each device: of a GPU the clock, which is the CPU's, waits for that alone.
    with tf.control_dependencies([tf.group(*operations)]):
        return now()


def arrived(batch: Tensor) -> Tensor:
    """The time at which all parts of a batch have arrived, in seconds."""
    with tf.control_dependencies(tf.nest.flatten(batch, expand_composites=True)):
        return now()


@dataclass
class Added:
    """What was added to a graph."""

    operations: Sequence[Internal] = ()

    def completed(self) -> Tensor:
        """The time at which all of it is completed."""
        # Side effects: what a step returns may be known before its updates. TPUs run a step as one operation.
        added = [op for op in self.operations if op.op_def is not None and op.op_def.is_stateful]
        with tf.control_dependencies([op for op in added if "_tpu_replicate" not in op.node_def.attr]):
            return now()

    def exchanged(self) -> Tensor:
        """Seconds in which it had nothing to do but to exchange values with other tasks, and to wait for them.

        UNKNOWN if there are no such operations, or only within one that XLA compiles.
        """
        seconds, done = tf.constant(0.0, tf.float64), None
        for sent, received in exchanges(self.operations):
            ready = after(sent)
            begun = ready if done is None else tf.maximum(ready, done)
            done = after(received)
            seconds += tf.maximum(done - begun, 0.0)
        return tf.constant(UNKNOWN, tf.float64) if done is None else seconds


@contextmanager
def added() -> Iterator[Added]:
    """Notes what is added to the graph within; it is known at the end."""
    graph, noted = tf.compat.v1.get_default_graph(), Added()
    before = len(graph.get_operations())
    yield noted
    noted.operations = graph.get_operations()[before:]


def exchanges(operations: Sequence[Internal]) -> list[tuple[list[Tensor], list[Internal]]]:
    """The collectives among operations, TensorFlow's and those of trainer's ring, in groups of which each needs results
    of the one before: what they are given, and the operations that give the sums.

    The first group's are sums of gradients, as a rule. More follow if the number of an embedding's rows is exchanged
    before these, if BatchNormalization is synchronized, or if the update of one optimizer precedes the gradients of
    another. Collectives have a resource in common that keeps their order, which a condition with collectives within
    has too.
    """
    kinds = ("Collective", BEGIN, END)
    first = next((i for i, op in enumerate(operations) if _kind(op).startswith(kinds)), len(operations))
    later = operations[first:]
    tokens = {id(i) for op in later if op.type.startswith("Collective") for i in op.inputs if i.dtype == tf.resource}
    groups: list[tuple[list[Tensor], list[Internal]]] = []
    depth: dict[int, int] = {}
    """The number of groups before each tensor and resource; those that are missing have none."""
    for op in later:
        inputs = list(op.inputs)
        deepest = max((depth.get(id(i), 0) for i in inputs if id(i) not in tokens), default=0)
        collective = any(id(i) in tokens for i in inputs)
        if collective or _kind(op) == BEGIN:
            if deepest == len(groups):
                groups.append(([], []))
            groups[deepest][0].extend(i for i in inputs if i.dtype != tf.resource)
            deepest += 1
        if collective or _kind(op) == END:
            groups[deepest - 1][1].append(op)
        if deepest:
            changed = (i for i in inputs if i.dtype == tf.resource and id(i) not in tokens)
            depth.update((id(each), deepest) for each in (*op.outputs, *changed))
    return groups


def _kind(operation: Internal) -> str:
    """Its type; of a function of Python's its name, which TensorFlow may have numbered."""
    kind = str(operation.type)
    return re.sub(r"_\d+$", "", operation.name.rpartition("/")[2]) if kind == "PyFunc" else kind
