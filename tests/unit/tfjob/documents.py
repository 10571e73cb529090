"""TFJobs as tests write them, and what becomes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from trainer.tfjob import convert as tfjob

FOLDER = Path(__file__).parent
WORKER = "spec.tfReplicaSpecs.Worker.template.spec"
CONTAINER = "template.spec.containers[tensorflow]"
LEFT = "is left out: "
RESTARTED = "exit codes 1 to 127 end the job here; a task that a signal ended is restarted"
OPEN = {"volume": {"empty_dir": True}, "egress": True}
"""What a program has on Kubernetes like the pods of a TFJob: a folder of its own, and the way out."""


def replica(**more: Any) -> dict[str, Any]:
    """A type of tasks; more: of its container."""
    pod, container = more.pop("pod", {}), {"name": "tensorflow", "image": "i", "command": ["c"], **more}
    return {"template": {"spec": {"containers": [container], **pod}}}


def job(name: Any = "j", run: Any = None, **types: Any) -> dict[str, Any]:
    spec = {"runPolicy": run, "tfReplicaSpecs": types or {"Worker": replica()}}
    return {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": name}, "spec": spec}


def convert(*documents: Any) -> tuple[dict[str, Any], list[str]]:
    return tfjob.convert(yaml.safe_dump_all(documents), "x.yaml")


def spec_of(document: Any) -> dict[str, Any]:
    return convert(document)[0]


TYPES = "spec.tfReplicaSpecs"
