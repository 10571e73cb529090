"""The lower bounds of pyproject.toml: trainer works with the oldest packages it asks for, and by older TensorFlows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.wheel import ROOT, UV, build
from trainer.job import environment
from trainer.job.errors import Exit

INSTALL = [*UV, "pip", "install", "--only-binary", ":all:"]
LOWEST = ("--resolution", "lowest-direct")
# Those that import neither TensorFlow, numpy nor what renders.
TESTS = [
    "job/test_spec.py", "job/rules/test_spec.py", "job/rules/test_communication.py", "job/test_tf_config.py",
    "protocol/test_events.py", "protocol/test_reports.py", "protocol/test_status.py", "model_dir/test_state.py",
    "model_dir/test_result.py",
    "supervisor/control_port/test_server.py", "supervisor/control_port/test_peers.py",
    "supervisor/metrics/test_prometheus.py",
    "supervisor/task/test_follower.py", "supervisor/chief/test_last_replies.py",
]  # fmt: skip
# An older client of aiohttp, that of the test, sees the connection closed before it reads the answer.
NOT = "tests/unit/supervisor/control_port/test_server.py::test_a_report_that_is_too_long_is_refused"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("source"))


def run(command: list[str], cwd: Path) -> str:
    unwanted = {"PYTHONPATH", "VIRTUAL_ENV", environment.SET, environment.JOB}
    environ = {name: value for name, value in os.environ.items() if name not in unwanted}
    done = subprocess.run(command, cwd=cwd, env=environ, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def installed(wheel: Path, folder: Path, *extra: str) -> Path:
    """An environment with the wheel and the oldest packages that it and the extra ask for by name; returns its bin."""
    run([*UV, "venv", "--python", sys.executable, str(folder)], cwd=wheel.parent)
    # Of a wheel the packages that it asks for count as indirect.
    run([*INSTALL, *LOWEST, "--python", str(folder / "bin/python"), "-r", "pyproject.toml", *extra], cwd=ROOT)
    run([*INSTALL, "--no-deps", "--python", str(folder / "bin/python"), str(wheel)], cwd=ROOT)
    return folder / "bin"


def test_trainer_works_with_the_oldest_packages_that_it_asks_for(wheel: Path, tmp_path: Path) -> None:
    programs = installed(wheel, tmp_path / "venv")
    # Its warnings are errors: an older pydantic must not write them into each command's output.
    trainer = [str(programs / "python"), "-W", "error::UserWarning", str(programs / "trainer")]
    assert "exit codes:" in run([*trainer, "--help"], cwd=tmp_path)
    assert "worker:1" in run([*trainer, "check", str(ROOT / "examples/digits-ps.yaml")], cwd=tmp_path)
    manifest = str(ROOT / "tests/unit/tfjob/tfjobs/dist-mnist.yaml")
    assert "strategy: parameter_server" in run([*trainer, "import", manifest], cwd=tmp_path)
    refused = subprocess.run([*trainer, "schema"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (refused.returncode, "needs 2.10 or newer" in refused.stderr) == (Exit.USER, True), refused.stderr
    run([*INSTALL, "--python", str(programs / "python"), "pytest", "pytest-timeout", "hypothesis"], cwd=tmp_path)
    tests = [f"tests/unit/{name}" for name in TESTS]
    # An older aiohttp leaves a socket of a client that went away to the garbage collector.
    words = ["-q", "--deselect", NOT, "-W", "ignore::pytest.PytestUnraisableExceptionWarning"]
    run([str(programs / "python"), "-m", "pytest", *words, *tests], cwd=ROOT)


def test_it_renders_with_the_oldest_of_the_extra_deploy(wheel: Path, tmp_path: Path) -> None:
    programs = installed(wheel, tmp_path / "venv", "--extra", "deploy")
    for target in ("compose", "kubernetes"):
        words = ["render", target, str(ROOT / "examples/mnist-ps.yaml")]
        assert "TF_CONFIG" in run([str(programs / "trainer"), *words], cwd=tmp_path)


@pytest.mark.parametrize("tensorflow", ["2.14.1", "2.15.1", "2.16.2"])
def test_it_can_be_installed_beside_an_older_tensorflow(wheel: Path, tmp_path: Path, tensorflow: str) -> None:
    """Not beside 2.12 and 2.13, which ask for typing-extensions below 4.6: no pydantic 2 works with them."""
    asked = tmp_path / "asked.txt"
    asked.write_text(f"{wheel}\ntensorflow-cpu=={tensorflow}\n")
    platform = ["--python-version", "3.11", "--python-platform", "x86_64-manylinux_2_28", "--only-binary", ":all:"]
    found = run([*UV, "pip", "compile", *platform, str(asked)], cwd=tmp_path)
    assert "numpy==1." in found
    assert "pydantic==2." in found


def test_it_is_not_installed_beside_pydantic_1(wheel: Path, tmp_path: Path) -> None:
    asked = tmp_path / "asked.txt"
    asked.write_text(f"{wheel}\npydantic<2\n")
    done = subprocess.run([*UV, "pip", "compile", str(asked)], capture_output=True, text=True, timeout=120)
    assert done.returncode
    assert "pydantic" in done.stderr
