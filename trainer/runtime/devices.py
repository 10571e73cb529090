"""GPUs: a task that asked for some never trains on the CPU instead."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from trainer.job.errors import Exit, TrainerError


def require_gpus(count: int) -> list[Any]:
    """The GPUs that this task sees; none of them is touched.

    Raises:
        TrainerError: Exit.DEVICES, if there are fewer than the spec asks for.
    """
    gpus: list[Any] = tf.config.list_physical_devices("GPU")
    if len(gpus) < count:
        raise TrainerError(
            f"asked for {count} GPU(s), sees {len(gpus)} (its devices: {', '.join(_names())}); check driver, container "
            "runtime and image (trainer:cuda), or set gpus: 0 for the CPU",
            Exit.DEVICES,
        )
    return gpus


def _names() -> list[str]:
    return [device.name.removeprefix("/physical_device:") for device in tf.config.list_physical_devices()]
