"""This machine as a target."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from trainer.debug.archive import Archive
from trainer.debug.evidence import Evidence
from trainer.job.errors import Exit, UserError, outcome
from trainer.job.spec import JobSpec
from trainer.model_dir import state as job_state
from trainer.model_dir.stacks import Stacks
from trainer.targets import tasks
from trainer.targets.base import Deleted, Job, JobOverview, Listed, LogLine, Page, Submitted
from trainer.targets.local import launcher, output, run, status

LONGEST_STOP_SECONDS = 600.0
"""How long a stop may take where the spec, and so its deadline, is not known."""


@dataclass(frozen=True)
class Local:
    """Processes on this machine. A job is known by its model_dir."""

    keep: bool = False
    """Whether jobs outlive this process."""
    folder: Path = field(default_factory=Path.cwd)
    """Where relative paths begin: a program may change its working directory."""

    def check(self, spec: JobSpec) -> None:
        run.require(spec)

    def warnings(self, spec: JobSpec) -> list[str]:
        return []

    def render(self, jobs: Sequence[tuple[str, JobSpec]], command: str) -> str:
        raise UserError("target: 'local': has no files to render; it starts processes")

    def submit(self, spec: JobSpec, command: str, dry_run: bool = False) -> Submitted:
        self.check(spec)
        launcher.start(spec, self._model_dir(Job(spec.name, spec)), self.folder, self.keep)
        return Submitted(spec.name)

    def jobs(self) -> Sequence[Listed]:
        raise UserError("JOB: is missing: the path of a job spec, or a model_dir")

    def status(self, job: Job) -> JobOverview:
        model_dir = self._model_dir(job)
        launched = launcher.last(model_dir)
        if launched is None or (
            not launched.alive and (launched.process.returncode == Exit.OK or launcher.is_used(model_dir))
        ):
            return status.status(model_dir, job.spec)
        if launched.alive:
            overview = status.running(model_dir) or JobOverview(job.name, "starting")
            return replace(overview, phase="ending", code=0) if overview.over else overview
        end = job_state.load(model_dir, 0.0).end
        if end and end.run == launched.run:
            return status.failure(model_dir, end)
        code = launched.process.returncode
        code = code if code > 0 else 128 - code
        return JobOverview(job.name, outcome(code), code, last_line=output.verdict(model_dir))

    def stacks(self, job: Job) -> Stacks:
        return status.stacks(self._model_dir(job))

    def logs(self, job: Job, task: str | None = None, follow: bool = False) -> Iterator[LogLine]:
        model_dir = self._model_dir(job)
        if task is not None and (spec := job.spec or status.last_spec(model_dir)):
            tasks.require(task, job.name, tasks.names(spec))
        lines = output.lines(model_dir, lambda: follow and launcher.is_used(model_dir))
        return (line for line in lines if task in (None, line.task))

    def delete(self, job: Job, volumes: bool = False) -> Deleted:
        """Stops the job as SIGTERM does, and waits until its processes have ended. Its folder stays."""
        model_dir = self._model_dir(job)
        if volumes:
            raise UserError(f"volumes: {model_dir} is a folder, and not removed with its job; remove it yourself")
        launched = launcher.last(model_dir)
        if pid := launched.process.pid if launched and launched.alive else status.launcher(model_dir):
            stop = job.spec.deadlines.stop if job.spec else LONGEST_STOP_SECONDS
            launcher.end(job.name, pid, stop + launcher.END_SECONDS)
            if launched:
                launched.process.poll()  # until then it is a zombie
        elif self.status(job).phase == "starting":  # also raises if there is no such job
            raise UserError(f"{model_dir}: its job is starting, and cannot be stopped yet; try again in a few seconds")
        return Deleted(job.name, volume_stays=True)

    def page(self, job: Job, say: Callable[[str], None]) -> Page:
        return status.page(self._model_dir(job))

    def debug(self, job: Job, archive: Archive) -> Evidence:
        from trainer.targets.local import evidence

        return evidence.collect(archive, job.name, self._model_dir(job), job.spec)

    def _model_dir(self, job: Job) -> str:
        model_dir = job.spec.directory if job.spec else job.name
        return model_dir if Path.cwd() == self.folder else str(self.folder / model_dir)
