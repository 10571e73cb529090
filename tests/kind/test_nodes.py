"""Nodes that fail or are drained. These disturb anything else on the cluster: `make test-kind` runs them alone."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kind.cluster import KubernetesJob, Namespace, kubectl, trainer
from tests.kind.test_gang import ended, submit, until
from tests.local import specs

STEPS = 2500
PATIENT = {"start": 300, "rejoin": 300, "chief_lost": 300}
LOST: dict[str, Any] = {"kubernetes": {"node_lost_seconds": 5}}
"""Kubernetes itself takes 40 s or more to find that a node does not answer."""
FIREWALL = [
    (chain, way, "eth0", "--jump", "DROP")
    for chain, way in (
        ("INPUT", "--in-interface"),
        ("OUTPUT", "--out-interface"),
        ("FORWARD", "--in-interface"),
        ("FORWARD", "--out-interface"),
    )
]
"""Rules that cut a node off from all others."""


@contextlib.contextmanager
def stopped(node: str) -> Iterator[None]:
    """A node that is lost at once, with all that runs on it; it is started again when the test is over."""
    try:
        subprocess.run(["docker", "kill", node], check=True, capture_output=True, timeout=60)
        yield
    finally:
        subprocess.run(["docker", "start", node], check=True, capture_output=True, timeout=60)
        kubectl("wait", "--for=condition=Ready", f"node/{node}", "--timeout=90s", seconds=100)


@contextlib.contextmanager
def partitioned(node: str) -> Iterator[None]:
    """A node that runs on, with all its pods, but reaches no other one and is reached by none."""
    try:
        for rule in FIREWALL:
            on(node, "iptables", "--insert", *rule)
        yield
    finally:
        for rule in FIREWALL:
            on(node, "iptables", "--delete", *rule)
        kubectl("wait", "--for=condition=Ready", f"node/{node}", "--timeout=90s", seconds=100)
        # The network plugin does not notice for minutes that its connection to the API server was cut, and drops what
        # new pods send.
        its = ("pods", "--namespace=kube-system", f"--field-selector=spec.nodeName={node}")
        kubectl("delete", *its, "--timeout=60s", seconds=70)
        kubectl("wait", "--for=condition=Ready", *its, "--timeout=60s", seconds=70)


def on(node: str, *command: str) -> str:
    """Runs a command on a node, past its network; returns its stdout."""
    words = ["docker", "exec", node, *command]
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=60).stdout


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


def shared_claim(space: Namespace) -> dict[str, Any]:
    """A claim of a volume that both nodes have (scripts/kind.sh), and the settings of a job that uses it."""
    folder = Path(f"/tmp/kind-{os.environ['KIND_CLUSTER']}-shared") / space.name
    folder.mkdir()
    folder.chmod(0o777)
    size = {"storage": "1Gi"}
    spec = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    volume = {**spec, "capacity": size, "hostPath": {"path": f"/shared/{space.name}"}}
    claim = {**spec, "resources": {"requests": size}, "volumeName": space.name}
    for kind, found, name in (("PersistentVolume", volume, space.name), ("PersistentVolumeClaim", claim, "shared")):
        manifest = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, "spec": found}
        space.kubectl("apply", "--filename=-", text=json.dumps(manifest))
    return {"claim": "shared", "access": "ReadWriteMany"}


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
    begun = time.monotonic()
    job.until_formed_again(generation)
    print(f"node started again: {time.monotonic() - begun:.0f} s until the next step")
    job.wait()
    assert f"done: steps={STEPS} " in job.log()
    job.wait_for_the_others()
