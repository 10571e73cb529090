"""What a target is: where jobs are submitted. The registry knows each by name, and imports it when it is wanted."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from trainer.job.errors import UserError

if TYPE_CHECKING:
    from trainer.job.spec import JobSpec
    from trainer.model_dir.result import Result
    from trainer.protocol.status import JobStatus


class Job(NamedTuple):
    """A job as the user names it."""

    name: str
    spec: JobSpec | None = None
    """None where the user gave the name alone."""


@dataclass(frozen=True)
class Submitted:
    """What a submission has done."""

    job: str
    objects: Sequence[str] = ()
    """What was applied, as kind/name; empty where the target's own program has reported it."""
    new: bool = True
    """False: the job already exists."""
    ended: str | None = None
    """`done` or `failed`, of a job that was there and is over."""
    namespace: str | None = None
    """Where the job is, if the target has namespaces."""


@dataclass(frozen=True)
class Listed:
    """One job of a target."""

    job: str
    phase: str
    submitted: str
    """When, in ISO 8601."""


@dataclass(frozen=True)
class ContainerState:
    """One task, as its target sees it."""

    state: str
    code: int = 0
    """The exit code of a container that has ended."""
    node: str | None = None
    restarts: int = 0
    why: str | None = None
    """Why it does not run, or how it ended."""


@dataclass(frozen=True)
class JobOverview:
    """What is known of a job; None where the target cannot know."""

    name: str
    namespace: str | None = field(default=None, kw_only=True)
    phase: str
    code: int = 0
    """The job's exit code, once it is over."""
    said: str | None = None
    """The last line of a chief that has ended."""
    tasks: Mapping[str, ContainerState] = field(default_factory=dict)
    job: JobStatus | Result | None = None
    """The chief's /status while it runs, afterwards result.json where the target can read it."""
    unreadable: str | None = None
    """Why `job` is None although there was an answer."""


class LogLine(NamedTuple):
    """One line that a task has printed."""

    task: str
    text: str


@dataclass(frozen=True)
class Deleted:
    """What a deletion has left."""

    job: str
    volume_stays: bool


class Target(Protocol):
    """Where jobs run.

    Methods raise TrainerError with Exit.TARGET if the target is missing, too old or refuses, and UserError for an
    error of the user's. Arguments that stand for one of OPTIONS are given only to targets that have it.
    """

    def check(self, spec: JobSpec) -> None:
        """Raises what `submit` would, as far as the spec alone shows it."""

    def render(self, jobs: Sequence[tuple[str, JobSpec]], command: str) -> str:
        """The files that the target runs, as one text, for (profile, spec) pairs; the first line names `command`."""

    def submit(self, spec: JobSpec, command: str, dry_run: bool = False) -> Submitted:
        """Starts a job and returns; all or nothing. With `dry_run` the target checks everything and changes nothing."""

    def jobs(self) -> Sequence[Listed]:
        """All jobs, the oldest first."""

    def status(self, job: Job) -> JobOverview:
        """The current status of a job."""

    def logs(self, job: Job, task: str | None = None, follow: bool = False) -> Iterator[LogLine]:
        """The output of all tasks, or of one; with `follow` until the job is over."""

    def delete(self, job: Job, volumes: bool = False) -> Deleted:
        """Stops a job and removes it, its volume only with `volumes`."""


class Entry(NamedTuple):
    """A row of the registry: what is known of a target without importing it."""

    path: str
    """`module:class`."""
    packages: frozenset[str] = frozenset()
    """Of the extra `deploy`, those that it imports."""
    options: frozenset[str] = frozenset()
    """Of OPTIONS, those that it has."""


OPTIONS = ("profile", "namespace", "dry_run", "task")
"""What only some targets have: a profile for each of several rendered jobs; a namespace, which the constructor takes;
arguments of methods."""
TARGETS = {
    "kubernetes": Entry(
        "trainer.targets.kubernetes.target:Kubernetes",
        frozenset({"jinja2", "kubernetes"}),
        frozenset({"namespace", "dry_run", "task"}),
    ),
    "compose": Entry("trainer.targets.compose.target:Compose", frozenset({"jinja2", "docker"}), frozenset({"profile"})),
}
"""By name; the first is the default."""

LOCAL = "local"
"""Jobs of this machine, of which only the status can be asked (decision 39)."""


def load(name: str, **settings: str) -> Target:
    """Imports a target of the registry, and makes it with settings of its own.

    Raises:
        UserError: a package is missing.
    """
    entry = TARGETS[name]
    for package in sorted(entry.packages):
        if importlib.util.find_spec(package) is None:
            raise UserError(f"{package}: is not installed; pip install 'trainer[deploy]'")
    module, _, attribute = entry.path.partition(":")
    target: Target = getattr(importlib.import_module(module), attribute)(**settings)
    return target
