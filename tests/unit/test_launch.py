"""Our processes import our `trainer`, wherever they start: users have packages of that name too."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.supervisor.children.test_child import SPEC, ps_task, started
from trainer.job import environment
from trainer.job.errors import Exit
from trainer.protocol.events import Warm
from trainer.targets.local.run import TASK_COMMAND

ROOT = Path(__file__).parents[2]
USERS = "raise SystemExit('this is the user\\'s')"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder as for Google's AI Platform, with a file that hides a module of the standard library besides."""
    folder = tmp_path / "project"
    (folder / "trainer").mkdir(parents=True)
    for name in ("trainer/__init__.py", "trainer/task.py", "queue.py"):
        (folder / name).write_text(USERS)
    return folder


def run(command: tuple[str, ...], folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", environment.JOB)}
    return subprocess.run(command, cwd=folder, env={**environ, **more}, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("path", ["", "{project}", "{project}:{root}"])
def test_a_task_starts_beside_a_package_of_the_users(project: Path, path: str) -> None:
    """Our task does, and finds no job."""
    if path:
        (project / "queue.py").unlink()  # on PYTHONPATH it hides the standard library's from every program
    ended = run(TASK_COMMAND, project, PYTHONPATH=path.format(project=project, root=ROOT))
    assert (ended.returncode, environment.JOB in ended.stderr) == (Exit.USER, True), ended.stderr


def test_a_child_starts_beside_a_package_of_the_users(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def start() -> None:
        async with started(ps_task(), project / "log") as (_, watched):
            await asyncio.wait_for(watched.until(Warm), 60)

    monkeypatch.chdir(project)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setenv(environment.JOB, SPEC.model_dump_json())
    asyncio.run(start())


def test_processes_that_multiprocessing_spawns_have_the_same_trainer(project: Path, tmp_path: Path) -> None:
    """They import the file of their parent's main module, with the sys.path of their parent."""
    own = tmp_path / "own"
    (own / "trainer").mkdir(parents=True)
    shutil.copy(ROOT / "trainer_launch.py", own)
    (own / "trainer/__init__.py").touch()
    (own / "trainer/errors.py").write_text("class Error(Exception): pass\n")
    (own / "trainer/program.py").write_text(
        "import multiprocessing, os, sys\nfrom trainer.errors import Error\n"
        "def main():\n"
        "    sys.path.insert(0, os.getcwd())\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        print(type(pool.apply(Error, ('x',))), *sys.argv[1:])\n"
    )
    (project / "queue.py").unlink()
    ended = run((sys.executable, str(own / "trainer_launch.py"), "trainer.program", "word"), project)
    assert ended.stdout == "<class 'trainer.errors.Error'> word\n", ended.stderr


@pytest.mark.parametrize("safe", ["", "1"])
def test_a_workload_imports_modules_of_the_working_directory(tmp_path: Path, safe: str) -> None:
    if safe and sys.version_info < (3, 11):
        pytest.skip("Python 3.11 is the first with PYTHONSAFEPATH")
    (tmp_path / "beside.py").write_text("print('found')")
    (tmp_path / "elsewhere").mkdir()
    program = "from trainer.workloads.load import search_working_directory\nsearch_working_directory()\nimport beside\n"
    (tmp_path / "elsewhere/program.py").write_text(program)
    command = (sys.executable, "elsewhere/program.py")
    ended = run(command, tmp_path, PYTHONPATH=str(ROOT), PYTHONSAFEPATH=safe)
    assert ended.stdout == ("" if safe else "found\n"), ended.stderr


@pytest.mark.parametrize("python", ["ours", "another"])
def test_an_image_has_packages_for_each_python_and_they_alone_are_found(tmp_path: Path, python: str) -> None:
    """As /opt/trainer of trainer:supervisor, whose command is isolated from the image's packages by -I and -S."""
    version = "{}.{}".format(*sys.version_info) if python == "ours" else "3.1"
    (tmp_path / "trainer").mkdir()
    (tmp_path / "packages" / version).mkdir(parents=True)
    shutil.copy(ROOT / "trainer_launch.py", tmp_path)
    (tmp_path / "packages" / version / "beside.py").write_text("print('its own')")
    (tmp_path / "trainer/__init__.py").touch()
    (tmp_path / "trainer/program.py").write_text(
        "import importlib.util, beside\ndef main(): print(importlib.util.find_spec('pydantic'))\n"
    )
    command = (sys.executable, "-I", "-S", str(tmp_path / "trainer_launch.py"), "trainer.program")
    ended = run(command, tmp_path, PYTHONPATH=str(ROOT))
    if python == "ours":
        assert ended.stdout == "its own\nNone\n", ended.stderr
    else:
        assert ended.returncode == Exit.USER
        assert ended.stderr.endswith("packages is for 3.1; set TRAINER_PYTHON to one\n")
