"""Nodes that fail, in ways that are no cells of tests/failures. These disturb anything else on the cluster: `make
test-kind` runs them alone."""

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
def test_a_job_whose_only_volume_is_on_a_lost_node_waits_for_it_and_says_so(
    namespace: Namespace, tmp_path: Path
) -> None:
    spec = specs.mirrored(steps=2500, workers=1, workload=specs.PACED, deadlines=PATIENT, **LOST)
    job = namespace.submit_spec(tmp_path, spec)
    generation = job.until("a checkpoint", lambda s: s["last_checkpoint"])["generation"]
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
    job.until_formed_again(generation)
    job.wait()
    assert "done: steps=2500 " in job.log()
    assert "resume_step=0" not in job.log()
    job.wait_for_the_others()
