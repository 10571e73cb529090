"""Values of the chief's for all tasks, through the cluster, outside of steps."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from trainer.job.cluster import Task
from trainer.model_dir import checkpoint
from trainer.training.exchange.ring import Ring
from trainer.training.exchange.ring_sums import from_first

Words = npt.NDArray[np.int32]

_KEY = 2**30
"""Distinct from the keys of TensorFlow's own collectives, which count up from 1 (cross_device_utils.py)."""
_WORDS = 2**24
"""Values of 4 bytes in one message, which is in memory several times: as an array, a tensor and bytes of gRPC."""
_PIECES = 2**16
"""Maximum number of messages of one use."""


def from_chief(values: checkpoint.Values, task: Task, ring: Ring | None, use: int = 0) -> checkpoint.Values:
    """Sends the chief's values to every task: the concatenated bits of all values, in few messages.

    The tasks wait for each other as long as the generation lasts. The chief's supervisor ends one that does not advance
    for deadlines.progress, or deadlines.evaluation while the chief evaluates.

    Args:
        ring: of the tasks, if they form one. Otherwise TensorFlow's collectives carry the values.
        use: a number for all calls with values of the same shapes.
    """
    words = _words(list(values.values()))
    shared = words if task.is_chief else np.empty_like(words)
    for number, i in enumerate(range(0, len(words), _WORDS)):
        mine = words[i : i + _WORDS]
        received = from_first(ring, mine) if ring else _broadcast(mine, use * _PIECES + number, task)
        if not task.is_chief:
            shared[i : i + _WORDS] = received
    offset, result = 0, {}
    for name, v in values.items():
        result[name] = np.frombuffer(shared, v.dtype, v.size, offset).reshape(v.shape)
        offset += v.nbytes
    return result


def text_from_chief(text: str, task: Task, ring: Ring | None, use: int) -> str:
    """Sends a text of the chief's to every task; `use` and the number after it are for this text."""
    raw = text.encode()
    length = int(from_chief({"length": np.array(len(raw))}, task, ring, use)["length"])
    shared = from_chief({"text": np.resize(np.frombuffer(raw, np.uint8), length)}, task, ring, use + 1)["text"]
    return shared.tobytes().decode()


def _words(arrays: list[checkpoint.Array]) -> Words:
    """Their bits. Those of a single array, which may be large, are no copy."""
    if len(arrays) == 1 and arrays[0].nbytes and arrays[0].nbytes % 4 == 0:
        return np.ascontiguousarray(arrays[0]).reshape(-1).view(np.int32)
    raw = b"".join(v.tobytes() for v in arrays)
    return np.frombuffer(raw + bytes(-len(raw) % 4), np.int32)


def _broadcast(bits: Words, number: int, task: Task) -> Words:
    common: dict[str, object] = {
        "group_size": len(task.members()),
        "group_key": _KEY,
        "instance_key": _KEY + number,
        "shape": bits.shape,
    }
    with tf.device("CPU:0"):
        if task.is_chief:
            received = tf.raw_ops.CollectiveBcastSend(input=bits, **common)
        else:
            received = tf.raw_ops.CollectiveBcastRecv(T=tf.int32, **common)
    return np.asarray(received)
