"""Jobs that were submitted: their status, result and logs."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, cast

from trainer.api import started
from trainer.api.overrides import Overrides, lines
from trainer.api.places import default, open_target
from trainer.api.result import Result
from trainer.job import program
from trainer.job.errors import Exit, TrainerError, UserError
from trainer.job.load import load_file
from trainer.job.names import DNS_LABEL
from trainer.model_dir import result
from trainer.model_dir.stacks import Stacks
from trainer.targets import base, tasks
from trainer.targets.base import Deleted, JobOverview, Listed, LogLine, Submitted, Target
from trainer.targets.outage import Outage
from trainer.workloads.check import check_imports, check_workload

if TYPE_CHECKING:
    from trainer.job.spec import JobSpec
    from trainer.targets.evidence import Debugged


class JobFailed(TrainerError):
    """A job has failed or was stopped. Its message has the reason, `code` the job's exit code."""

    def __init__(self, status: JobOverview) -> None:
        reason = (status.last_line or "").removeprefix("trainer: ") or "its logs have the reason"
        more = f"; {status.next}" if status.next else ""
        # The code of a container that the system has killed, such as 137, is none of Exit.
        code = next((each for each in Exit if each == status.code), cast(Exit, status.code))
        super().__init__(f"{status.name}: exit code {status.code}: {reason}{more}", code)
        self.status = status
        """The status after the job's end."""


@dataclass(frozen=True)
class Logs:
    """What the tasks of a job have printed. Each `for line in logs` reads it from the first line on.

    A line has `task` and `text`; `print(logs)` prints them all.
    """

    _on: Target = field(repr=False)
    _job: base.Job = field(repr=False)
    task: str | None
    """The only task whose lines these are, if one was named."""
    follow: bool
    """Whether the lines continue until the job is over."""

    def __iter__(self) -> Iterator[LogLine]:
        named = {} if self.task is None else {"task": self.task}
        return self._on.logs(self._job, follow=self.follow, **named)

    def __str__(self) -> str:
        return "\n".join(map(str, self))


@dataclass(frozen=True, repr=False)
class Run:
    """A job that was submitted, wherever it runs. `Job.submit` and `attach` make one."""

    job: base.Job
    """Its name, and its spec if that is known."""
    target: str
    """Where it runs: the name of a target."""
    namespace: str | None
    """Its namespace, if it was named."""
    submitted: Submitted | None
    """What the submission has done; None for a job that was found."""
    on: Target
    implied: bool = False
    """Whether no target was named, and no job of this spec or name is known on this machine."""

    def __repr__(self) -> str:
        return f"<Run of {self.name} on {self.target}>"

    @property
    def name(self) -> str:
        """The job's name; of a folder that was attached to, its path."""
        return self.job.name

    def status(self) -> JobOverview:
        """The current status: phase, tasks, and the chief's own status while it runs.

        Raises:
            UserError: there is no such job on this machine.
            TrainerError: code 16, if the target does not answer or has no such job.
        """
        with self._naming_what_was_asked():
            return self.on.status(self.job)

    @contextlib.contextmanager
    def _naming_what_was_asked(self) -> Iterator[None]:
        """Adds to an error of a target that nobody named which targets were asked."""
        try:
            yield
        except TrainerError as error:
            if not self.implied or error.code != Exit.TARGET:
                raise
            where = self.job.spec.directory if self.job.spec else f"a folder {self.job.name}, nor is it a spec"
            others = " or ".join(f"--target {name}" for name in base.TARGETS if name != self.target)
            asked = f"asked: {self.target}, and this machine, where no job has begun in {where}"
            text = str(error) if str(error).startswith(f"{self.name}:") else f"{self.name}: {error}"
            error.args = (f"{text}; {asked}; elsewhere: {others}",)
            raise

    def statuses(self, timeout: float | None = None) -> Iterator[JobOverview]:
        """The status, again and again; the last is that after the job's end, or after the time.

        A target that has answered, and then does not, is asked again for ten minutes; stderr has a line about it.

        Raises:
            UserError, TrainerError: as `status`.
        """
        end = math.inf if timeout is None else time.monotonic() + timeout
        pause, outage, overview = base.entry(self.target).poll_seconds, Outage(), self.status()
        while not overview.over and (left := end - time.monotonic()) > 0:
            yield overview
            time.sleep(min(pause, left))
            overview = outage.ask(lambda: self.on.status(self.job), overview)
        yield overview

    def wait(self, timeout: float | None = None) -> None:
        """Waits until the job has succeeded. Ctrl-C, or the interruption of a cell, ends the wait and not the job.

        Args:
            timeout: seconds; default: as long as the job takes; 0: asks once.

        Raises:
            JobFailed: the job has failed, or was stopped.
            TimeoutError: it is not over after that time, and continues.
            UserError: the timeout is negative.
            UserError, TrainerError: as `status`.
        """
        if timeout is not None and not timeout >= 0:
            raise UserError(
                f"timeout: {timeout!r}: must be 0 or more seconds; leave it out to wait as long as it takes"
            )
        for overview in self.statuses(timeout):
            last = overview
        if not last.over:
            raise TimeoutError(f"{self.name}: is {last.phase}, not over after {timeout:g} s; wait again, or longer")
        if last.phase != "done":
            raise JobFailed(last)

    @cached_property
    def result(self) -> Result:
        """The result of a job that has succeeded: `run.result.test_accuracy`.

        Raises:
            JobFailed: it has failed, or was stopped.
            UserError: it is not over, or its result cannot be read.
        """
        overview = self.status()
        if isinstance(overview.job, result.Result):
            return Result(**vars(overview.job))
        if overview.phase in ("failed", "stopped"):
            raise JobFailed(overview)
        if not overview.over:
            raise UserError(f"{self.name}: has no result yet: it is {overview.phase}; Run.wait() waits for its end")
        raise UserError(
            f"{self.name}: {overview.unreadable or f'its result is in its volume only; {overview.last_line}'}"
        )

    def stacks(self) -> Stacks:
        """Where each task is now, and which one the others wait for; takes some seconds.

        Raises:
            UserError, TrainerError: as `status`, or the job's chief does not run.
        """
        with self._naming_what_was_asked():
            return self.on.stacks(self.job)

    def logs(self, task: str | None = None, *, follow: bool = False) -> Logs:
        """What the tasks have printed, in the order of time.

        Args:
            task: only this one, as in `worker:1`.
            follow: continue until the job is over.

        Raises:
            UserError: there is no such task.
            UserError, TrainerError: as `status`, when the first line is read.
        """
        open_target(self.target, task=task)
        if task is not None and self.job.spec is not None:
            tasks.require(task, self.name, tasks.names(self.job.spec))
        return Logs(self.on, self.job, task, follow)

    def delete(self, *, volumes: bool = False) -> Deleted:
        """Stops the job, waits until its tasks have ended, and removes what the target has of it.

        A folder of this machine stays, so that the same job resumes there.

        Args:
            volumes: remove the job's volume too, with checkpoints and model.

        Raises:
            UserError, TrainerError: as `status`.
        """
        with self._naming_what_was_asked():
            return self.on.delete(self.job, volumes)

    def debug(self, path: str | Path | None = None) -> Debugged:
        """Writes an archive of all that there is of the job, without secrets, that opens with what failed first.

        Args:
            path: of the archive. Default: NAME-debug-TIME.zip in the working directory.

        Returns:
            Its `path` and `size` in bytes, and the `verdict`.

        Raises:
            UserError: the archive cannot be written.
            UserError, TrainerError: as `status`, if only the job's name or folder is known.
        """
        from trainer.targets import evidence

        return evidence.write(self.on, self.job, Path(path) if path is not None else None, self._refuse)

    def _refuse(self, spec: JobSpec) -> None:
        """Raises what `Job.submit` would, of a job that never started."""
        program.require_scripts(spec)
        if not spec.program:
            check_workload(spec)
        if self.target == base.LOCAL:
            check_imports(spec)
        self.on.check(spec)


def attach(job: str | Path, target: str | None = None, *, namespace: str | None = None, set: Overrides = ()) -> Run:
    """Finds a job that was submitted, or started with `trainer local`.

    Args:
        job: the path of its spec; its name, where the target keeps names; or its model_dir, on this machine.
        target: where it runs. Default: where the job of this spec was started last by you on this machine; without one
            this machine, if a job has begun in that folder or in the model_dir of the spec, otherwise the cluster of
            your kubectl context.
        namespace: of Kubernetes; default: that of the context.
        set: values of the spec to change, as in `load`. Default: those with which it was started last.

    Raises:
        UserError: the spec cannot be read, or `set` has no spec to change.
        TrainerError: there is no job of this name, where no target is named.
    """
    run = located(job, target, namespace=namespace, set=set)
    if run.job.spec is None and target is None and run.target != base.LOCAL:
        run.status()
    return run


def located(job: str | Path, target: str | None = None, *, namespace: str | None = None, set: Overrides = ()) -> Run:
    """As `attach`, without a question to the target whether it has a job of this name."""
    reference, overrides = str(job), lines(set)
    from trainer.targets.local import status as local

    unnamed = target is None and namespace is None
    if Path(reference).is_dir() and (target == base.LOCAL or (unnamed and local.is_model_dir(reference))):
        if overrides:
            raise UserError(f"--set: {reference!r} is a folder, and --set changes the values of a spec")
        return _found(base.Job(reference), base.LOCAL, None)
    if unnamed and Path(reference).is_dir() and not DNS_LABEL.fullmatch(reference):
        raise UserError(f"{reference}: is a folder in which no job of this machine has begun; give the spec of the job")
    if Path(reference).is_file() and (before := _started(reference, overrides, target, namespace)):
        found = _as_started(reference, before)
        return _found(found, before.target, namespace or before.namespace)
    return find(_named(reference, overrides, target), target, namespace)


def spec_here(reference: str, overrides: list[str]) -> JobSpec:
    """The spec in a file as its job was started last on this machine; as it is, if none was started with these
    overrides.

    Raises:
        UserError: it cannot be read.
    """
    before = _started(reference, overrides, base.LOCAL, None)
    return (_as_started(reference, before).spec if before else None) or load_file(reference, overrides)


def _started(reference: str, overrides: list[str], target: str | None, namespace: str | None) -> started.Started | None:
    """The job that was started last from a spec, with these overrides if there are some, and on this target."""
    among = [target] if target else [*base.TARGETS]
    before = started.last(reference, among, overrides or None)
    if before is None or (namespace and before.target == base.LOCAL):
        return None
    from trainer.targets.local import status as local

    spec = _as_started(reference, before).spec
    return before if before.target != base.LOCAL or (spec and local.is_model_dir(spec.directory)) else None


def _as_started(reference: str, before: started.Started) -> base.Job:
    """The job of a spec as it was started; as it is now, if the spec has changed so that those overrides no longer fit.
    Its relative paths begin where it was started."""
    try:
        spec = load_file(reference, before.overrides)
    except UserError:
        spec = load_file(reference)
    if before.target == base.LOCAL and before.folder != str(Path.cwd()):
        spec = spec.model_copy(update={"model_dir": str(Path(before.folder, spec.directory))})
    return base.Job(spec.name, spec)


def find(job: base.Job, target: str | None, namespace: str | None) -> Run:
    """A job on a target; without one on this machine, if a job has begun in its model_dir, otherwise on the first."""
    from trainer.targets.local import status as local

    unnamed = target is None and namespace is None
    if unnamed and job.spec and local.is_model_dir(job.spec.directory):
        target = base.LOCAL
    run = _found(job, target or default(), namespace)
    return replace(run, implied=unnamed and target is None)


def jobs(target: str = "kubernetes", *, namespace: str | None = None) -> Sequence[Listed]:
    """All jobs of a target, the oldest first.

    Raises:
        UserError: the target knows a job by its spec only.
        TrainerError: code 16, if the target does not answer.
    """
    return open_target(target, namespace=namespace).jobs()


def _found(job: base.Job, target: str, namespace: str | None) -> Run:
    return Run(job, target, namespace, None, open_target(target, namespace=namespace))


def _named(reference: str, overrides: list[str], target: str | None) -> base.Job:
    """The job that is given as a name, or as a spec that has one."""
    keeps_names = target is None or base.entry(target).keeps_names
    if not keeps_names or Path(reference).is_file() or not DNS_LABEL.fullmatch(reference):
        spec = load_file(reference, overrides)
        return base.Job(spec.name, spec)
    if overrides:
        raise UserError(f"--set: {reference!r} is a job's name, and --set changes the values of a spec; give its file")
    return base.Job(reference)
