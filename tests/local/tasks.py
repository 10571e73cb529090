"""Single tasks, each with an environment as a container would give it."""

from __future__ import annotations

from tests.harness import TRAINER, processes

TASK = [*TRAINER, "task"]


def run_tasks(environs: list[dict[str, str]], timeout: float = 60) -> list[tuple[int, str]]:
    """Runs `trainer task` with each environment to the end; gives exit codes and outputs."""
    with processes([(TASK, environ) for environ in environs]) as running:
        outputs = [process.communicate(timeout=timeout)[0] for process in running]
        return [(process.returncode, output) for process, output in zip(running, outputs, strict=True)]


def errors(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith("trainer: ")]
