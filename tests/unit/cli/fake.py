"""A target that runs nothing: it records its calls and returns plausible replies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from trainer.debug.archive import Archive
from trainer.debug.evidence import Evidence
from trainer.job.errors import Exit, TrainerError
from trainer.job.spec import JobSpec
from trainer.model_dir.stacks import Frame, Group, Stacks
from trainer.protocol.status import JobStatus, TaskRow
from trainer.targets.base import ContainerState, Deleted, Job, JobOverview, Listed, LogLine, Page, Submitted, Target
from trainer.targets.tunnel import Tunnel

ASKED: list[Any] = []
"""(method, arguments...) of each call, in their order."""
TUNNELS: list[Tunnel] = []
"""To the next pages."""
PHASES: list[str] = []
"""Those of the next answers to `status`; then the job is done."""
STATUS = JobStatus(
    job="j", task="chief:0", strategy="multi_worker_mirrored", phase="running", generation=1, restarts=0, standby=False,
    step=5, steps=2000, last_checkpoint=None, waiting_for=None, seconds=3.5, events=[],
    tasks={"worker:0": TaskRow(state="running", restarts=1, step=4)}, end=None,
)  # fmt: skip
"""The chief's, at any time."""


_HERE = [Frame("mine.py", 7, "read", True), Frame("threading.py", 982, "run", False)]
STACKS = Stacks(
    1.5e9, "worker:1 is at mine.py:7 read(); the others wait for it in step 12",
    [Group(["worker:1"], "", "in step 12", [_HERE]), Group(["chief:0", "worker:0"], "", "in step 12", [])],
)  # fmt: skip
"""Of all tasks, at any time."""


@dataclass(frozen=True)
class Fake:
    namespace: str | None = None

    def check(self, spec: JobSpec) -> None:
        ASKED.append(("check", spec))
        if spec.name == "refused":
            raise TrainerError("name: 'refused': is no name for a job here", Exit.TARGET)

    def warnings(self, spec: JobSpec) -> list[str]:
        return []

    def render(self, jobs: Sequence[tuple[str, JobSpec]], command: str) -> str:
        ASKED.append(("render", *jobs))
        return f"# {command}\n"

    def submit(self, spec: JobSpec, command: str, dry_run: bool = False) -> Submitted:
        ASKED.append(("submit", spec, command, dry_run))
        return Submitted(spec.name, ["job/one", "job/two"], namespace=self.namespace)

    def jobs(self) -> Sequence[Listed]:
        return [Listed("j", "active", "2026-01-02T03:04:05Z")]

    def status(self, job: Job) -> JobOverview:
        ASKED.append(("status", job))
        phase = PHASES.pop(0) if PHASES else "done"
        tasks = {
            "chief:0": ContainerState("running", restarts=2),
            "worker:0": ContainerState("pending", reason="no node"),
        }
        code = int(Exit.DIVERGED) if phase == "failed" else 0
        return JobOverview(job.name, phase, code, last_line="done: steps=5", tasks=tasks, job=STATUS)

    def stacks(self, job: Job) -> Stacks:
        ASKED.append(("stacks", job))
        return STACKS

    def logs(self, job: Job, task: str | None = None, follow: bool = False) -> Iterator[LogLine]:
        ASKED.append(("logs", job, task, follow))
        yield LogLine("chief:0", "step 1")
        yield LogLine("evaluator:0", "scored | 1")

    def delete(self, job: Job, volumes: bool = False) -> Deleted:
        ASKED.append(("delete", job, volumes))
        return Deleted(job.name, volume_stays=not volumes)

    def page(self, job: Job, say: Callable[[str], None]) -> Page:
        ASKED.append(("page", job))
        say("waiting for the chief: chief:0 is pending")
        return Page(tunnel=TUNNELS.pop())

    def debug(self, job: Job, archive: Archive) -> Evidence:
        ASKED.append(("debug", job))
        return Evidence(
            job.name, "nowhere", "failed", int(Exit.DIVERGED), "trainer: worker:0: the loss is nan at step 5"
        )


KEPT: type[Target] = Fake
"""mypy proves by it that this is a target."""
