"""Nodes that fail or are drained. These disturb anything else on the cluster: `make test-kind` runs them alone."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

import pytest

from tests.kind.cluster import KubernetesJob, Namespace, kubectl, trainer
from tests.kind.nodes import on, partitioned, shared_claim, stopped
from tests.kind.test_gang import ended, submit, until
from tests.local import specs
from tests.tools.debugged import Debugged

STEPS = 2500
PATIENT = {"start": 300, "rejoin": 300, "chief_lost": 300}
LOST: dict[str, Any] = {"kubernetes": {"node_lost_seconds": 5}}
"""Kubernetes itself takes 40 s or more to find that a node does not answer."""


def until_printed(node: str, job: KubernetesJob, pod: str, text: str, seconds: float = 60) -> None:
    """Waits until a pod on a node that cannot be reached has printed a text."""
    deadline = time.monotonic() + seconds
    while text not in (log := on(node, "sh", "-c", f"cat /var/log/pods/{job.space.name}_{pod}_*/task/*.log")):
        assert time.monotonic() < deadline, log
        time.sleep(0.5)


def until_replaced(job: KubernetesJob, task_type: str, seconds: float = 150) -> None:
    """Waits until a lost pod has a successor that runs."""
    before, deadline = len(job.pods(task_type)), time.monotonic() + seconds
    while len(found := job.pods(task_type)) == before or found[-1]["status"]["phase"] != "Running":
        assert time.monotonic() < deadline, f"no new {task_type}"
        time.sleep(1)


@pytest.mark.parametrize("kind", [specs.mirrored, pytest.param(specs.parameter_server, marks=pytest.mark.slow)])
def test_a_chief_on_a_lost_node_moves_with_a_volume_of_several_nodes(
    namespace: Namespace, tmp_path: Path, kind: Any
) -> None:
    lost = {"kubernetes": {**LOST["kubernetes"], "volume": shared_claim(namespace)}}
    job = namespace.submit_spec(tmp_path, kind(steps=6000, workload=specs.PACED, deadlines=PATIENT, **lost))
    generation = job.until("a checkpoint", lambda s: s["last_checkpoint"])["generation"]
    with stopped(job.node("chief")):
        begun = time.monotonic()
        until_replaced(job, "chief")
        job.until_formed_again(generation)
        print(f"the chief's node lost: {time.monotonic() - begun:.0f} s until the next step")
        job.wait("SuccessCriteriaMet")
        assert "done: steps=6000 " in job.log()
        assert "resume_step=0" not in job.log()
        assert namespace.status(job.name)["phase"] == "done"
    job.wait_for_the_others()


@pytest.mark.slow
def test_a_chief_that_nobody_reaches_writes_nothing_once_another_has_its_place(
    namespace: Namespace, tmp_path: Path
) -> None:
    """The whole job runs on a node that is cut off: it trains on there until its chief finds the lease of the new one
    on the volume, which both nodes still have."""
    lost = {"kubernetes": {**LOST["kubernetes"], "volume": shared_claim(namespace)}}
    spec = specs.parameter_server(steps=(steps := 12_000), workers=1, workload=specs.PACED, deadlines=PATIENT, **lost)
    other = f"{os.environ['KIND_CLUSTER']}-worker"
    kubectl("cordon", other)
    try:
        job = namespace.submit_spec(tmp_path, spec)
        status = job.until("a checkpoint", lambda s: s["last_checkpoint"])
    finally:
        kubectl("uncordon", other)
    generation, step = status["generation"], status["step"]
    node, old = job.node("chief"), job.newest("chief")
    assert {pod["spec"]["nodeName"] for pod in job.pods()} == {node} != {other}
    with partitioned(node):
        begun = time.monotonic()
        until_replaced(job, "chief")
        job.until_formed_again(generation)
        print(f"the chief's node cut off: {time.monotonic() - begun:.0f} s until the next step")
        until_printed(node, job, old, "another chief has taken this one's place")
        job.wait("SuccessCriteriaMet")
        log = job.log()
        assert f"done: steps={steps} " in log
        # It had gone on without its node, so that its successor begins far from where it was cut off.
        assert int(*re.findall(r"resume_step=(\d+)", log)) > step + 1000
    job.wait_for_the_others()


@pytest.mark.slow
def test_the_chief_of_a_job_set_moves_from_a_lost_node(namespace: Namespace, tmp_path: Path) -> None:
    settings = {**LOST["kubernetes"], "gang": "jobset", "volume": shared_claim(namespace)}
    spec = specs.mirrored(steps=6000, workload=specs.PACED, deadlines=PATIENT, kubernetes=settings)
    submit(namespace, tmp_path, spec)
    until("a checkpoint", lambda: bool((namespace.status("digits")["job"] or {}).get("last_checkpoint")))
    (chief,) = (pod for pod in namespace.get("pods") if "digits-chief-0-0-" in pod["metadata"]["name"])
    with stopped(chief["spec"]["nodeName"]):
        until("the end", lambda: ended(namespace, "digits"))
        found = namespace.status("digits")
        assert (found["phase"], "done: steps=6000 " in found["last_line"]) == ("done", True), found
        log = trainer("logs", "--namespace", namespace.name, "digits", "--task", "chief:0")
        assert "resume_step=0" not in log
        (job_set,) = namespace.get("jobsets")
        assert job_set["status"].get("restarts", 0) == 0, "only its pods were replaced"


@pytest.mark.slow
@pytest.mark.parametrize("kind", [specs.parameter_server, specs.mirrored])
def test_pods_of_a_lost_node_are_replaced(namespace: Namespace, tmp_path: Path, kind: Any) -> None:
    job = namespace.submit_spec(tmp_path, kind(steps=6000, workload=specs.PACED, deadlines=PATIENT, **LOST))
    generation = job.until("a checkpoint", lambda s: s["last_checkpoint"])["generation"]
    node = next(pod["spec"]["nodeName"] for pod in job.pods() if pod["spec"]["nodeName"] != job.node("chief"))
    lost = [pod["metadata"]["name"] for pod in job.pods() if pod["spec"]["nodeName"] == node]
    with stopped(node):
        begun = time.monotonic()
        if kind is specs.parameter_server and not any("-ps-" in name for name in lost):
            until_replaced(job, "worker")  # the others train on meanwhile
        else:
            job.until_formed_again(generation)
        print(f"the node of {', '.join(lost)} lost: {time.monotonic() - begun:.0f} s until they are back")
        job.wait()
        assert "done: steps=6000 " in job.log()
        stuck = {pod["metadata"]["name"] for pod in job.pods() if pod["metadata"].get("deletionTimestamp")}
        assert stuck == {*lost}, "nobody confirmed their end, and the job did not wait for it"
    job.wait_for_the_others()


def test_a_drained_node_and_a_node_that_stops(namespace: Namespace, tmp_path: Path) -> None:
    job = namespace.submit_spec(tmp_path, specs.mirrored(steps=STEPS, workload=specs.PACED, deadlines=PATIENT, **LOST))
    generation = job.until_step(100)["generation"]
    node = job.node("worker")
    assert node != job.node("chief"), "the pods are spread"
    try:
        begun = time.monotonic()
        kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=60s", seconds=90)
        generation = job.until_formed_again(generation)["generation"]
        print(f"drained: {time.monotonic() - begun:.0f} s until the next step")
        assert job.node("worker") == job.node("chief")
    finally:
        kubectl("uncordon", node)
    # Now with both pods: the whole job loses its node.
    node = job.node("chief")
    with stopped(node):
        deadline = time.monotonic() + 120
        while (row := namespace.status(job.name)["tasks"]["chief:0"])["state"] != "lost":
            assert time.monotonic() < deadline, row
            time.sleep(2)
        assert f"its node {node} does not answer" in row["reason"]
        assert "kubernetes.volume.access: ReadWriteMany" in row["reason"]
        found = Debugged(tmp_path, "--namespace", namespace.name, job.name)
        assert found.headline.startswith(f"{job.name} waits for chief:0: its node {node} does not answer")
        assert found.advises("on Kubernetes a pod is lost, on a node that does not answer")
    begun = time.monotonic()
    job.until_formed_again(generation)
    print(f"node started again: {time.monotonic() - begun:.0f} s until the next step")
    job.wait()
    assert f"done: steps={STEPS} " in job.log()
    job.wait_for_the_others()
