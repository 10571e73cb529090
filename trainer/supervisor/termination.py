"""The result of a job on Kubernetes, for `trainer status`: result.json is in a volume, which only a pod can read, but
the kubelet keeps what a container has written to a certain file, the termination message."""

from __future__ import annotations

import json
import os
from pathlib import Path

from trainer.job import environment
from trainer.job.errors import UserError
from trainer.model_dir import result

PLACE = Path("/dev/termination-log")
"""terminationMessagePath of every container by default; the file exists there alone."""
MOST_BYTES = 4096
"""The kubelet cuts off the rest."""


def leave(model_dir: str) -> None:
    """Writes the main part of result.json, unless it is too long or this is no container of Kubernetes."""
    if environment.PARENT in os.environ or not PLACE.exists():  # `trainer local` may run in any container
        return
    try:
        found = result.read(model_dir)
        message = json.dumps(result.brief(found)).encode() if found else b""
        if len(message) <= MOST_BYTES:
            PLACE.write_bytes(message)
    except (OSError, UserError):  # the result itself is in model_dir
        return
