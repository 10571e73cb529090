"""One cluster serves a whole run; a namespace of its own, with Pod Security "restricted" enforced, each test."""

from __future__ import annotations

import os
import re
import subprocess
import uuid
from collections.abc import Iterator

import pytest

from tests.kind.cluster import ROOT, Namespace, kubectl


@pytest.fixture(scope="session", autouse=True)
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Up before the first test and gone after the last; one that KIND_CLUSTER names is used and kept.

    The user's own kubectl context stays as it is.
    """
    kept = "KIND_CLUSTER" in os.environ
    os.environ.setdefault("KIND_CLUSTER", "trainer-test")
    os.environ["KUBECONFIG"] = str(tmp_path_factory.mktemp("kind") / "config")
    script = str(ROOT / "scripts/kind.sh")
    try:
        subprocess.run([script, "up"], check=True, timeout=600)
        yield
    finally:
        if not kept:
            subprocess.run([script, "down"], check=True, timeout=120)


@pytest.fixture
def namespace(request: pytest.FixtureRequest) -> Iterator[Namespace]:
    # A name of its own: the namespace of the same test before may still be on its way out.
    name = f"{re.sub(r'[^a-z0-9]+', '-', request.node.name.lower())[:50]}-{uuid.uuid4().hex[:6]}"
    space = Namespace(name)
    kubectl("create", "namespace", name)
    kubectl("label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
    failed = request.session.testsfailed
    yield space
    if request.session.testsfailed > failed:
        print(space.report())
    kubectl("delete", "namespace", name, "--wait=false")
