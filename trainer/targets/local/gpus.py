"""The GPUs of this machine, and which tasks of a local job get which."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from trainer.job.cluster import Task
from trainer.job.derived import gpus_on_one_machine
from trainer.job.spec import JobSpec

DRIVER_SECONDS = 20.0
"""How long the driver may take to answer: it is loaded at the first question."""
VISIBLE, GROWTH = "CUDA_VISIBLE_DEVICES", "TF_FORCE_GPU_ALLOW_GROWTH"


def assign(spec: JobSpec, tasks: Sequence[Task]) -> tuple[dict[str, dict[str, str]], str | None]:
    """Returns the environment variables that assign GPUs to each task, by the task's name, and a message if tasks share
    GPUs.

    Without them each task uses the first GPU, and TensorFlow reserves all memory of the GPUs that it sees. Tasks that
    share a GPU allocate memory as they need it. Where there are fewer GPUs than a single task asks for, nothing is
    assigned: that task ends with Exit.DEVICES.
    """
    wanted = gpus_on_one_machine(spec, tasks)
    total, most = sum(map(len, wanted.values())), max(map(len, wanted.values()))
    there = _visible() if total else []
    if len(there) < max(1, most):
        return {}, None
    variables_by_task = {
        name: {VISIBLE: ",".join(there[number % len(there)] for number in numbers) or "-1"}
        for name, numbers in wanted.items()
    }
    if total <= len(there):
        return variables_by_task, None
    for variables in variables_by_task.values():
        variables[GROWTH] = os.environ.get(GROWTH, "true")
    return variables_by_task, f"tasks ask for {total} GPUs, and this machine has {len(there)}: tasks share them"


def _visible() -> list[str]:
    """Indexes or UUIDs, as CUDA reads them; empty if there are none or nvidia-smi is missing."""
    if (visible := os.environ.get(VISIBLE)) is not None:
        return [each for part in visible.split(",") if (each := part.strip()) and each != "-1"]
    command = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=DRIVER_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return []
    return listed.stdout.split()
