"""This machine as a target."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainer.debug.archive import Archive
from trainer.debug.facts import Facts
from trainer.job.errors import UserError
from trainer.job.spec import JobSpec
from trainer.model_dir.stacks import Stacks
from trainer.targets import here
from trainer.targets.base import Deleted, Job, JobOverview, Listed, LogLine, Submitted
from trainer.targets.local import status


@dataclass(frozen=True)
class Local:
    """Processes on this machine. A job is known by its model_dir."""

    keep: bool = False
    """Jobs outlive this process."""

    def check(self, spec: JobSpec) -> None:
        here.require(spec)

    def warnings(self, spec: JobSpec) -> list[str]:
        return []

    def render(self, jobs: Sequence[tuple[str, JobSpec]], command: str) -> str:
        raise UserError("target: 'local': has no files; it starts processes")

    def submit(self, spec: JobSpec, command: str, dry_run: bool = False) -> Submitted:
        raise NotImplementedError

    def jobs(self) -> Sequence[Listed]:
        raise UserError("JOB: is missing: the path of a job spec, or a model_dir")

    def status(self, job: Job) -> JobOverview:
        return status.status(job.spec.directory if job.spec else job.name, job.spec)

    def stacks(self, job: Job) -> Stacks:
        return status.stacks(job.spec.directory if job.spec else job.name)

    def logs(self, job: Job, task: str | None = None, follow: bool = False) -> Iterator[LogLine]:
        raise NotImplementedError

    def delete(self, job: Job, volumes: bool = False) -> Deleted:
        raise NotImplementedError

    def debug(self, job: Job, archive: Archive) -> Facts:
        from trainer.targets.local import debug

        return debug.collect(archive, job.name, job.spec.directory if job.spec else job.name, job.spec)
