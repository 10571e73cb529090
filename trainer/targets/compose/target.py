"""A Docker Engine as a target. Methods import its client only if they need it; rendering does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from trainer.debug.archive import Archive
from trainer.debug.evidence import Evidence
from trainer.job.errors import UserError
from trainer.job.spec import JobSpec
from trainer.model_dir.stacks import Stacks
from trainer.targets import spec_warnings
from trainer.targets.base import Deleted, Job, JobOverview, Listed, LogLine, Page, Submitted
from trainer.targets.compose import render
from trainer.targets.page import behind


class Compose:
    """The Docker Engine that DOCKER_HOST names, or this machine's; each job is a project of docker compose."""

    def check(self, spec: JobSpec) -> None:
        render.render({"": spec}, "trainer check")

    def warnings(self, spec: JobSpec) -> list[str]:
        return [*spec_warnings.only_for_pods(spec), *render.warnings(spec)]

    def render(self, jobs: Sequence[tuple[str, JobSpec]], command: str) -> str:
        return render.render(dict(jobs), command)

    def submit(self, spec: JobSpec, command: str, dry_run: bool = False) -> Submitted:
        from trainer.targets.compose import engine

        return engine.submit(spec, command)

    def jobs(self) -> Sequence[Listed]:
        raise UserError("JOB: is missing: the path of a job spec")

    def status(self, job: Job) -> JobOverview:
        from trainer.targets.compose import engine

        return engine.status(_spec(job))

    def stacks(self, job: Job) -> Stacks:
        from trainer.targets.compose import engine

        return engine.stacks(_spec(job))

    def logs(self, job: Job, task: str | None = None, follow: bool = False) -> Iterator[LogLine]:
        from trainer.targets.compose import engine

        return engine.logs(_spec(job), task, follow)

    def delete(self, job: Job, volumes: bool = False) -> Deleted:
        from trainer.targets.compose import engine

        return engine.delete(_spec(job), volumes)

    def page(self, job: Job, say: Callable[[str], None]) -> Page:
        from trainer.targets.compose import engine

        spec = _spec(job)
        copy = f"`{engine.copy(spec)}`, then `trainer ui {spec.name}`"
        return behind(engine.tunnel(spec), lambda: engine.status(spec), say, spec, copy)

    def debug(self, job: Job, archive: Archive) -> Evidence:
        from trainer.targets.compose import evidence

        return evidence.collect(archive, _spec(job))


def _spec(job: Job) -> JobSpec:
    """The spec of a job, which is needed for the names and the number of its containers."""
    if job.spec is None:
        raise UserError(f"JOB: {job.name!r}: is no file; compose knows a job by its spec")
    return job.spec
