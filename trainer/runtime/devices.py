"""GPUs: a task that asked for some never trains on the CPU instead."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from trainer.job.errors import Exit, TrainerError
from trainer.job.tf_config import Task


def require_gpus(task: Task, count: int) -> list[Any]:
    """The GPUs that this task sees; none of them is touched.

    Raises:
        TrainerError: Exit.DEVICES, if there are fewer than the spec asks for.
    """
    gpus: list[Any] = tf.config.list_physical_devices("GPU")
    if len(gpus) < count:
        raise TrainerError(
            f"{task.name}: asked for {count} GPU(s), sees {len(gpus)}; check driver, container runtime and "
            "image (trainer:cuda), or set gpus: 0 to train on the CPU",
            Exit.DEVICES,
        )
    return gpus
