"""A job as a user starts it: `trainer local` and its tasks as real processes, watched through /status."""

from __future__ import annotations

import contextlib
import csv
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from trainer.model_dir import layout

TRAINER = [sys.executable, "-m", "trainer"]


class Watched:
    """A running job. Subclasses define how its status is queried, and whether it can still answer."""

    poll_seconds = 0.05

    def status(self) -> dict[str, Any]:
        """The chief's /status; empty while it cannot be asked."""
        raise NotImplementedError

    @property
    def output(self) -> str:
        """All that it printed so far."""
        raise NotImplementedError

    def over(self) -> bool:
        raise NotImplementedError

    def until(self, what: str, reached: Callable[[dict[str, Any]], Any], timeout: float = 120) -> dict[str, Any]:
        """The first status for which `reached` holds; fails with the output if the job ends or time is up."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            status = self.status()
            if status and reached(status):
                return status
            assert not self.over(), f"the job ended before: {what}\n{self.output}"
            time.sleep(self.poll_seconds)
        raise AssertionError(f"not within {timeout:g} s: {what}; status {self.status()}\n{self.output}")

    def until_step(self, step: int) -> dict[str, Any]:
        return self.until(f"step {step}", lambda s: (s.get("step") or 0) >= step)

    def child_pid(self, task: str) -> int:
        """Of a task's child, once the chief knows it."""
        found = self.until(f"the child of {task}", lambda s: s.get("tasks", {}).get(task, {}).get("child_pid"))
        return int(found["tasks"][task]["child_pid"])

    def until_formed_again(self, generation: int) -> dict[str, Any]:
        """Until a later generation makes steps."""
        return self.until(
            f"a generation after {generation}",
            lambda s: s["generation"] > generation and s["figures"].get("loss") is not None,
        )


class Job(Watched):
    """One `trainer local`. Ends with its processes when the context is left."""

    def __init__(self, folder: Path, spec: dict[str, Any], *sets: str, environ: dict[str, str] | None = None) -> None:
        self.model_dir = Path(spec.get("model_dir") or folder / "run")
        self.spec_path = folder / "job.yaml"
        self.spec_path.write_text(yaml.safe_dump({"model_dir": str(self.model_dir), **spec}))
        self.lines: list[str] = []
        self._port: int | None = None
        self._sets = [word for s in sets for word in ("--set", s)]
        self._environ = {**os.environ, **(environ or {})}

    def __enter__(self) -> Job:
        command = [*TRAINER, "local", str(self.spec_path), "--plain", *self._sets]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=self._environ
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(15)
        self.process.kill()
        self.process.wait()
        self._reader.join(5)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def wait(self, timeout: float = 120) -> int:
        """The exit code, once everything it printed was read."""
        code = self.process.wait(timeout)
        self._reader.join(10)
        return code

    @property
    def output(self) -> str:
        return "\n".join(self.lines)

    def result(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(layout.result(self.model_dir).read_text())
        return value

    def status(self) -> dict[str, Any]:
        if self._port is None:
            path = layout.state(self.model_dir)
            with contextlib.suppress(OSError, ValueError):
                self._port = json.loads(path.read_text()).get("control_port")
        if self._port is None:
            return {}
        with contextlib.suppress(OSError, ValueError):
            return get_json(f"http://127.0.0.1:{self._port}/status")
        return {}

    def over(self) -> bool:
        return self.process.poll() is not None

    def until_printed(self, text: str, timeout: float = 120) -> None:
        deadline = time.monotonic() + timeout
        while not any(text in line for line in self.lines):
            assert time.monotonic() < deadline, f"not printed within {timeout:g} s: {text}\n{self.output}"
            time.sleep(0.01)

    def pid(self, task: str, which: str = "child_pid") -> int:
        """Of a task's child, or with which="pid" of its supervisor."""
        status = self.until(f"{task} runs", lambda s: s["tasks"][task].get(which) and s["tasks"][task]["generation"])
        pid: int = status["tasks"][task][which]
        return pid

    def signal(self, task: str, which: str = "child_pid", number: signal.Signals = signal.SIGKILL) -> None:
        os.kill(self.pid(task, which), number)

    def try_signal(self, task: str, which: str) -> bool:
        """SIGKILL to whatever is there now; False if nothing is."""
        pid = self.status().get("tasks", {}).get(task, {}).get(which)
        with contextlib.suppress(OSError):
            if pid:
                os.kill(pid, signal.SIGKILL)
                return True
        return False

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))


def assert_same_curve(one: str, other: str, steps: int) -> None:
    """Two metrics.jsonl have the same steps, and the same losses within what the order of a sum makes of floats."""
    curves = [[json.loads(line) for line in text.splitlines()] for text in (one, other)]
    assert [row["step"] for row in curves[0]] == [row["step"] for row in curves[1]] == list(range(5, steps + 1, 5))
    for here, there in zip(*curves, strict=True):
        assert math.isclose(here["step_loss"], there["step_loss"], rel_tol=1e-3), (here, there)


def saved_values(model_dir: Path, step: int) -> dict[str, Any]:
    """The arrays of a checkpoint."""
    with np.load(model_dir / "checkpoints" / f"step-{step:08d}" / "variables.npz") as archive:
        return {name: archive[name] for name in archive.files}


def csv_rows(path: Path) -> list[dict[str, float]]:
    """The lines of a file of CSVLogger."""
    return [
        {name: float(value) for name, value in row.items()} for row in csv.DictReader(path.read_text().splitlines())
    ]


def get_json(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(url, timeout=5) as response:
        value: dict[str, Any] = json.load(response)
        return value


def gpus() -> int:
    """The NVIDIA GPUs of this machine."""
    if not shutil.which("nvidia-smi"):
        return 0
    listed = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, check=False)
    return len(listed.stdout.splitlines()) if listed.returncode == 0 else 0


def alive(pid: int) -> bool:
    """Whether there is such a process; a zombie is none."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@contextlib.contextmanager
def processes(commands: list[tuple[list[str], dict[str, str]]]) -> Iterator[list[subprocess.Popen[str]]]:
    """Several commands at once, each with its environment; killed when the context is left."""
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environ)
        for command, environ in commands
    ]
    try:
        yield running
    finally:
        for process in running:
            process.kill()
            process.communicate()
