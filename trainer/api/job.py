"""Jobs as their specs describe them: checked, rendered, submitted."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainer.api import started
from trainer.api.overrides import Overrides, lines
from trainer.api.places import open_target
from trainer.api.run import Run
from trainer.job import program
from trainer.job.cluster import tasks_of
from trainer.job.errors import UserError
from trainer.job.load import load_file
from trainer.job.messages import command_line
from trainer.job.spec import JobSpec
from trainer.targets import base, machine, spec_warnings
from trainer.targets.base import Submitted
from trainer.workloads.check import check_imports, check_workload


@dataclass(frozen=True, repr=False)
class Job:
    """A job that a spec describes, and that nothing has started yet. `load` makes one."""

    spec: JobSpec
    """The spec with its defaults."""
    path: str
    """The file that it was read from."""
    overrides: tuple[str, ...] = ()
    """Values that were changed, as `path.to.key=value`."""

    def __repr__(self) -> str:
        return f"<Job {self.name} of {self.path}>"

    @property
    def name(self) -> str:
        """The name in the spec."""
        return self.spec.name

    @property
    def tf_config(self) -> dict[str, dict[str, object]]:
        """TF_CONFIG of each task by its name, as in `worker:1`; the addresses are those of containers and pods."""
        return {task.name: json.loads(task.tf_config()) for task in tasks_of(self.spec)}

    def check(self, target: str | None = None) -> None:
        """Checks what `load` does not: data, imported modules, and what a target refuses. Asks no server.

        Args:
            target: also check the limits of this target: `kubernetes`, `compose` or `local`.

        Raises:
            UserError: all that is wrong, one line each.
        """
        if target is None:
            machine.require_named(self.spec)
        runs_here = target == base.LOCAL or (target is None and self.spec.image is None)  # images have other modules
        if runs_here:
            check_imports(self.spec)
        if target is not None:
            open_target(target).check(self.spec)

    def warnings(self, target: str | None = None) -> list[str]:
        """What may surprise you, a line each, also on a target if it is named."""
        of_target = open_target(target).warnings(self.spec) if target is not None else []
        return [*spec_warnings.warnings(self.spec), *of_target]

    def render(self, target: str = "kubernetes") -> str:
        """The files that a target runs, as one text: manifests, or a compose file.

        Raises:
            UserError: the target refuses the job, or has no files.
        """
        return render(target, [("", self)])

    def submit(self, target: str = "kubernetes", *, namespace: str | None = None, keep: bool = False) -> Run:
        """Starts the job and returns.

        Args:
            target: `kubernetes`, the cluster of your kubectl context; `compose`, containers on a Docker Engine; or
                `local`, processes on this machine.
            namespace: of Kubernetes; default: that of the context.
            keep: only for `local`: the job continues when this Python process ends. Without it the job is stopped
                then, as by SIGTERM: it saves a checkpoint, and the next `submit` resumes it.

        Raises:
            UserError: the job is wrong, or its name or folder is another job's.
            TrainerError: code 16, if the target is missing, too old or refuses; nothing was started then.
        """
        if target == base.LOCAL:
            check_imports(self.spec)
        on = open_target(target, namespace=namespace, keep=keep)
        submitted = on.submit(self.spec, self._command(target))
        started.note(self.path, target, self.name, self.overrides, submitted.namespace)
        return Run(base.Job(self.name, self.spec), target, submitted.namespace, submitted, on)

    def dry_run(self, target: str = "kubernetes", *, namespace: str | None = None) -> Submitted:
        """Lets the target check all that `submit` would send, and changes nothing. Only Kubernetes can.

        Raises:
            UserError, TrainerError: as `submit`.
        """
        on = open_target(target, namespace=namespace, dry_run=True)
        return on.submit(self.spec, self._command(target), dry_run=True)

    def _command(self, target: str) -> str:
        """The command that does the same, for the files' first line."""
        return command_line(["trainer", "submit", "--target", target, self.path], self.overrides)


def load(path: str | Path, set: Overrides = ()) -> Job:
    """Reads a job spec and checks it, and its workload, without TensorFlow.

    Args:
        path: of the YAML file. Paths in it are relative to it.
        set: values to change, as in `{"train.steps": 600}`; or lines, as `--set` has them: `["train.steps=600"]`, or
            one of them. Paths in it are relative to the current folder.

    Raises:
        UserError: all that is wrong, one line each.
    """
    job = read(path, set)
    if not job.spec.program:
        check_workload(job.spec)
    return job


def read(path: str | Path, set: Overrides = ()) -> Job:
    """Reads a job, as `load`, without a look into the workload."""
    if not isinstance(path, str | os.PathLike):
        raise UserError(f"{path!r}: must be the path of a job spec, as in trainer.load('job.yaml')")
    overrides = tuple(lines(set))
    spec = load_file(path, overrides)
    program.require_scripts(spec)
    return Job(spec, str(path), overrides)


def render(target: str, jobs: Sequence[tuple[str, Job]]) -> str:
    """The files of several jobs as one text, each with the name of its profile, or with "" where there are none."""
    words = [f"{profile}={job.path}" if profile else job.path for profile, job in jobs]
    overrides = dict.fromkeys(each for _, job in jobs for each in job.overrides)
    command = command_line(["trainer", "render", target, *words], [*overrides])
    return open_target(target).render([(profile, job.spec) for profile, job in jobs], command)
