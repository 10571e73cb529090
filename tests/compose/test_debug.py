"""Jobs in containers that really failed: the archive of each names the cause, and has no secret."""

from __future__ import annotations

import json
import secrets
from pathlib import Path

import pytest
import yaml

from tests.compose.project import Project, trainer
from tests.local import specs
from tests.tools.debugged import Debugged
from trainer.job.errors import Exit

pytestmark = pytest.mark.part("compose")

PROGRAM = """import json, os, sys
print("it logs", os.environ["API_KEY"], "and password:", os.environ["PLAIN"], flush=True)
def load(path):
    raise ValueError(f"{path} cannot be opened with {os.environ['API_KEY']}")
if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 1:
    load("part-00007")
import time; time.sleep(60)
"""


def test_the_program_of_a_worker_fails_and_all_secrets_are_hidden(tmp_path: Path) -> None:
    planted = {name: secrets.token_hex(12) for name in ("file", "plain", "flag")}
    (tmp_path / "key").write_text(planted["file"])
    (tmp_path / "train.py").write_text(PROGRAM)
    spec = {
        "name": "debugged", "strategy": "multi_worker_mirrored", "tasks": {"worker": 2}, "code": ["train.py"],
        "program": ["python3", "train.py", "--api-token", planted["flag"]], "env": {"PLAIN": planted["plain"]},
        "secrets": {"API_KEY": {"file": "key"}}, "image": "trainer:cpu",
    }  # fmt: skip
    path = tmp_path / "debugged.yaml"
    path.write_text(yaml.safe_dump(spec))
    words = ["--target", "compose", str(path)]
    try:
        assert trainer("submit", *words).returncode == 0
        trainer("status", "--watch", *words)
        found = Debugged(tmp_path, *words)
    finally:
        trainer("delete", *words, "--volumes")
    assert found.headline.startswith("debugged failed with exit code 18: worker:1: ")
    assert "ValueError: part-00007 cannot be opened with [hidden: API_KEY]" in found.headline
    assert "train.py:4" in found.page
    assert found.advises("exit code 18 with a line of your program")
    assert "it logs [hidden: API_KEY]" in found.text("logs/debugged-worker-0.txt")
    assert "API_KEY=[hidden: API_KEY]" in found.text("containers/debugged-worker-0.json")
    assert {"spec.json", "events.json", "engine.json", "model_dir/state.json", "model_dir/files.txt"} <= set(
        found.files
    )
    for name, content in found.files.items():
        for kind, value in planted.items():
            assert value.encode() not in content, (kind, name)


def test_a_task_that_needs_more_memory_than_it_has(tmp_path: Path) -> None:
    words = ["python3", "-c", "import os\nif '\"index\": 0' in os.environ['TF_CONFIG']: bytearray(1 << 30)"]
    tasks = {"worker": {"replicas": 2, "memory": "300Mi"}}
    spec = {"name": "memory", "strategy": "multi_worker_mirrored", "program": words, "code": [], "tasks": tasks}
    with Project(tmp_path, {**spec, "resume": "none"}) as project:
        assert project.wait() == 1, project.output
        found = Debugged(tmp_path, "--target", "compose", tmp_path / "job.yaml")
    assert found.headline.startswith("memory failed with exit code 14: worker:0 lost (out of memory at its limit")
    assert found.advises("a task is killed, with an out-of-memory message")


def test_a_job_whose_chief_is_lost(tmp_path: Path) -> None:
    spec = {**specs.parameter_server(deadlines={"start": 8}), "name": "chiefless"}
    with Project(tmp_path, spec, {"services": {"chiefless-chief-0": {"command": ["secret", "/tmp/x"]}}}) as project:
        project.until_printed("chiefless-worker-0-1 exited with code 15")
        found = Debugged(tmp_path, "--target", "compose", tmp_path / "job.yaml")
    assert "has had no reply from its chief" in found.page
    assert "exit code 15" in found.page
    assert found.advises("exit code 15")


def test_an_image_that_is_not_there_and_a_job_that_was_never_submitted(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    for image, says in (
        ("trainer:nope", "image: 'trainer:nope': is not on this machine"),
        ("trainer:cpu", "no such job"),
    ):
        path.write_text(json.dumps({**specs.mirrored(), "name": "never", "image": image}))
        found = Debugged(tmp_path, "--target", "compose", path)
        assert found.headline.startswith("never never started: ")
        assert says in found.headline
        assert Exit.TARGET.meaning in found.page
    path.write_text(json.dumps({**specs.mirrored(), "name": "never", "image": "trainer:nope"}))
    assert Debugged(tmp_path, "--target", "compose", path).advises("on Kubernetes ErrImagePull, ImagePullBackOff")
