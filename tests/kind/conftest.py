"""`scripts/kind.sh run` creates the cluster. Each test has a namespace, with Pod Security "restricted" enforced."""

from __future__ import annotations

import os
import re
import subprocess
import uuid
from collections.abc import Iterator

import pytest

from tests.kind.cluster import ROOT, Namespace, kubectl


@pytest.fixture(scope="session", autouse=True)
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A kubectl context of this process's own; the user's, and that of tests beside these, stay as they are."""
    cluster = os.environ.get("KIND_CLUSTER")
    assert cluster, "KIND_CLUSTER: is not set: `make test-kind`, or the name of a cluster that `make kind-up` made"
    os.environ["KUBECONFIG"] = str(tmp_path_factory.mktemp("kind") / "config")
    subprocess.run(["kind", "export", "kubeconfig", "--quiet", "--name", cluster], check=True, timeout=60)


@pytest.fixture
def namespace(request: pytest.FixtureRequest) -> Iterator[Namespace]:
    yield from _namespace(request)


@pytest.fixture(scope="module")
def tour_namespace(request: pytest.FixtureRequest) -> Iterator[Namespace]:
    """That of the one job at which the tests of a module look."""
    yield from _namespace(request)


def _namespace(request: pytest.FixtureRequest) -> Iterator[Namespace]:
    # A name of its own: the namespace of the same test before may still be on its way out.
    of = request.node.name.rpartition("/")[2].removesuffix(".py")
    name = f"{re.sub(r'[^a-z0-9]+', '-', of.lower())[:50]}-{uuid.uuid4().hex[:6]}"
    space = Namespace(name)
    kubectl("create", "namespace", name)
    kubectl("label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
    failed = request.session.testsfailed
    yield space
    if request.session.testsfailed > failed:
        folder = ROOT / "build/kind" / name
        space.save(folder)
        print(f"YAML, events and logs: {folder}\n{space.report()}")
    kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Namespace]:
    """Another namespace, with a pod `stranger` that may go anywhere: what refuses it is the job's policy."""
    space = Namespace(f"elsewhere-{uuid.uuid4().hex[:6]}")
    kubectl("create", "namespace", space.name)
    space.kubectl("run", "stranger", "--image=trainer:cpu", "--command", "--", "sleep", "900")
    space.kubectl("wait", "--for=condition=Ready", "pod/stranger", "--timeout=60s", seconds=70)
    yield space
    kubectl("delete", "namespace", space.name, "--wait=false")
