"""Checks before a task starts: its ports, secrets and log file."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import importlib.util
import os
import re
import socket
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

from trainer import clocks
from trainer.job import code, environment
from trainer.job.cluster import Task
from trainer.job.errors import UserError
from trainer.job.messages import how_to_install
from trainer.job.names import TF_PORT, control_port, is_loopback
from trainer.job.spec import JobSpec
from trainer.job.tracker import secrets_of_tasks
from trainer.model_dir import layout
from trainer.sockets import port_in_use

PORT_SECONDS = 3.0
"""How long the kernel may take to close the port of a process that was killed."""
_PORT_POLL_SECONDS = 0.02


def control_address(task: Task) -> tuple[str | None, int]:
    """(interface, port) to listen on: loopback only if the whole cluster is on loopback."""
    host, tf_port = task.address or (task.control_address(*task.chief)[0], TF_PORT)
    port = os.environ.get(environment.CONTROL_PORT) if task.type == "evaluator" else None
    return (host if is_loopback(host) else None), int(port) if port else control_port(tf_port)


def metrics_port() -> int | None:
    """A further port, which serves /metrics alone.

    Raises:
        UserError: it is no port.
    """
    if not (text := os.environ.get(environment.METRICS_PORT)):
        return None
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 0 < int(text) < 2**16:
        raise UserError(f"{environment.METRICS_PORT}: {text!r}: must be a port, 1 to 65535")
    return int(text)


def check_tensorflow() -> None:
    """Checks that TensorFlow is installed; machines that only render and submit do not need it.

    Raises:
        UserError: TensorFlow is not installed, or this trainer is isolated from it.
    """
    if sys.flags.no_site:  # images/trainer
        raise UserError(
            "workload: the trainer of this image is that of trainer:supervisor, which only runs a `program`; for "
            "workloads use trainer:cpu or trainer:cuda"
        )
    if importlib.util.find_spec("tensorflow") is None:
        raise UserError(f"tensorflow: is not installed; {how_to_install('cpu')}")


async def until_port_is_free(task: Task) -> None:
    """Waits for this task's TensorFlow port: TensorFlow would report later, and only that the server cannot start.

    The kernel closes the sockets of a killed process last, with TensorFlow's threads up to 0.3 s after it has become a
    zombie, and the child of an earlier supervisor has just been killed.

    Raises:
        UserError: the port is still taken after PORT_SECONDS.
    """
    if task.address is None:
        return
    deadline = clocks.monotonic() + PORT_SECONDS
    while (error := _not_free(task.address[1])) is not None:
        if error.errno != errno.EADDRINUSE or clocks.monotonic() > deadline:
            raise port_in_use(task, error.strerror)
        await asyncio.sleep(_PORT_POLL_SECONDS)


def _not_free(port: int) -> OSError | None:
    with socket.socket(socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            # TensorFlow listens on all interfaces, whatever host TF_CONFIG names.
            probe.bind(("", port))
        except OSError as error:
            return error
    return None


def unpack_code() -> None:
    """Unpacks the job's code, where a target ships it as an archive.

    Raises:
        UserError: it cannot be read, or the folder cannot be written.
    """
    if (archive := os.environ.get(environment.CODE)) is None:
        return
    try:
        with tarfile.open(archive) as packed:
            packed.extractall(code.PLACE, filter="data")
    except (OSError, tarfile.TarError) as error:
        raise UserError(f"code: {archive}: cannot be unpacked to {code.PLACE}: {error}") from None


def check_secrets(spec: JobSpec) -> None:
    """Checks that all secrets are set, so that no job fails after hours of training because it may not upload.

    Raises:
        UserError: a variable that the spec names under `secrets` is not set.
    """
    if missing := [name for name in secrets_of_tasks(spec) if not os.environ.get(name)]:
        raise UserError(*(f"secrets.{name}: the variable is not set in this task, or is empty" for name in missing))


def log_file(spec: JobSpec, task: Task) -> Path:
    """File for TensorFlow's output: beside the results, or in a temporary folder if the volume is not accessible.

    That folder is a new one: others may make one of a known name before, with links in it.
    """
    wanted = Path(os.environ.get(environment.LOGS) or layout.logs(spec.directory))
    places: list[Callable[[], Path]] = [lambda: wanted, lambda: Path(tempfile.mkdtemp(prefix="trainer-logs-"))]
    for place in places:
        with contextlib.suppress(OSError):
            folder = place()
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"{task.type}-{task.index}.log"
            with path.open("ab"):
                return path
    return Path(os.devnull)
