"""Nodes that fail or are drained. These disturb anything else on the cluster: `make test-kind` runs them alone."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from tests.kind.cluster import Namespace, kubectl
from tests.local import specs

STEPS = 2500


def test_a_drained_node_and_a_node_that_stops(namespace: Namespace, tmp_path: Path) -> None:
    job = namespace.submit_spec(tmp_path, specs.mirrored(steps=STEPS, workload=specs.PACED))
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
    begun = time.monotonic()
    subprocess.run(["docker", "stop", job.node("chief")], check=True, capture_output=True, timeout=60)
    subprocess.run(["docker", "start", job.node("chief")], check=True, capture_output=True, timeout=60)
    job.until_formed_again(generation)
    print(f"node stopped: {time.monotonic() - begun:.0f} s until the next step")
    job.wait()
    assert f"done: steps={STEPS} " in job.log()
    job.wait_for_the_others()
