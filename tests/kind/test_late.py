"""Pods that start after the end of the job exit with its code within seconds and release their resources."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from tests.kind.cluster import KubernetesJob, Namespace, kubectl
from tests.local import specs
from trainer.job.errors import Exit


def suspend(job: KubernetesJob, task_type: str, suspended: bool) -> None:
    """A suspended Job's pods are stopped; when it goes on, it makes new ones."""
    patch = json.dumps({"spec": {"suspend": suspended}})
    job.space.kubectl("patch", "job", f"{job.name}-{task_type}", "--patch", patch)


def codes(job: KubernetesJob, task_type: str) -> list[int]:
    states: list[dict[str, Any]] = [pod["status"]["containerStatuses"][0]["state"] for pod in job.pods(task_type)]
    return [state["terminated"]["exitCode"] for state in states]


def test_a_pod_that_comes_after_the_chief_is_done_ends_well(namespace: Namespace, tmp_path: Path) -> None:
    spec = specs.mirrored(steps=400, workers=1, workload=specs.PACED, tasks={"evaluator": 1})
    job = namespace.submit_spec(tmp_path, spec)
    job.until("the evaluator is there", lambda s: s["tasks"]["evaluator:0"]["state"] != "absent" and s.get("step"))
    suspend(job, "evaluator", True)
    job.until("the chief is done", lambda s: s["phase"] == "done")
    assert not job.conditions("digits-chief"), "it waits for the evaluator to come back"
    suspend(job, "evaluator", False)
    job.wait_for_the_others()
    assert codes(job, "evaluator") == [Exit.OK]


def test_a_pod_that_comes_after_the_chief_has_failed_ends_with_its_code(namespace: Namespace, tmp_path: Path) -> None:
    """The chief fails at once here: the kubelet makes the folder of a hostPath as root's."""
    kubectl("label", "--overwrite", "namespace", namespace.name, "pod-security.kubernetes.io/enforce=privileged")
    folder = f"/var/lib/{namespace.name}"
    path = tmp_path / "digits.yaml"
    path.write_text(
        yaml.safe_dump({**specs.mirrored(), "kubernetes": {"suspend": True, "volume": {"host_path": folder}}})
    )
    job = namespace.submit(path)
    suspend(job, "chief", False)
    job.until("the chief has failed", lambda s: s["phase"] == "failed")
    assert "step" not in job.log()
    (why,) = (line for line in job.log().splitlines() if line.startswith("trainer: "))
    assert f"run `chown 1000 {folder}` on the node {job.node('chief')}" in why
    suspend(job, "worker", False)
    for task_type in ("chief", "worker"):
        job.wait("failed", task_type, seconds=30)
        assert codes(job, task_type) == [Exit.USER]
    assert why in job.log("worker")
