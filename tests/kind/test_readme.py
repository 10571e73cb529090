"""The commands of docs/kubernetes.md, verbatim and in order, with fewer steps."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.kind.cluster import JOB_SECONDS, ROOT, Namespace, kubectl
from tests.tools.documents import blocks


def test_the_commands_run(namespace: Namespace) -> None:
    (lines,) = (block.splitlines() for block in blocks("console", "docs/kubernetes.md"))
    assert [line.split()[1] for line in lines] == [*["trainer"] * 6, "kubectl", "kubectl", "trainer"]
    kubectl("config", "set-context", "--current", f"--namespace={namespace.name}")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environ = {**os.environ, "PATH": path, "TRAINER_SET": "train.steps=20"}
    output = [
        subprocess.run(
            ["bash", "-o", "pipefail", "-ec", line.removeprefix("$ ")],
            check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environ, timeout=JOB_SECONDS,
        ).stdout
        for line in lines
    ]  # fmt: skip
    assert "done: steps=20 " in output[1]
    assert {line.split()[0] for line in output[2].splitlines()} == {"worker:1"}
    assert "digits-ps" in output[3]
    assert "done: steps=20 " in output[7]
    assert namespace.get("jobs,services,persistentvolumeclaims,networkpolicies") == []
