"""Programs of the user's own on a real container engine; each task type is killed once."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.compose.project import CLIENT, ROOT, Project

TF_KERAS = ROOT / ".venv-peers" / "tf_keras"
# A user's image: root's, with a working directory and an entrypoint of its own, and without our folders.
FOREIGN = """
FROM trainer:cpu
USER 0
RUN rm -r /workspace /run/trainer /cache && mkdir -p /app && echo "import os; print('in', os.getcwd())" > /app/own.py
ENV HOME=/root PYTHONUNBUFFERED=
WORKDIR /app
HEALTHCHECK NONE
ENTRYPOINT ["/bin/false"]
"""


@pytest.fixture(scope="module")
def foreign() -> Iterator[str]:
    name = "trainer:test-foreign"
    subprocess.run(["docker", "build", "--quiet", "--tag", name, "-"], input=FOREIGN, text=True, check=True, timeout=60)
    yield name
    CLIENT.images.remove(name, force=True)


def program(folder: Path, name: str, *words: str, **more: Any) -> dict[str, Any]:
    """A job of examples/programs with more words, and its file in the folder."""
    shutil.copy(ROOT / "examples" / "programs" / f"{name.replace('-', '_')}.py", folder)
    spec = yaml.safe_load((ROOT / "examples" / "programs" / f"{name}.yaml").read_text())
    return {**spec, "program": [*spec["program"], *words], "deadlines": {"task_lost": 5}, **more}


def kill_each(project: Project, *tasks: str) -> None:
    """Kills the container of one task after another, each after new steps."""
    for task in tasks:
        project.until_printed(r"\bstep \d+ of|\bEpoch [2-9]/")
        project.kill(task)
        project.until_printed(f"{task} of .* has started")


def succeeded(project: Project, accuracy: float, generations: int) -> None:
    assert project.wait(300) == 0, project.output
    result = project.result()
    assert (result["status"], result["generations"]) == ("succeeded", generations), project.output
    assert set(project.exit_codes().values()) == {0}
    # Under multi_worker_mirrored every worker prints it.
    (reached,) = set(re.findall(r"test accuracy (0\.\d+)", project.output))
    assert float(reached) >= accuracy


@pytest.mark.slow
def test_between_graph_replication_in_an_image_of_the_users(tmp_path: Path, foreign: str) -> None:
    spec = program(tmp_path, "between-graph", "--steps=4000", "--checkpoint_steps=200", image=foreign)
    with Project(tmp_path, spec) as project:
        kill_each(project, "worker:2", "ps:0", "worker:0")
        succeeded(project, accuracy=0.97, generations=3)


@pytest.mark.slow
def test_a_coordinator_with_servers(tmp_path: Path) -> None:
    spec = program(tmp_path, "coordinator", "--steps=1500")
    with Project(tmp_path, spec) as project:
        kill_each(project, "worker:1", "ps:0", "chief:0")
        succeeded(project, accuracy=0.9, generations=3)


@pytest.mark.slow
@pytest.mark.part("programs")
@pytest.mark.skipif(not TF_KERAS.exists(), reason="make programs-setup installs tf_keras")
def test_keras_fit_of_keras_2(tmp_path: Path) -> None:
    spec = program(tmp_path, "multi-worker-fit", "--epochs=6", "--steps_per_epoch=30")
    spec |= {"data": {"keras": {"path": str(TF_KERAS)}}, "env": {**spec["env"], "PYTHONPATH": "/data/keras"}}
    with Project(tmp_path, spec) as project:
        kill_each(project, "worker:1", "chief:0")
        succeeded(project, accuracy=0.9, generations=3)


def test_a_program_that_the_image_has(tmp_path: Path, foreign: str) -> None:
    spec = {"name": "of-the-image", "strategy": "one_device", "program": ["python3", "own.py"], "code": []}
    with Project(tmp_path, {**spec, "image": foreign}) as project:
        assert project.wait() == 0, project.output
        assert "| in /app" in project.output
        project.up()
        assert project.wait() == 0, "it has volumes of its first run"
