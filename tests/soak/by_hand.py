"""A job whose tasks are started one by one, by `trainer task`, as an engine would start their containers.

Nothing restarts a task but `start`. So a task that was started once is one process from the beginning to the end.
"""

from __future__ import annotations

import contextlib
import subprocess
import threading
import time
import uuid
from collections import defaultdict
from pathlib import Path
from typing import Any

from tests.local.tasks import TASK, environment
from tests.tools.harness import Watched, get_json
from trainer.job import environment as names
from trainer.job import load, secret
from trainer.job.cluster import Task, tasks_of
from trainer.job.names import control_port
from trainer.targets.local import ports


class Tasks(Watched):
    """Its tasks run within the context, which ends them."""

    def __init__(self, spec: dict[str, Any], environ: dict[str, str]) -> None:
        self.model_dir = Path(spec["model_dir"])
        self.lines: list[str] = []
        self.codes = defaultdict[str, list[int]](list)
        """Exit codes by task, one for each process of it that has ended."""
        self._spec = load.build(spec)
        self._environ = {**environ, names.SECRET: secret.new(), names.RUN: uuid.uuid4().hex}
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._readers: list[threading.Thread] = []
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Tasks:
        every = [task.name for task in tasks_of(self._spec)]
        self._ports = taken = self._stack.enter_context(ports.reserve(every))
        tasks = tasks_of(self._spec, lambda task_type, index: f"127.0.0.1:{taken[f'{task_type}:{index}']}")
        self._tasks = {task.name: task for task in tasks}
        for name in self._tasks:
            self.start(name)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.kill()
        self._collect()
        self._stack.close()

    @property
    def chief(self) -> Task:
        return next(task for task in self._tasks.values() if task.is_chief)

    @property
    def output(self) -> str:
        return "\n".join(self.lines)

    def start(self, name: str) -> None:
        environ = environment(self._tasks[name], self._spec.model_dump_json(exclude_none=True)) | self._environ
        if self._tasks[name].type == "evaluator":  # TF_CONFIG has no address of it
            environ[names.CONTROL_PORT] = str(control_port(self._ports[name]))
        process = subprocess.Popen(TASK, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environ)
        self._processes[name] = process
        self._readers.append(threading.Thread(target=self._read, args=(name, process), daemon=True))
        self._readers[-1].start()

    def kill(self, name: str) -> None:
        """Kills a task's supervisor. Its child does not outlive it."""
        self._processes[name].kill()
        self.codes[name].append(self._processes[name].wait())

    def status(self) -> dict[str, Any]:
        with contextlib.suppress(OSError, ValueError):
            return get_json(f"http://127.0.0.1:{control_port(self._ports[self.chief.name])}/status")
        return {}

    def over(self) -> bool:
        return self._processes[self.chief.name].poll() is not None

    def wait(self, timeout: float) -> int:
        """The chief's exit code, once all tasks have ended."""
        deadline = time.monotonic() + timeout
        for name, process in self._processes.items():
            self.codes[name].append(process.wait(max(0.0, deadline - time.monotonic())))
        self._collect()
        return self.codes[self.chief.name][-1]

    def _collect(self) -> None:
        for process in self._processes.values():
            process.wait()
        for reader in self._readers:
            reader.join(5)

    def _read(self, name: str, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                self.lines.append(f"{name} | {line.rstrip()}")
