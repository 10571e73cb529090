"""The argument of a graph job's compute(): the servers, by their names in tf.device."""

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
    """Number of servers."""
    say: Callable[[str], None]
    """Prints a line."""
    progress: Callable[[int], None]
    """Reports how many parts of the work are done; a task without a report for deadlines.progress is restarted."""

    def device(self, task: int, device: str = "CPU:0") -> str:
        """The name of a device for tf.device, as `/job:NAME/task:N/device:CPU:0`.

        Raises:
            TrainerError: Exit.DEVICES, if there is no such device; the message lists the existing ones.
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
        """The same device of each task, in order."""
        return [self.device(task, device) for task in range(self.tasks)]


def ran_on(tensor: Tensor) -> str:
    """The device that computed an eager tensor, as recorded by the runtime; it may differ from tf.device's argument."""
    return short(tensor.backing_device)


def short(device: str) -> str:
    """TensorFlow's full name without `/replica:0`, and with the client's job renamed to its name in the cluster."""
    return device.replace("/replica:0", "").replace("/job:localhost/", "/job:chief/")
