"""Names, addresses and ports of tasks."""

from __future__ import annotations

import ipaddress
import re
from typing import Literal, get_args

TaskType = Literal["chief", "worker", "ps", "evaluator"]
TASK_TYPES: tuple[TaskType, ...] = get_args(TaskType)

TF_PORT = 2222
# A supervisor's port is this far above the TensorFlow port of its task, so that any TF_CONFIG gives both.
CONTROL_PORT_OFFSET = 1000
METRICS_PORT_OFFSET = 2000
GRADIENTS_PORT_OFFSET = 3000
MAX_TF_PORT = 65535 - CONTROL_PORT_OFFSET

# RFC 1035 label, as Kubernetes requires of a Service and of a Job whose pods get DNS names.
MAX_DNS_LABEL = 63
DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")

# A host never contains a slash, a space or a control character: http://host:2222 is a common mistake.
_ADDRESS = re.compile(r"([^\x00-\x20\x7f/:\[\]]+|\[[^\x00-\x20\x7f/\[\]]+\]):([0-9]+)")

SECRET_WORDS = (
    r"TOKEN(?!S\b|IZ)|PASSWORD|PASSWD|PASSPHRASE|SECRET|CREDENTIAL|API[_-]?KEY|ACCESS[_-]?KEY|PRIVATE[_-]?KEY"  # noqa: S105 (names)
)
SECRET_LIKE = re.compile(rf"{SECRET_WORDS}|(^|_)KEY$", re.IGNORECASE)
"""Names of variables whose values are probably secrets."""


def task_name(task_type: str, index: int) -> str:
    """`worker:1`, as in logs, events and results."""
    return f"{task_type}:{index}"


def host_name(job: str, task_type: str, index: int) -> str:
    """`mnist-worker-1`: hostname of a container or of an Indexed Job's pod."""
    return f"{job}-{task_type}-{index}"


def secret_name(job: str) -> str:
    """Name of the Kubernetes Secret, or of the volume and its service, that holds the secret of a job's tasks."""
    return f"{job}-report-secret"


def container_address(job: str, task_type: str, index: int) -> str:
    """`mnist-worker-1.mnist:2222`: the pod's DNS name under the job's headless Service."""
    return f"{host_name(job, task_type, index)}.{job}:{TF_PORT}"


def control_port(tf_port: int) -> int:
    return tf_port + CONTROL_PORT_OFFSET


def gradients_port(tf_port: int) -> int:
    """The port on which a task of multi_worker_mirrored listens for the gradients of the one before."""
    return tf_port + GRADIENTS_PORT_OFFSET


def metrics_port(tf_port: int) -> int:
    """The port for scrapers on Kubernetes."""
    return tf_port + METRICS_PORT_OFFSET


def is_loopback(host: str) -> bool:
    """Whether a host in TF_CONFIG is this machine itself, so that only its own processes can connect to it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def split_address(address: str) -> tuple[str, int]:
    """Splits `host:port` or `[v6]:port` into (host, port).

    Raises:
        ValueError: the address has another form, or the port is out of range.
    """
    match = _ADDRESS.fullmatch(address)
    if not match:
        raise ValueError(f"{address!r}: must be host:port, or [address]:port for IPv6")
    host, port = match.groups()
    if not 1 <= int(port) <= MAX_TF_PORT:
        raise ValueError(
            f"{address!r}: port must be 1..{MAX_TF_PORT}; the control port is {CONTROL_PORT_OFFSET} above it"
        )
    return host.removeprefix("[").removesuffix("]"), int(port)
