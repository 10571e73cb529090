"""Single tasks, each with an environment as a container would give it."""

from __future__ import annotations

import contextlib
import os
import time
import urllib.error
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.tools.harness import TRAINER, get_json, processes
from trainer.job.cluster import Task

TASK = [*TRAINER, "task"]
Environments = Callable[[dict[str, Any], Path], dict[str, tuple[Task, dict[str, str]]]]


def environment(task: Task, job: str) -> dict[str, str]:
    return {**os.environ, "TF_CONFIG": task.tf_config(), "TRAINER_JOB": job, "TRAINER_CPUS": "1"}


def run_tasks(environs: list[dict[str, str]], timeout: float = 60) -> list[tuple[int, str]]:
    """Runs `trainer task` with each environment to the end; gives exit codes and outputs."""
    with processes([(TASK, environ) for environ in environs]) as running:
        outputs = [process.communicate(timeout=timeout)[0] for process in running]
        return [(process.returncode, output) for process, output in zip(running, outputs, strict=True)]


def errors(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith("trainer: ")]


def until(url: str, figure: str, least: int = 1) -> dict[str, Any]:
    """Waits until a figure of a chief's status is at least so high."""
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            if ((status := get_json(url)).get(figure) or 0) >= least:
                return status
        time.sleep(0.1)
    raise AssertionError(f"{figure} of {url} did not reach {least}")
