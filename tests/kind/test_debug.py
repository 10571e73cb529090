"""A job in pods that really failed: the archive names the cause, and has no secret. Tasks that wait are in
test_waiting.py, a lost node in test_nodes.py, a job that runs in test_tour.py."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from tests.kind.cluster import Namespace
from tests.local import specs
from tests.tools.debugged import Debugged
from trainer.job.errors import Exit

pytestmark = pytest.mark.part("kubernetes")

WORKLOAD = """import os
from trainer.workloads.digits import DATASET, model
print("it logs", os.environ["API_KEY"], flush=True)  # in each task, before any of them fails
def loss(y, prediction):
    raise ValueError(f"cannot weigh with {os.environ['PLAIN_TOKEN']}")
"""


def test_the_workload_fails_and_all_secrets_are_hidden(namespace: Namespace, tmp_path: Path) -> None:
    planted = {name: secrets.token_hex(12) for name in ("secret", "plain", "annotation")}
    namespace.kubectl("create", "secret", "generic", "mine", f"--from-literal=API_KEY={planted['secret']}")
    (tmp_path / "mine.py").write_text(WORKLOAD)
    spec = {
        **specs.mirrored(workload="mine.py"),
        "env": {"PLAIN_TOKEN": planted["plain"]},
        "secrets": {"API_KEY": {"secret": "mine"}},
        "kubernetes": {"annotations": {"note": f"token={planted['annotation']}"}},
    }
    job = namespace.submit_spec(tmp_path, spec)
    job.wait("failed")
    words = ("--namespace", namespace.name, "digits")
    # The value of a Secret is known where the variable is set that it is from.
    found = Debugged(tmp_path, *words, environ={"API_KEY": planted["secret"]})
    assert found.headline.startswith("digits failed with exit code 2: ")
    assert "mine.py:5: ValueError: cannot weigh with [hidden: PLAIN_TOKEN]" in found.headline
    assert found.advises("exit code 2 with a file and a line")
    assert Exit.USER.meaning in found.page
    logs = [name for name in found.files if name.startswith("logs/chief-0/")]
    assert "it logs [hidden: API_KEY]" in found.text(logs[0])
    kinds = {name.partition("/")[2].partition("-")[0] for name in found.files if name.startswith("objects/")}
    assert {"Job", "Pod", "Service", "NetworkPolicy", "ConfigMap", "PersistentVolumeClaim"} <= kinds
    assert "Secret" not in kinds
    assert {"applied-spec.json", "events.json", "cluster.json", "model_dir/files.txt"} <= set(found.files)
    assert any(name.startswith("nodes/") for name in found.files)
    assert "the chief does not run" in found.text("model_dir/files.txt")
    (value,) = (each["data"]["secret"] for each in namespace.get("secrets") if "report" in each["metadata"]["name"])
    for name, content in found.files.items():
        for kind, each in {**planted, "report": value}.items():
            assert each.encode() not in content, (kind, name)
        assert b"managedFields" not in content
        assert b"raise ValueError" not in content or name.startswith("logs/"), "the user's code"
