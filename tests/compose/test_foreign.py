"""An image of the user's own with trainer added, in both ways that docs/programs.md describes."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compose.project import CLIENT, ROOT, Project
from tests.tools.wheel import build
from trainer import __version__

pytestmark = pytest.mark.part("compose")

FOLDER = ROOT / "tests" / "compose" / "foreign"


@pytest.fixture(scope="module", params=["wheel", "supervisor"])
def image(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The image; `make test-compose` builds trainer:supervisor, and sets BUILD_FLAGS where builds need them."""
    context = tmp_path_factory.mktemp("context")
    shutil.copytree(FOLDER, context, dirs_exist_ok=True)
    shutil.copy(build(tmp_path_factory.mktemp("source")), context)
    name = f"trainer:test-foreign-{request.param}"
    flags = os.environ.get("BUILD_FLAGS", "").split()
    command = ["docker", "build", "--quiet", "--target", request.param, "--tag", name, *flags, str(context)]
    subprocess.run(command, check=True, timeout=500)
    yield name
    CLIENT.images.remove(name, force=True)


def test_its_programs_import_its_packages_and_trainer(tmp_path: Path, image: str) -> None:
    spec = {"name": "foreign", "strategy": "multi_worker_mirrored", "tasks": {"worker": 2}, "code": [], "image": image}
    with Project(tmp_path, {**spec, "program": ["python", "program.py"]}) as project:
        assert project.wait() == 0, project.output
    for index in range(2):
        assert f"versions {index} 2.1.0 2.8.0 3.10.5 {__version__}\n" in project.output
        assert f"leaked {index} []\n" in project.output
        # pip puts the packages of the supervisor beside theirs; the other way adds none.
        assert f"rich {index} {image.endswith('wheel')}\n" in project.output
