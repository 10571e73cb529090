"""Threads and GPUs of a process. A task that requires GPUs never falls back to the CPU."""

from __future__ import annotations

from typing import Any, TypeAlias

import tensorflow as tf

from trainer.job.errors import Exit, TrainerError

Device: TypeAlias = Any
"""A tf.config.PhysicalDevice, which is not exported as a type."""


def limit_threads(count: int) -> None:
    """Limits TensorFlow's threads in this process; to be called before its first operation."""
    tf.config.threading.set_intra_op_parallelism_threads(count)
    tf.config.threading.set_inter_op_parallelism_threads(max(2, count))


def require_gpus(count: int) -> list[Device]:
    """The GPUs that are visible to this task, without initialising them.

    Raises:
        TrainerError: Exit.DEVICES, if there are fewer than the spec asks for.
    """
    gpus: list[Device] = tf.config.list_physical_devices("GPU")
    if len(gpus) < count:
        raise TrainerError(
            f"asked for {count} GPU(s), sees {len(gpus)} (its devices: {', '.join(_names())}); check driver, container "
            "runtime and image (trainer:cuda), or set gpus: 0 for the CPU",
            Exit.DEVICES,
        )
    return gpus


def _names() -> list[str]:
    return [device.name.removeprefix("/physical_device:") for device in tf.config.list_physical_devices()]
