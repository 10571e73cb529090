"""Nodes of the kind cluster: lost, cut off, and with a volume that all of them have."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.kind.cluster import Namespace, kubectl

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


def shared_claim(space: Namespace, name: str = "shared") -> dict[str, Any]:
    """A claim of a volume that both nodes have (scripts/kind.sh), and the settings of a job that uses it."""
    volume_name = f"{space.name}-{name}"
    folder = shared_folder(space, name)
    folder.mkdir()
    folder.chmod(0o777)
    size = {"storage": "1Gi"}
    spec = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    volume = {**spec, "capacity": size, "hostPath": {"path": f"/shared/{folder.name}"}}
    claim = {**spec, "resources": {"requests": size}, "volumeName": volume_name}
    for kind, found, of in (("PersistentVolume", volume, volume_name), ("PersistentVolumeClaim", claim, name)):
        manifest = {"apiVersion": "v1", "kind": kind, "metadata": {"name": of}, "spec": found}
        space.kubectl("apply", "--filename=-", text=json.dumps(manifest))
    return {"claim": name, "access": "ReadWriteMany"}


def shared_folder(space: Namespace, name: str = "shared") -> Path:
    """Where this machine has the files of such a volume."""
    return Path(f"/tmp/kind-{os.environ['KIND_CLUSTER']}-shared") / f"{space.name}-{name}"
