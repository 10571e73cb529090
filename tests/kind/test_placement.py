"""Where the pods of a job are, and what a patch of the pod template does to them, on a real scheduler."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.kind.cluster import Namespace, kubectl, render
from tests.local import specs

LABEL = "example.com/rack"
ALIAS = {"ip": "192.0.2.9", "hostnames": ["files.example"]}
TEXTS = {"RATE": "1e-3", "ANSWER": "y", "MODE": "0o17", "TITLE": "\U0001f680 \u2028"}
"""Of these kubectl's reader of YAML and Python's make different values, if they are not quoted or escaped."""


@pytest.fixture
def racks() -> Iterator[None]:
    """Each node that takes pods is a rack of its own."""
    nodes = kubectl("get", "nodes", "--selector=!node-role.kubernetes.io/control-plane", "--output=name").split()
    assert len(nodes) == 2
    for number, node in enumerate(nodes):
        kubectl("label", node, f"{LABEL}=r{number}")
    yield
    for node in nodes:
        kubectl("label", node, f"{LABEL}-")


@pytest.mark.usefixtures("racks")
def test_all_tasks_are_in_one_rack_and_pods_are_as_the_patch_has_them(namespace: Namespace, tmp_path: Path) -> None:
    patch = {
        "spec": {
            "hostAliases": [ALIAS],
            "containers": [{"name": "task", "resources": {"limits": {"ephemeral-storage": "2Gi"}}}],
        }
    }
    spec = specs.mirrored(steps=100_000, workers=4, workload=specs.PACED)
    path = tmp_path / "digits.yaml"
    path.write_text(yaml.safe_dump({**spec, "kubernetes": {"topology": LABEL, "pod": patch, "env": TEXTS}}))
    job = namespace.apply(render(path))
    job.until_step(1)
    pods = job.pods()
    assert len(pods) == 4
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 1
    assert all(pod["spec"]["hostAliases"] == [ALIAS] for pod in pods)
    limits = [pod["spec"]["containers"][0]["resources"]["limits"] for pod in pods]
    assert limits == [{"ephemeral-storage": "2Gi"}] * 4
    env = {each["name"]: each.get("value") for each in pods[0]["spec"]["containers"][0]["env"]}
    assert TEXTS.items() <= env.items()
    assert "files.example" in namespace.kubectl("exec", "job/digits-worker", "--", "cat", "/etc/hosts")
