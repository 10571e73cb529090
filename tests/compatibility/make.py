"""Runs small jobs with one version of trainer and keeps their files: see README.md."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
SECONDS = 120.0
"""Until a job has reached what it is asked for."""
_TRAINED = {
    "workload": "model.py",
    "train": {
        "steps": 40, "steps_per_epoch": 10, "steps_per_call": 5, "checkpoint_steps": 10, "log_steps": 5,
        "keep_checkpoints": 2, "batch_size": 32, "seed": 7,
    },
    "check_exports": False,
    "warm_standby": False,
}  # fmt: skip
_MIRRORED = {
    "strategy": "multi_worker_mirrored",
    "tasks": {"worker": 2, "evaluator": 1},
    "keep_best": {"metric": "accuracy"},
    **_TRAINED,
}
_SERVER = {"strategy": "parameter_server", "tasks": {"ps": 1, "worker": 2}, **_TRAINED}
JOBS: dict[str, dict[str, Any]] = {
    "mirrored": _MIRRORED,
    "stopped": _MIRRORED,
    "server": _SERVER,
    "killed": _SERVER,
    "program": {
        "strategy": "parameter_server",
        "tasks": {"chief": 1, "ps": 1, "worker": 1},
        "program": ["python", "program.py"],
        "code": ["program.py"],
    },
}
WORKLOADS = ("model.py", "program.py")
STEP = 26
"""In the middle of the jobs that are stopped and killed."""
_LEFT_OUT = ("tensorboard", "export", "*-[0-9].log")
"""Large, and read by other programs: TensorFlow's output too."""


class Run:
    """One `trainer local`."""

    def __init__(self, command: Path, folder: Path, name: str) -> None:
        self.model_dir = folder / "runs" / name
        spec = {"name": name, "model_dir": f"runs/{name}", **JOBS[name]}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
        with (folder / f"{name}.txt").open("w") as output:
            self.process = subprocess.Popen(
                [command, "local", f"{name}.yaml", "--plain"], cwd=folder, stdout=output, stderr=output
            )
        print(f"{name} has started", flush=True)

    def until_step(self, step: int) -> dict[str, Any]:
        """The first status of the chief with at least this step."""
        return self._until(lambda status: (status.get("step") or 0) >= step and bool(status.get("tasks")))

    def _until(self, reached: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            with contextlib.suppress(OSError, ValueError, KeyError):
                port = json.loads((self.model_dir / ".trainer/state.json").read_text())["control_port"]
                if reached(status := _get(port)):
                    return status
            time.sleep(0.02)
        raise SystemExit(f"{self.model_dir.name}: the job has not come so far")

    def end(self, code: int) -> None:
        if (ended := self.process.wait(SECONDS)) != code:
            raise SystemExit(f"{self.model_dir.name}: ended with exit code {ended}, not {code}")

    def kill(self) -> None:
        """SIGKILL to all processes of the job, its launcher first."""
        pids = _with_descendants(self.process.pid)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


def _get(port: int) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=5) as response:
        value: dict[str, Any] = json.load(response)
        return value


def _with_descendants(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(each for child in children for each in _with_descendants(int(child)))]


def _port_of(pid: int) -> int:
    """The control port of the task whose supervisor this is."""
    environ = dict(
        pair.split("=", 1) for pair in Path(f"/proc/{pid}/environ").read_text().split("\0") if "TF_CONFIG=" in pair
    )
    config = json.loads(environ["TF_CONFIG"])
    address = config["cluster"][config["task"]["type"]][config["task"]["index"]]
    return int(address.rpartition(":")[2]) + 1000


def _save_statuses(run: Run, step: int, target: Path) -> None:
    """The chief's answer and that of its last worker, once both have figures."""
    chief = run.until_step(step)
    worker = max(name for name in chief["tasks"] if name.startswith("worker"))
    target.mkdir(parents=True, exist_ok=True)
    answers = {"chief": chief, "worker": _get(_port_of(chief["tasks"][worker]["pid"]))}
    for name, answer in answers.items():
        (target / f"{run.model_dir.name}-{name}.json").write_text(json.dumps(answer, indent=1) + "\n")


def make(command: Path, work: Path, target: Path) -> None:
    for name in WORKLOADS:
        shutil.copy(HERE / name, work)
    for name in ("mirrored", "server"):
        Run(command, work, name).end(0)
    stopped = Run(command, work, "stopped")
    _save_statuses(stopped, STEP, target / "status")
    stopped.process.send_signal(signal.SIGTERM)
    stopped.end(143)
    killed = Run(command, work, "killed")
    killed.until_step(STEP)
    killed.kill()
    program = Run(command, work, "program")
    _save_statuses(program, STEP, target / "status")
    program.end(0)
    shutil.copytree(HERE / "specs", work / "specs")
    (target / "specs").mkdir()
    for spec in sorted((work / "specs").glob("*.yaml")):
        read = [str(command.with_name("python")), "-c", _READ, f"specs/{spec.name}"]
        shutil.copy(spec, target / "specs")
        (target / "specs" / f"{spec.stem}.json").write_text(_printed(read, work))
    report = _printed([str(command.with_name("python")), "-c", _REPORT], work)
    (target / "status" / "report.json").write_text(report)
    for name in JOBS:
        shutil.copytree(work / "runs" / name, target / name, ignore=shutil.ignore_patterns(*_LEFT_OUT))
        shutil.copy(work / f"{name}.yaml", target / name / "job.yaml")
    for name in WORKLOADS:  # a checkpoint knows the digest
        shutil.copy(HERE / name, target)


_READ = """
import json, sys
from trainer.job.load import load_file
print(json.dumps(load_file(sys.argv[1], environ={}).model_dump(mode="json"), indent=1))
"""
"""Prints a spec as that version reads it."""


_REPORT = """
from trainer import host
from trainer.protocol.reports import Report, question
failure = (15, "worker:1: no new step")
report = Report("worker:1", "a1", "b2", "c3", "d4", host.versions(), failure=failure, status={"loss": 0.5})
print(question(report, 7).decode())
"""
"""Prints a report to a chief."""


def _printed(command: list[str], folder: Path) -> str:
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


def without_names_of_this_machine(folder: Path, names: dict[str, str]) -> None:
    for path in folder.rglob("*"):
        if path.is_file() and path.suffix != ".npz":
            text = path.read_text()
            for name, other in names.items():
                text = text.replace(name, other)
            path.write_text(text)


def main() -> None:
    command, target = Path(sys.argv[1]).absolute(), Path(sys.argv[2])
    shutil.rmtree(target, ignore_errors=True)
    with tempfile.TemporaryDirectory() as work:
        make(command, Path(work), target)
        names = {work: "/jobs", str(command.parent): "/bin", socket.gethostname(): "machine"}
        without_names_of_this_machine(target, names)


if __name__ == "__main__":
    main()
