"""The README's commands for Kubernetes, word for word and in their order, with fewer steps."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.kind.cluster import JOB_SECONDS, ROOT, Namespace, kubectl
from tests.unit.test_readme import blocks


def test_the_commands_run(namespace: Namespace) -> None:
    lines = [line for block in blocks("console") for line in block.splitlines() if "kubectl" in line]
    assert [line.split()[1] for line in lines] == ["trainer", "kubectl", "kubectl", "trainer"]
    kubectl("config", "set-context", "--current", f"--namespace={namespace.name}")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environ = {**os.environ, "PATH": path, "TRAINER_SET": "train.steps=20"}
    said = [
        subprocess.run(
            ["bash", "-o", "pipefail", "-ec", line.removeprefix("$ ")],
            check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environ, timeout=JOB_SECONDS,
        ).stdout
        for line in lines
    ]  # fmt: skip
    assert "done: steps=20 " in said[2]
    assert namespace.get("jobs,services,persistentvolumeclaims,networkpolicies") == []
