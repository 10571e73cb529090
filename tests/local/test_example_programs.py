"""The programs of examples/programs as jobs: each task type is killed once; steps and losses are as without it."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.tools.harness import Job

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "examples" / "programs"
TF_KERAS, TF215 = ROOT / ".venv-peers" / "tf_keras", ROOT / ".venv-tf215" / "bin" / "python"
DIGITS = ROOT / "trainer" / "workloads" / "data" / "digits.npz"


def job(folder: Path, name: str, *words: str, **more: Any) -> Job:
    spec = yaml.safe_load((PROGRAMS / f"{name}.yaml").read_text())
    program = [*spec["program"], f"--data={DIGITS}", *words]
    return Job(folder, {**spec, "program": program, "code": str(PROGRAMS), **more})


LOST, RESTARTED = "{} lost (killed by SIGKILL)", "{} was killed by signal 9 (SIGKILL), restarting it"


def kill_after(job: Job, progress: str, *tasks: str, which: str = "child_pid", printed: str = LOST) -> None:
    """Kills one task's program after another, each as soon as the program printed that line once more; with
    which="pid" their supervisors."""
    for task in tasks:
        known = len(job.lines)
        deadline = time.monotonic() + 150
        while not any(re.search(progress, line) for line in job.lines[known:]):
            assert not job.over(), job.output
            assert time.monotonic() < deadline, job.output
            time.sleep(0.01)
        job.signal(task, which)
        job.until_printed(printed.format(task))


def done(job: Job, *generations: int) -> tuple[int, float]:
    """The steps and the accuracy that the chief printed at its end."""
    assert job.wait(240) == 0, job.output
    assert job.result()["generations"] in generations, job.output
    found = re.findall(r"steps (\d+), .*test accuracy (\d\.\d+)", job.output)
    assert len(set(found)) == 1, job.output
    return int(found[0][0]), float(found[0][1])


@pytest.mark.slow
@pytest.mark.part("programs")
@pytest.mark.parametrize(
    ("python", "environ"),
    [
        pytest.param(
            "python",
            {"TF_USE_LEGACY_KERAS": "1", "PYTHONPATH": str(TF_KERAS)},
            marks=pytest.mark.skipif(not TF_KERAS.exists(), reason="make programs-setup installs tf_keras"),
        ),
        pytest.param(
            str(TF215),
            {"PYTHONPATH": ""},
            marks=pytest.mark.skipif(not TF215.exists(), reason="make programs-setup installs TensorFlow 2.15"),
        ),
    ],
    ids=["tf_keras", "tensorflow-2.15"],
)
def test_keras_fit_with_backups(tmp_path: Path, python: str, environ: dict[str, str]) -> None:
    words = ["--epochs=6", "--steps_per_epoch=40", "--batch_size=32"]
    more = {"env": environ, "tasks": {"chief": 1, "worker": 1}, **({} if python == "python" else {"python": python})}
    with job(tmp_path, "multi-worker-fit", *words, **more) as broken:
        kill_after(broken, r"chief:0 .*Epoch [345]/6", "worker:0")
        kill_after(broken, r"chief:0 .*Epoch [56]/6", "chief:0")
        steps, accuracy = done(broken, 3)
    assert steps == 6 * 40
    assert accuracy > 0.9
    epochs = re.findall(r"chief:0 .*Epoch (\d)/6", broken.output)
    assert epochs[-1] == "6"
    assert epochs.count("1") == 1, "it resumed at an epoch"


@pytest.mark.slow
def test_a_loop_with_checkpoints_of_its_own(tmp_path: Path) -> None:
    words = ["--epochs=4", "--steps_per_epoch=60", "--checkpoint_steps=25", "--batch_size=32"]
    with job(tmp_path, "custom-loop", *words) as broken:
        kill_after(broken, r"worker:0 .*step (?:[4-9]0|1\d0) of", "worker:1")
        kill_after(broken, r"worker:0 .*step \d+0 of", "worker:0")
        steps, accuracy = done(broken, 3)
    assert steps == 4 * 60
    assert accuracy > 0.9
    assert len(re.findall(r"restored ckpt-\d+, step [1-9]", broken.output)) == 2 * 2, "both workers, twice"
    losses: dict[str, set[str]] = {}
    for step, loss in re.findall(r"worker:0 .*step (\d+) of 240, loss (\S+)", broken.output):
        losses.setdefault(step, set()).add(loss)
    assert sorted(map(int, losses)) == list(range(10, 241, 10))
    assert all(len(values) == 1 for values in losses.values()), f"repeated steps have other losses: {losses}"


@pytest.mark.slow
def test_a_coordinator_with_servers(tmp_path: Path) -> None:
    with job(tmp_path, "coordinator", "--steps=1500") as broken:
        kill_after(broken, r"chief:0 .*step \d+ of", "worker:1", "ps:0", "chief:0")
        steps, accuracy = done(broken, 3)
    assert steps == 1500
    assert len(re.findall(r"restored ckpt-\d+, step [1-9]", broken.output)) == 2
    assert accuracy > 0.9


@pytest.mark.slow
def test_a_coordinator_with_servers_whose_supervisors_die(tmp_path: Path) -> None:
    """The kernel closes the port of TensorFlow's server some time after its process has become a zombie."""
    with job(tmp_path, "coordinator", "--steps=1500") as broken:
        tasks = ("worker:1", "ps:0", "chief:0")
        kill_after(broken, r"chief:0 .*step \d+ of", *tasks, which="pid", printed=RESTARTED)
        # The chief may be killed before the ps is back.
        steps, accuracy = done(broken, 2, 3)
    assert steps == 1500
    assert accuracy > 0.9


@pytest.mark.slow
def test_a_script_with_flags_in_place_of_tf_config(tmp_path: Path) -> None:
    with job(tmp_path, "flags", "--steps=500") as old:
        assert old.wait(240) == 0, old.output
    assert re.search(r"worker:0 .*Saving checkpoints for 50\d into", old.output), old.output
    assert re.search(r"ps:0 .*ps 0 of ps [\w.]+:\d+, workers [\w.]+:\d+,[\w.]+:\d+\n", old.output), old.output


@pytest.mark.slow
def test_between_graph_replication(tmp_path: Path) -> None:
    with job(tmp_path, "between-graph", "--steps=4000", "--checkpoint_steps=200") as broken:
        kill_after(broken, r"worker:0 .*step \d+ of", "worker:2", "ps:0", "worker:0")
        steps, accuracy = done(broken, 3)
    assert 4000 <= steps <= 4000 + 3, "each worker may do one more"
    assert accuracy > 0.9
