"""A cell's job in containers: `docker compose up`, observed through folders of this machine that they mount."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from docker.errors import APIError

from tests.compose.project import CLIENT, Project
from tests.failures import memory
from tests.failures.cells import Cell
from tests.failures.disk import empty, fill, small
from tests.failures.files import Files
from tests.failures.jobs import spec_of
from tests.failures.run import Fault
from trainer.job.cluster import tasks_of
from trainer.job.load import build
from trainer.job.names import host_name

COUNTS = "/counts"


class ComposeJob:
    """One job, which may be started again."""

    def __init__(self, folder: Path, strategy: str, cell: Cell | None) -> None:
        self._folder, self._runs = folder, folder / "runs"
        self.files = Files(folder / "counts", self._runs / "failures")
        for path in (self.files.counts, self._runs):
            path.mkdir(parents=True)
            path.chmod(0o777)  # of the containers' user too
        spec = spec_of("compose", strategy, COUNTS, cell)
        mounts = {"volumes": [f"{self.files.counts}:{COUNTS}", f"{self._runs}:/workspace/runs"]}
        hosts = [host_name(spec["name"], task.type, task.index) for task in tasks_of(build(spec))]
        self._project = Project(folder, spec, {"services": dict.fromkeys([*hosts, spec["name"]], mounts)})
        self._small = cell is not None and cell.fault == "disk"
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> ComposeJob:
        if self._small:
            self._stack.enter_context(small(self._runs))
        self._stack.enter_context(self._project)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def output(self) -> str:
        return self._project.output

    def over(self) -> bool:
        return self._project.over()

    def wait(self, timeout: float) -> int:
        """The exit code of the chief's container, which is the job's."""
        self._project.wait(timeout)
        return self._project.exit_codes()[self._project.chief]

    def again(self) -> None:
        self._project.up()

    def aim(self, cell: Cell) -> Fault:
        if cell.fault == "stop all":
            return Fault(lambda: self._project.compose("stop"))
        if cell.fault == "disk":
            return Fault(lambda: fill(self._runs), lambda: empty(self._runs))
        container = self._project.container(cell.victim)
        if cell.fault == "freeze":
            return Fault(container.pause, lambda: _if_it_is_there(container.unpause))
        if cell.fault == "cut":
            return _cut(container)
        if cell.fault == "memory":
            child = self._project.child_pid(cell.victim)
            command = ["python3", "-c", Path(memory.__file__).read_text(), str(child)]
            return Fault(lambda: _run_in(container, command))
        number = {"kill": signal.SIGKILL, "stop": signal.SIGTERM}[cell.fault]
        pid = container.attrs["State"]["Pid"]
        return Fault(lambda: os.kill(pid, number))


start = ComposeJob


def _run_in(container: Any, command: list[str]) -> None:
    code, output = container.exec_run(command)
    assert code == 0, output.decode()


def _cut(container: Any) -> Fault:
    """Takes a container from its job's network, and brings it back with the same names."""
    ((name, network),) = container.attrs["NetworkSettings"]["Networks"].items()
    found = CLIENT.networks.get(name)

    def connect() -> None:
        _if_it_is_there(lambda: found.connect(container, aliases=network["Aliases"]))

    return Fault(lambda: found.disconnect(container), connect)


def _if_it_is_there(act: Callable[[], object]) -> None:
    """The job may have ended without it."""
    with contextlib.suppress(APIError):
        act()
