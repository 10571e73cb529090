"""`import trainer` in a program whose Python has no trainer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import trainer
from trainer.supervisor.children.interpreter import ALONE, python_path


def run(code: str, **environ: str) -> str:
    """In a Python without site-packages, and without this checkout."""
    command = [sys.executable, "-S", "-c", code]
    done = subprocess.run(
        command, cwd="/", env=python_path(environ), stdout=subprocess.PIPE, text=True, check=True, timeout=60
    )
    return done.stdout


def test_it_is_this_trainer_and_its_modules_are_found() -> None:
    code = "import trainer, trainer.job.errors as e; print(trainer.__version__, trainer.__file__, e.__file__)"
    package = Path(trainer.__file__)
    assert run(code) == f"{trainer.__version__} {package} {package.parent / 'job/errors.py'}\n"


def test_no_package_of_the_supervisor_comes_with_it() -> None:
    assert [path.name for path in ALONE.iterdir()] == ["trainer"]
    code = "import importlib.util, trainer; from trainer import report; print(importlib.util.find_spec('pydantic'))"
    assert run(code) == "None\n"


def test_a_trainer_of_the_users_on_pythonpath_comes_first(tmp_path: Path) -> None:
    (tmp_path / "trainer.py").write_text("whose = 'mine'")
    assert run("import trainer; print(trainer.whose)", PYTHONPATH=str(tmp_path)) == "mine\n"
