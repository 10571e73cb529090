"""The wheel: complete, and needing only the packages in its metadata. Built and installed without a package index."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.tools.wheel import ROOT, UV, build
from trainer import __version__
from trainer.job import environment
from trainer.job.errors import Exit
from trainer.job.messages import how_to_install

OFFLINE = [*UV, "--offline"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("source"))


def needed_by(requirement: str, seen: set[tuple[str, str]]) -> Iterator[importlib.metadata.Distribution]:
    """The installed distribution that is asked for, and all that it asks for in turn."""
    asked = Requirement(requirement)
    found = importlib.metadata.distribution(asked.name)
    for extra in ("", *asked.extras):
        if (asked.name, extra) in seen:
            continue
        seen.add((asked.name, extra))
        yield found
        for text in found.requires or ():
            marker = Requirement(text).marker
            if marker is None or marker.evaluate({"extra": extra}):
                yield from needed_by(text, seen)


def installed(wheel: Path, folder: Path, extra: str = "") -> Path:
    """An environment with the wheel and what it asks for: our own packages, linked. Returns its bin."""
    subprocess.run([*OFFLINE, "venv", "--python", sys.executable, str(folder)], check=True, timeout=60)
    command = [
        *OFFLINE,
        "pip",
        "install",
        "--no-deps",
        "--no-index",
        "--python",
        str(folder / "bin/python"),
        str(wheel),
    ]
    subprocess.run(command, check=True, timeout=60)
    (site,) = folder.glob("lib/python*/site-packages")
    (metadata,) = site.glob("trainer-*.dist-info")
    seen: set[tuple[str, str]] = set()
    for text in importlib.metadata.PathDistribution(metadata).requires or ():
        marker = Requirement(text).marker
        if marker is not None and not marker.evaluate({"extra": extra}):
            continue
        for distribution in needed_by(text, seen):
            for top in {
                file.parts[0] for file in distribution.files or () if file.parts[0] not in ("..", "__pycache__")
            }:
                if not (site / top).exists():
                    (site / top).symlink_to(Path(str(distribution.locate_file(top))))
    return folder / "bin"


@pytest.fixture(scope="module")
def light(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(wheel, tmp_path_factory.mktemp("light") / "venv")


@pytest.fixture(scope="module")
def deploy(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(wheel, tmp_path_factory.mktemp("deploy") / "venv", "deploy")


def trainer(programs: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Outside of the checkout, whose trainer/ would come first."""
    ours = {environment.JOB, environment.SET, "PYTHONPATH", "VIRTUAL_ENV"}
    kept = {name: value for name, value in os.environ.items() if name not in ours}
    return subprocess.run(
        [str(programs / "trainer"), *words], cwd=programs, env={**kept, **environ}, capture_output=True, text=True,
        timeout=60,
    )  # fmt: skip


def test_the_wheel_is_complete(wheel: Path) -> None:
    assert wheel.name == f"trainer-{__version__}-py3-none-any.whl"
    assert f"'dist/{wheel.name}[cpu]'" in how_to_install("cpu")
    sources = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "trainer").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    packed = set(zipfile.ZipFile(wheel).namelist())
    assert {name for name in packed if ".dist-info/" not in name} == sources | {"trainer_launch.py"}
    assert "trainer/py.typed" in packed


def test_alone_it_checks_a_job(light: Path) -> None:
    assert trainer(light, "--version").stdout == f"trainer {__version__}\n"
    checked = trainer(light, "check", str(ROOT / "examples/digits-ps.yaml"))
    assert checked.returncode == Exit.OK, checked.stderr
    assert "worker:1" in checked.stdout


def test_the_command_works_where_pythonpath_holds_a_package_of_its_name(light: Path, tmp_path: Path) -> None:
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer/__init__.py").touch()
    shown = trainer(light, "--version", PYTHONPATH=str(tmp_path))
    assert shown.stdout == f"trainer {__version__}\n", shown.stderr


def test_without_numpy_all_works_that_does_not_train(light: Path, tmp_path: Path) -> None:
    assert importlib.metadata.version("numpy")  # so that only our own metadata keep it out of the environment
    assert not any(light.parent.glob("lib/python*/site-packages/numpy*"))
    commands = (
        ("check", str(ROOT / "examples/mnist-ps.yaml")), ("schema",), ("secret", str(tmp_path / "secret")),
        ("import", str(ROOT / "tests/unit/tfjob/tfjobs/estimator-with-evaluator.yaml")),
    )  # fmt: skip
    for words in commands:
        ended = trainer(light, *words)
        assert ended.returncode == Exit.OK, (words, ended.stderr)
    refused = trainer(light, "check", str(ROOT / "examples/tabular/bikes.yaml"))
    assert (refused.returncode, "numpy" in refused.stderr) == (Exit.USER, True), refused.stderr


def test_without_tensorflow_a_task_fails_with_a_line_that_names_it(light: Path, tmp_path: Path) -> None:
    job = {"name": "j", "strategy": "one_device", "workload": "digits", "model_dir": str(tmp_path)}
    cluster = {"cluster": {"worker": ["127.0.0.1:20000"]}, "task": {"type": "worker", "index": 0}}
    ended = trainer(light, "task", **{environment.JOB: json.dumps(job), "TF_CONFIG": json.dumps(cluster)})
    assert (ended.returncode, ended.stderr) == (
        Exit.USER, f"trainer: tensorflow: is not installed; {how_to_install('cpu')}\n",
    )  # fmt: skip


COMMANDS = ["render compose", "render kubernetes", "submit", "submit --target compose", "status", "delete"]


@pytest.mark.parametrize("command", COMMANDS)
def test_without_the_extra_a_target_names_it(light: Path, command: str) -> None:
    ended = trainer(light, *command.split(), str(ROOT / "examples/digits-ps.yaml"))
    assert (ended.returncode, ended.stderr.count("\n")) == (Exit.USER, 1), ended.stderr
    assert ended.stderr.endswith(f": is not installed; {how_to_install('deploy')}\n")


def test_with_the_extra_it_renders_what_the_checkout_does(deploy: Path) -> None:
    written = (ROOT / "k8s/digits-ps.yaml").read_text()
    rendered = trainer(deploy, "render", "kubernetes", str(ROOT / "examples/digits-ps.yaml"))
    assert rendered.returncode == Exit.OK, rendered.stderr
    assert rendered.stdout.splitlines()[1:] == written.splitlines()[1:]
    composed = trainer(deploy, "render", "compose", str(ROOT / "examples/digits-ps.yaml"))
    assert composed.returncode == Exit.OK, composed.stderr


def test_with_the_extra_it_submits(deploy: Path, tmp_path: Path) -> None:
    """To a cluster that does not answer: all was found, until the connection."""
    config = tmp_path / "config"
    config.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: none\n"
        "contexts: [{name: none, context: {cluster: none, user: none}}]\nusers: [{name: none, user: {}}]\n"
        "clusters: [{name: none, cluster: {server: 'http://127.0.0.1:1'}}]\n"
    )
    submitted = trainer(deploy, "submit", str(ROOT / "examples/digits-ps.yaml"), KUBECONFIG=str(config))
    assert submitted.returncode == Exit.TARGET, submitted.stderr
    assert submitted.stderr.count("\n") == 1, submitted.stderr
    assert "127.0.0.1:1" in submitted.stderr
