"""A job as a user starts it: `docker compose up` on a real engine, observed through the engine and the chief."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import tarfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import docker
import yaml
from typing_extensions import Self

from tests.tools.harness import TRAINER, Watched
from trainer.job import load
from trainer.job.names import host_name
from trainer.targets.compose import engine

ROOT = Path(__file__).parents[2]
CLIENT = docker.from_env()


class Project(Watched):
    """`trainer render compose SPEC > FILE` and `docker compose up`; nothing is left when the context is left."""

    poll_seconds = 0.2

    def __init__(self, folder: Path, spec: dict[str, Any], *files: dict[str, Any]) -> None:
        """`files` are merged over the rendered one, as with `docker compose --file A --file B`."""
        path = folder / "job.yaml"
        path.write_text(yaml.safe_dump(spec))
        self.spec = load.load_file(path)
        rendered = subprocess.run([*TRAINER, "render", "compose", str(path)], check=True, stdout=subprocess.PIPE)
        texts = [rendered.stdout.decode(), *map(yaml.safe_dump, files)]
        self._words = ["docker", "compose", "--project-directory", str(folder)]
        for i, text in enumerate(texts):
            file = folder / f"compose-{i}.yml"
            file.write_text(text)
            self._words += ["--file", str(file)]
        self.lines: list[str] = []
        self._seen = 0
        self._up: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        # What a run that was killed may have left.
        self.compose("down", "--volumes", "--timeout", "0")
        self.up()
        return self

    def __exit__(self, *_: object) -> None:
        self.compose("down", "--volumes", "--timeout", "2")
        if self._up is not None:
            self.wait()

    def compose(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self._words, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120
        )

    def up(self) -> None:
        self._up = subprocess.Popen([*self._words, "up"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self._reader = threading.Thread(target=self._read, args=[self._up], daemon=True)
        self._reader.start()

    def wait(self, timeout: float = 180) -> int:
        """The exit code of `docker compose up`, once everything it printed was read."""
        assert self._up is not None
        try:
            code = self._up.wait(timeout)
        except subprocess.TimeoutExpired:
            self._up.kill()
            raise AssertionError(f"`docker compose up` did not end within {timeout:g} s\n{self.output}") from None
        self._reader.join(10)
        if self._up.stdout is not None:
            self._up.stdout.close()
        return code

    @property
    def output(self) -> str:
        return "\n".join(self.lines)

    def until_printed(self, pattern: str, timeout: float = 120) -> str:
        """The next line with this pattern, after the one that the last call has found."""
        deadline = time.monotonic() + timeout
        while True:
            while self._seen < len(self.lines):
                self._seen += 1
                if re.search(pattern, line := self.lines[self._seen - 1]):
                    return line
            assert not self.over(), f"the job ended before: {pattern}\n{self.output}"
            assert time.monotonic() < deadline, f"not printed within {timeout:g} s: {pattern}\n{self.output}"
            time.sleep(0.05)

    def container(self, task: str) -> Any:
        task_type, _, index = task.partition(":")
        host = host_name(self.spec.name, task_type, int(index))
        return CLIENT.containers.get(f"{self.spec.name}-{host}-1")

    def kill(self, task: str) -> None:
        """SIGKILL to process 1 of a task's container, from outside. `docker kill` is a wish to stop: no restart."""
        os.kill(self.container(task).attrs["State"]["Pid"], signal.SIGKILL)

    def exit_codes(self, timeout: float = 60) -> dict[str, int]:
        """Of all tasks, once their containers have ended: `docker compose up` may end before the last one."""
        deadline = time.monotonic() + timeout
        while True:
            rows = engine.status(self.spec).tasks
            if all(row.state == "exited" for row in rows.values()):
                return {name: row.code for name, row in rows.items()}
            assert time.monotonic() < deadline, rows
            time.sleep(0.2)

    def status(self) -> dict[str, Any]:
        with contextlib.suppress(Exception):
            return self.result()
        return {}

    def over(self) -> bool:
        return self._up is not None and self._up.poll() is not None

    def result(self) -> dict[str, Any]:
        """result.json, or while there is none the chief's /status."""
        job = engine.status(self.spec).job
        assert job is not None
        return dict(json.loads(json.dumps(job.document())))

    def file(self, name: str) -> str:
        """Text of a file in model_dir."""
        return file_of(self.container(self.chief).name, f"{self.spec.name}/{name}")

    @property
    def chief(self) -> str:
        return "chief:0" if self.spec.tasks.chief else "worker:0"

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.lines.append(line.rstrip("\n"))


class Submitted(Project):
    """The same by `trainer submit --target compose`."""

    def __init__(self, folder: Path, spec: dict[str, Any]) -> None:
        super().__init__(folder, spec)
        self.words = ("--target", "compose", str(folder / "job.yaml"))

    def up(self) -> None:
        ended = trainer("submit", *self.words)
        assert ended.returncode == 0, ended.stderr

    def over(self) -> bool:
        return engine.status(self.spec).over

    @property
    def output(self) -> str:
        return trainer("logs", *self.words).stdout


def file_of(container: str, path: str) -> str:
    """Text of a file under the folder of all runs in a container, which may have ended."""
    source = f"{container}:/workspace/runs/{path}"
    archive = subprocess.run(["docker", "cp", source, "-"], check=True, capture_output=True, timeout=60).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        file = tar.extractfile(tar.next())  # type: ignore[arg-type]
        assert file is not None
        return file.read().decode()


def left_of(project: str) -> list[str]:
    """Names of containers, networks and volumes of a compose project."""
    label: dict[str, Any] = {"label": f"com.docker.compose.project={project}"}
    kinds: list[Any] = [CLIENT.networks, CLIENT.volumes]
    found = CLIENT.containers.list(all=True, filters=label) + [
        each for kind in kinds for each in kind.list(filters=label)
    ]
    return [each.name for each in found]


def run_in(container: Any, program: str) -> tuple[int, str]:
    """Exit code and output of a Python program in a running container."""
    code, output = container.exec_run(["python3", "-c", program])
    return code, output.decode()


def trainer(*words: str, environ: dict[str, str] | None = None, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*TRAINER, *words], capture_output=True, text=True, timeout=120, cwd=cwd, env={**os.environ, **(environ or {})}
    )


def root_compose(*words: str, environ: dict[str, str] | None = None, files: Sequence[str] = ()) -> Any:
    """`docker compose` in the root of the checkout."""
    command = ["docker", "compose", *(word for file in files for word in ("--file", file)), *words]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, **(environ or {})},
    )  # fmt: skip
