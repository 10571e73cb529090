"""The `trainer local` commands of README and docs, verbatim, with fewer steps; and the model in the README."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.local.specs import PACED, parameter_server
from tests.tools.documents import ROOT, blocks, commands
from tests.tools.harness import Job
from trainer.model_dir import layout


def run(folder: Path, words: list[str]) -> None:
    """Runs `trainer local SPEC` with fewer steps."""
    fewer = ["--set", f"model_dir={folder}/run"]
    is_program = "examples/programs/" in words[2]
    fewer += [] if is_program else ["--set", "train.steps=20"]
    command = [sys.executable, "-m", "trainer", *words[1:], *fewer]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    result = json.loads(layout.result(folder / "run").read_text())
    assert result.get("steps") == (0 if is_program else None if result["strategy"] == "graph" else 20)


@pytest.mark.slow
@pytest.mark.parametrize("words", [w for w in commands("trainer") if w[1] == "local"], ids=" ".join)
def test_the_job_runs(tmp_path: Path, words: list[str]) -> None:
    run(tmp_path, words)


def test_the_first_job_of_the_readme_is_that_of_make_demo_and_runs(tmp_path: Path) -> None:
    (words,) = commands(".venv/bin/trainer", "README.md")
    assert f"$(BIN)/trainer {shlex.join(words[1:])}\n" in (ROOT / "Makefile").read_text()
    run(tmp_path, words)


@pytest.mark.slow
def test_a_running_job_is_asked_from_another_terminal(tmp_path: Path) -> None:
    (words,) = [words for words in commands("trainer", "docs/operating.md") if "--watch" in words]
    url = next(words[1] for words in commands("curl", "docs/operating.md"))
    with Job(tmp_path, parameter_server(steps=2000, workload=PACED)) as job:
        job.until_step(10)
        page, command = (
            next(line.removeprefix(begin) for line in job.lines if line.startswith(begin))
            for begin in ("local | page: ", "local | status: ")
        )
        assert shlex.split(command)[-2:] == ["status", str(job.model_dir)]
        assert re.sub(r":\d+/", ":11000/", f"{page}status") == url.replace("127.0.0.1", "localhost")
        words[words.index("runs/mnist-ps")] = str(job.model_dir)
        ended = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, timeout=200)
        assert job.wait() == 0, job.output
    assert ended.returncode == 0, ended.stderr
    phases = [line.split()[1] for line in ended.stdout.splitlines() if line.startswith("phase ")]
    assert phases[0] == "running"
    assert phases[-1] == "done"


def test_the_model_in_the_readme_trains(tmp_path: Path) -> None:
    (text,) = [each for each in blocks("python", "README.md") if "def model" in each]
    (tmp_path / "model.py").write_text(text)
    train = {"steps": 200, "batch_size": 64, "learning_rate": 0.01}
    spec = {"name": "own", "strategy": "one_device", "workload": str(tmp_path / "model.py"), "train": train}
    with Job(tmp_path, spec) as job:
        assert job.wait() == 0, job.output
    assert job.result()["test_accuracy"] > 0.9
