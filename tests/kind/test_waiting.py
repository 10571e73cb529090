"""Tasks that cannot start: `trainer status` names them with the reason, and the deadline ends the job."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.kind.cluster import Namespace, kubectl, trainer
from tests.local import specs
from tests.tools.debugged import Debugged
from trainer.job.errors import Exit

pytestmark = pytest.mark.part("kubernetes")

# What waits, why, whether the chief runs and can tell, and the symptom by which the page on troubles has it.
CASES: dict[str, tuple[dict[str, Any], str, str, bool, str]] = {
    "image": ({"image": "trainer:nope"}, "chief:0", "trainer:nope", False, "on Kubernetes ErrImagePull"),
    "volume": (
        {"kubernetes": {"volume": {"storage_class": "nope"}}},
        "chief:0",
        '"nope" not found',
        False,
        "on Kubernetes a claim that is not bound",
    ),
    "cpu": (
        {"tasks": {"worker": {"replicas": 1, "cpu": 63}}},
        "worker:0",
        "Insufficient cpu",
        True,
        "on Kubernetes Unschedulable",
    ),
    "gpu": (
        {"image": "trainer:cpu", "tasks": {"worker": {"replicas": 1, "gpus": 1}}},
        "worker:0",
        "Insufficient nvidia.com/gpu",
        True,
        "on Kubernetes Unschedulable",
    ),
    "quota": (
        {"tasks": {"worker": {"replicas": 1, "memory": "9Gi"}}},
        "worker:0",
        "exceeded quota: memory",
        True,
        "on Kubernetes exceeded quota",
    ),
}
QUOTA = """
apiVersion: v1
kind: ResourceQuota
metadata: {name: memory}
spec: {hard: {requests.memory: 8Gi}}
"""


def test_status_and_the_chief_name_waiting_tasks_and_the_deadline_ends_the_job(
    namespace: Namespace, tmp_path: Path
) -> None:
    namespace.kubectl("apply", "--filename=-", text=QUOTA)
    for name, (more, *_) in CASES.items():
        spec = specs.parameter_server(deadlines={"start": 45}, **more)
        namespace.submit_spec(tmp_path, {**spec, "name": name})
    for name, (_, task, why, _, symptom) in CASES.items():
        status = until(namespace, name, lambda s, t=task, w=why: w in s["tasks"][t]["reason"])
        assert status["tasks"][task]["state"] in ("pending", "missing"), status
        found = Debugged(tmp_path, "--namespace", namespace.name, name)
        assert task in found.page
        assert why in found.page
        assert found.advises(symptom), found.page
    # Once all have been looked at: a job that has ended shows no reason of a pod.
    for name, (_, task, _, chief_tells, _) in CASES.items():
        if chief_tells:
            status = until(namespace, name, lambda s: s["phase"] == "failed")
            assert status["code"] == Exit.MISSING
            assert task in status["last_line"]


def until(namespace: Namespace, name: str, reached: Any) -> dict[str, Any]:
    deadline = time.monotonic() + 120
    while True:
        status = namespace.status(name)
        if reached(status):
            return status
        assert time.monotonic() < deadline, status
        time.sleep(1)


@pytest.fixture
def faked_gpu() -> Any:
    """A node that advertises a GPU, as a device plugin would."""
    node = kubectl("get", "nodes", "--output=name").split()[-1].removeprefix("node/")
    path = "/status/capacity/nvidia.com~1gpu"
    words = ["patch", "node", node, "--subresource=status", "--type=json", "--patch"]
    kubectl(*words, json.dumps([{"op": "add", "path": path, "value": "1"}]))
    yield node
    kubectl(*words, json.dumps([{"op": "remove", "path": path}]))


def test_a_gpu_that_is_promised_and_not_there_ends_the_job(
    namespace: Namespace, tmp_path: Path, faked_gpu: str
) -> None:
    spec = {**specs.mirrored(tasks={"worker": {"replicas": 1, "gpus": 1}}), "image": "trainer:cpu"}
    job = namespace.submit_spec(tmp_path, spec)
    job.wait("failed")
    assert job.node("chief") == faked_gpu
    status = namespace.status("digits")
    assert (status["phase"], status["code"]) == ("failed", Exit.DEVICES)
    assert "1 GPU" in status["last_line"]
    assert "step" not in job.log()
    trainer("status", "--namespace", namespace.name, "digits", code=Exit.DEVICES)
