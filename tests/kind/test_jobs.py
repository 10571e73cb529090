"""Undisturbed jobs on a real Kubernetes cluster."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from tests.kind.cluster import ROOT, Namespace, kubectl, render, trainer
from tests.local import specs
from tests.tools.harness import Job, assert_same_curve
from trainer.job.errors import Exit

# As in tests/compose/test_jobs.py, with 50 examples in each step of both.
SHORT = "train.steps=600 train.learning_rate=5e-4 train.checkpoint_steps=200 "
SHORT += "train.batch_size=null train.global_batch_size=50"
REPLICAS = {"mnist-ps": 1, "mnist-mwms": 2}
IN_TURN = [pytest.param(name, marks=pytest.mark.slow(parts=2, turn=i)) for i, name in enumerate(REPLICAS)]
# Kubernetes has PodGroups of its own from 1.36 on; tests/golden checks that manifest by its schema.
NEWER = "kubernetes-podgroup"
FOUND = sorted([*(ROOT / "tests/golden").glob("kubernetes-*.yaml"), *(ROOT / "k8s").glob("*.yaml")])
MANIFESTS = [path for path in FOUND if path.stem != NEWER]


@pytest.mark.parametrize("name", IN_TURN)
def test_mnist_is_learnt_by_pods_on_two_nodes(namespace: Namespace, name: str) -> None:
    job = namespace.apply(render(ROOT / f"examples/{name}.yaml", SHORT))
    job.wait()
    log = job.log()
    accuracy = re.search(r"done: steps=600 .*test_accuracy=([0-9.]+)", log)
    assert accuracy, log
    assert float(accuracy[1]) >= 0.97
    assert f"replicas_in_sync={REPLICAS[name]} " in log
    assert len({pod["spec"]["nodeName"] for pod in job.pods()}) == 2
    assert len(job.pods()) == sum(job.jobs.values())
    job.wait_for_the_others()
    assert {pod["status"]["phase"] for pod in job.pods()} == {"Succeeded"}


def test_the_api_server_accepts_every_manifest() -> None:
    assert len(MANIFESTS) > 10
    # It tries all, and its error names those that are refused.
    kubectl("apply", "--dry-run=server", *(f"--filename={path}" for path in MANIFESTS))


def test_local_and_kubernetes_train_the_same(namespace: Namespace, tmp_path: Path) -> None:
    spec = specs.same_everywhere()
    with Job(tmp_path, spec) as here:
        assert here.wait() == 0, here.output
    there = namespace.submit_spec(tmp_path, spec)
    there.wait()
    assert json.loads(there.file(".trainer/result.json"))["tasks"] == here.result()["tasks"]
    assert_same_curve((here.model_dir / "metrics.jsonl").read_text(), there.file("metrics.jsonl"), steps=60)


def test_graph_jobs_compute_in_pods(namespace: Namespace) -> None:
    jobs = {name: namespace.submit(ROOT / f"examples/{name}.yaml") for name in specs.GRAPHS}
    for name, job in jobs.items():
        job.wait()
        assert set(specs.GRAPHS[name]) <= set(job.log().splitlines()), job.log()


def test_a_secret_comes_from_a_secret(namespace: Namespace, tmp_path: Path) -> None:
    path = tmp_path / "digits.yaml"
    path.write_text(yaml.safe_dump(specs.keyed(secret="mine", key="api")))
    printed = trainer("submit", "--namespace", namespace.name, str(path), code=Exit.USER)
    assert f"secrets.API_KEY: namespace {namespace.name} has no Secret mine with a key api; `kubectl create" in printed
    assert namespace.get("jobs,secrets") == []
    namespace.kubectl("create", "secret", "generic", "mine", f"--from-literal=api={specs.KEY}")
    job = namespace.submit(path)
    job.wait()
    assert specs.KEY not in job.log() + job.file(".trainer/result.json")
