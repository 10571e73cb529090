"""Pods that come late are waited for; those that come after the end of the job exit with its code within seconds."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kind.cluster import KubernetesJob, Namespace, kubectl, render
from tests.local import specs
from trainer.job.errors import Exit

pytestmark = pytest.mark.part("kubernetes")


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


def test_a_pod_that_comes_after_the_chief_has_failed_is_not_replaced(namespace: Namespace, tmp_path: Path) -> None:
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
    job.wait("failed", seconds=30)
    assert codes(job, "chief") == [Exit.USER]
    job.wait("complete", "worker", seconds=30)
    assert codes(job, "worker") == [Exit.OK], "it has heard how the job ended; the chief's Job shows it"
    assert why in job.log("worker")


WAITS = 5
"""Lines of a task that waits, one every 30 s: more than the 120 s that it would wait elsewhere."""


@pytest.mark.slow
def test_a_worker_that_comes_minutes_after_its_chief_and_a_chief_after_its_worker_train(
    namespace: Namespace, tmp_path: Path
) -> None:
    common = {"deadlines": {}, "kubernetes": {"suspend": True}}
    jobs = {
        first: namespace.submit_spec(tmp_path, {**specs.mirrored(steps=50, workers=2), "name": first, **common})
        for first in ("chief", "worker")
    }
    for first, job in jobs.items():
        suspend(job, first, False)
    log = {"chief": "waiting: 1 of 2 tasks are ready; worker:0: ", "worker": "is waiting for the chief ("}
    for first, job in jobs.items():
        until_it_has_waited(job, first, log[first])
    for first, job in jobs.items():
        (other,) = {"chief", "worker"} - {first}
        row = namespace.status(job.name)["tasks"][f"{other}:0"]
        assert (row["state"], row["reason"]) == ("missing", "the Job is suspended")
        suspend(job, other, False)
    for job in jobs.values():
        job.wait()
        assert "done: steps=50 " in job.log("chief")
        assert [len(job.pods(each)) for each in ("chief", "worker")] == [1, 1]


def until_it_has_waited(job: KubernetesJob, task_type: str, line: str) -> None:
    deadline = time.monotonic() + 300
    while (name := job.newest(task_type)) == "" or job.space.kubectl("logs", name, check=False).count(line) < WAITS:
        assert time.monotonic() < deadline, job.output
        time.sleep(job.poll_seconds)


def test_a_pod_with_another_spec_ends_the_job_within_seconds(namespace: Namespace, tmp_path: Path) -> None:
    """The deadline is half an hour."""
    path = tmp_path / "digits.yaml"
    path.write_text(yaml.safe_dump({**specs.mirrored(workers=2), "deadlines": {}}))
    manifests = list(yaml.safe_load_all(render(path)))
    (worker,) = (each for each in manifests if each["metadata"]["name"] == "digits-worker")
    worker["spec"]["template"]["spec"]["containers"][0]["env"].append({"name": "TRAINER_SET", "value": "train.steps=7"})
    job = namespace.apply(yaml.safe_dump_all(manifests))
    job.wait("failed", seconds=120)
    assert codes(job, "chief") == [Exit.MISMATCH]
    job.wait("complete", "worker", seconds=30)
    assert codes(job, "worker") == [Exit.OK], "a new pod would be refused too; the chief's Job shows it"
    for task_type in ("chief", "worker"):
        assert "worker:0 has a different job spec than the chief" in job.log(task_type)
