"""What a graph job's compute() is given: the servers, by the names that tf.device takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import tensorflow as tf

from trainer.job.errors import Exit, TrainerError
from trainer.workloads.types import Tensor


@dataclass(frozen=True)
class Cluster:
    """The servers of a graph job, and how to report progress."""

    job_name: str
    tasks: int
    """How many servers there are."""
    say: Callable[[str], None]
    """Prints a line."""
    progress: Callable[[int], None]
    """Reports how many parts of the work are done; a task without a report for deadlines.progress is restarted."""

    def device(self, task: int, device: str = "CPU:0") -> str:
        """`/job:NAME/task:N/device:CPU:0`, for tf.device.

        Raises:
            TrainerError: Exit.DEVICES, if there is no such device; those that there are, are named.
        """
        name = f"/job:{self.job_name}/task:{task}/device:{device}"
        if name not in (there := self.devices()):
            raise TrainerError(f"there is no device {name}; there are: {', '.join(there)}", Exit.DEVICES)
        return name

    def devices(self) -> list[str]:
        """Every device of every server."""
        names = [short(device.name) for device in tf.config.list_logical_devices()]
        return [name for name in names if name.startswith(f"/job:{self.job_name}/")]

    def every_task(self, device: str = "CPU:0") -> list[str]:
        """The same device of each task, in their order."""
        return [self.device(task, device) for task in range(self.tasks)]


def ran_on(tensor: Tensor) -> str:
    """The device whose operation made an eager tensor, as the runtime recorded it; not what tf.device asked for."""
    return short(tensor.backing_device)


def short(device: str) -> str:
    """TensorFlow's full name without `/replica:0`, and with the client's own job by its name in the cluster."""
    return device.replace("/replica:0", "").replace("/job:localhost/", "/job:chief/")
