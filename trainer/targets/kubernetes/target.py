"""Kubernetes as a target. Methods import the client only if they need it; rendering does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from trainer.debug.archive import Archive
from trainer.debug.evidence import Evidence
from trainer.job.spec import JobSpec
from trainer.model_dir.stacks import Stacks
from trainer.targets.base import Deleted, Job, JobOverview, Listed, LogLine, Page, Submitted
from trainer.targets.kubernetes import render
from trainer.targets.page import behind


@dataclass(frozen=True)
class Kubernetes:
    """The cluster of the current kubectl context, or the one around this pod."""

    namespace: str | None = None
    """The namespace of all jobs; default: that of the context."""

    def check(self, spec: JobSpec) -> None:
        render.render(spec, "trainer check")

    def warnings(self, spec: JobSpec) -> list[str]:
        return render.warnings(spec)

    def render(self, jobs: Sequence[tuple[str, JobSpec]], command: str) -> str:
        return "".join(render.render(spec, command) for _, spec in jobs)

    def submit(self, spec: JobSpec, command: str, dry_run: bool = False) -> Submitted:
        from trainer.targets.kubernetes import lifecycle, loop

        return loop.run(lifecycle.submit(spec, self.namespace, command, dry_run))

    def jobs(self) -> Sequence[Listed]:
        from trainer.targets.kubernetes import loop, status

        return loop.run(status.jobs(self.namespace))

    def status(self, job: Job) -> JobOverview:
        from trainer.targets.kubernetes import loop, status

        return loop.run(status.status(job.name, self.namespace))

    def stacks(self, job: Job) -> Stacks:
        from trainer.targets.kubernetes import loop, status

        return loop.run(status.stacks(job.name, self.namespace))

    def logs(self, job: Job, task: str | None = None, follow: bool = False) -> Iterator[LogLine]:
        from trainer.targets.kubernetes import logs, loop

        return loop.each(logs.logs(job.name, self.namespace, task, follow))

    def delete(self, job: Job, volumes: bool = False) -> Deleted:
        from trainer.targets.kubernetes import lifecycle, loop

        return loop.run(lifecycle.delete(job.name, self.namespace, volumes))

    def page(self, job: Job, say: Callable[[str], None]) -> Page:
        from trainer.targets.kubernetes import forward

        return behind(forward.tunnel(job.name, self.namespace), lambda: self.status(job), say)

    def debug(self, job: Job, archive: Archive) -> Evidence:
        from trainer.targets.kubernetes import evidence, loop

        return loop.run(evidence.collect(archive, job.name, self.namespace))
