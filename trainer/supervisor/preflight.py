"""Before anything else: this task's ports and its log file."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path

from trainer import host
from trainer.job.errors import UserError
from trainer.job.names import CONTROL_PORT_VARIABLE, TF_PORT, control_port, is_loopback
from trainer.job.spec import JobSpec
from trainer.job.tf_config import Task

LOG_VARIABLE = "TRAINER_LOG_DIR"


def control_address(task: Task) -> tuple[str | None, int]:
    """(interface, port) to listen on: loopback only where the whole cluster is on loopback."""
    host, tf_port = task.address or (task.control_address(*task.chief)[0], TF_PORT)
    port = os.environ.get(CONTROL_PORT_VARIABLE) if task.type == "evaluator" else None
    return (host if is_loopback(host) else None), int(port) if port else control_port(tf_port)


def check_tensorflow_port(task: Task) -> None:
    """TensorFlow says `Could not start gRPC server` and no more; and a child would find out late.

    Raises:
        UserError: the port is taken.
    """
    if task.address is None:
        return
    port = task.address[1]
    with socket.socket(socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            # TensorFlow listens on all interfaces, whatever host TF_CONFIG names.
            probe.bind(("", port))
        except OSError as error:
            raise port_in_use(task, error.strerror) from None


def port_in_use(task: Task, why: str | None = None) -> UserError:
    """With the process that holds this task's TensorFlow port, where it can be seen."""
    assert task.address is not None
    port = task.address[1]
    holder = host.port_holder(port)
    return UserError(
        f"port {port} (TensorFlow port of {task.name}) cannot be used: {why or 'Address already in use'}; "
        f"stop {holder or 'what holds it'}, or change this task's port in TF_CONFIG"
    )


def check_secrets(spec: JobSpec) -> None:
    """Nothing trains for hours to find out at its end that it may not upload.

    Raises:
        UserError: a variable that the spec names under `secrets` is not there.
    """
    if missing := [name for name in spec.secrets if not os.environ.get(name)]:
        raise UserError(*(f"secrets.{name}: the variable is not set in this task, or is empty" for name in missing))


def log_file(spec: JobSpec, task: Task) -> Path:
    """Where TensorFlow's own words go: beside the results, or, without access to the volume, a temporary folder."""
    name = f"{task.type}-{task.index}.log"
    wanted = os.environ.get(LOG_VARIABLE) or f"{spec.directory}/logs"
    for folder in (Path(wanted), Path(tempfile.gettempdir()) / "trainer-logs"):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with (folder / name).open("ab"):
                return folder / name
        except OSError:
            continue
    return Path(os.devnull)
