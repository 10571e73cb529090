"""The interface of targets, where jobs are submitted, and a registry that imports a target when it is needed."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from trainer.job.errors import UserError
from trainer.job.messages import how_to_install, nearest

if TYPE_CHECKING:
    from trainer.debug.archive import Archive
    from trainer.debug.evidence import Evidence
    from trainer.job.spec import JobSpec
    from trainer.model_dir.result import Result
    from trainer.model_dir.stacks import Stacks
    from trainer.protocol.status import JobStatus
    from trainer.targets.tunnel import Tunnel


class Job(NamedTuple):
    """A job as named by the user."""

    name: str
    spec: JobSpec | None = None
    """None if the user gave only the name."""


@dataclass(frozen=True)
class Submitted:
    """Result of a submission."""

    job: str
    objects: Sequence[str] = ()
    """Applied objects, as kind/name; empty if the target's own program has reported them."""
    new: bool = True
    """False if the job already existed."""
    restored: Sequence[str] = ()
    """Objects of a job that already existed which were missing, as kind/name: they are made again."""
    ended: str | None = None
    """`done` or `failed`, for a job that already existed and has ended."""
    namespace: str | None = None
    """Namespace of the job, if the target has namespaces."""
    warnings: Sequence[str] = ()
    """What keeps the job waiting for now."""


@dataclass(frozen=True)
class Listed:
    """One job of a target."""

    job: str
    phase: str
    submitted: str
    """When it was submitted, in ISO 8601."""


@dataclass(frozen=True)
class ContainerState:
    """State of one task, from its target."""

    state: str
    code: int = 0
    """The exit code of a container that has ended."""
    node: str | None = None
    restarts: int = 0
    reason: str | None = None
    """Why it does not run, or how it ended."""


@dataclass(frozen=True)
class JobOverview:
    """Status of a job; fields are None if the target cannot know them."""

    name: str
    namespace: str | None = field(default=None, kw_only=True)
    phase: str
    code: int = 0
    """The job's exit code, once it is over."""
    last_line: str | None = None
    """The last line of a chief that has ended."""
    next: str | None = None
    """What to do about a job that has failed."""
    tasks: Mapping[str, ContainerState] = field(default_factory=dict)
    job: JobStatus | Result | None = None
    """The chief's /status while it runs, afterwards result.json where the target can read it."""
    unreadable: str | None = None
    """Why `job` is None although there was an answer."""
    warnings: Sequence[str] | None = None
    """What the target lacks of the job, or what keeps it from its end there."""

    @property
    def over(self) -> bool:
        """Whether the job has succeeded, has failed or was stopped."""
        return self.phase in ("done", "failed", "stopped")


@dataclass(frozen=True)
class Page:
    """Where the page of a job is: one of these."""

    address: str | None = None
    """The address of its chief, on this machine."""
    tunnel: Tunnel | None = None
    """A tunnel to its chief, elsewhere."""
    folder: str | None = None
    """Its model_dir, after its end."""


class LogLine(NamedTuple):
    """One line that a task has printed."""

    task: str
    text: str

    def __str__(self) -> str:
        return f"{self.task:<11} | {self.text}"


@dataclass(frozen=True)
class Deleted:
    """Result of a deletion."""

    job: str
    volume_stays: bool


class Target(Protocol):
    """Where jobs run.

    Methods raise TrainerError with Exit.TARGET if the target is missing, too old or refuses, and UserError for a
    user's error. Arguments that correspond to one of OPTIONS are passed only to targets that have it.
    """

    def check(self, spec: JobSpec) -> None:
        """Raises the errors of `submit` that follow from the spec alone."""

    def warnings(self, spec: JobSpec) -> list[str]:
        """What may surprise the user of this job here."""

    def render(self, jobs: Sequence[tuple[str, JobSpec]], command: str) -> str:
        """The target's files as one text, for (profile, spec) pairs; the first line names `command`."""

    def submit(self, spec: JobSpec, command: str, dry_run: bool = False) -> Submitted:
        """Starts a job and returns; all or nothing. With `dry_run` the target checks everything and changes nothing."""

    def jobs(self) -> Sequence[Listed]:
        """All jobs, the oldest first."""

    def status(self, job: Job) -> JobOverview:
        """The current status of a job."""

    def stacks(self, job: Job) -> Stacks:
        """The stacks of all tasks now, from the chief; takes seconds."""

    def logs(self, job: Job, task: str | None = None, follow: bool = False) -> Iterator[LogLine]:
        """The output of all tasks, or of one; with `follow` until the job is over."""

    def delete(self, job: Job, volumes: bool = False) -> Deleted:
        """Stops a job and removes it, its volume only with `volumes`."""

    def page(self, job: Job, say: Callable[[str], None]) -> Page:
        """The page of a job, once it has one; `say` is called with what it waits for."""

    def debug(self, job: Job, archive: Archive) -> Evidence:
        """Adds all that there is of a job to an archive; a part that cannot be had is noted there."""


class Entry(NamedTuple):
    """A row of the registry: facts about a target that do not require importing it."""

    path: str
    """The class that implements it, as `module:class`."""
    packages: frozenset[str] = frozenset()
    """Packages of the extra `deploy` that it imports."""
    options: frozenset[str] = frozenset()
    """Its options, from OPTIONS."""
    keeps_names: bool = True
    """Whether it knows a job by its name; otherwise by its spec, or its folder."""
    poll_seconds: float = 2.0
    """Seconds between two questions for a job's status. Each one starts a process in a container of the chief."""


OPTIONS = ("profile", "namespace", "keep", "dry_run", "task")
"""Options that only some targets have: a profile for each of several rendered jobs; a namespace, and whether jobs
outlive this process, which the constructor takes; arguments of methods."""
LOCAL = "local"
"""This machine. On the command line `trainer local` starts a job there, and not `submit`."""
TARGETS: dict[str, Entry] = {
    "kubernetes": Entry(
        "trainer.targets.kubernetes.target:Kubernetes",
        frozenset({"jinja2", "kubernetes"}),
        frozenset({"namespace", "dry_run", "task"}),
    ),
    "compose": Entry(
        "trainer.targets.compose.target:Compose",
        frozenset({"jinja2", "docker"}),
        frozenset({"profile", "task"}),
        keeps_names=False,
    ),
    LOCAL: Entry(
        "trainer.targets.local.target:Local",
        options=frozenset({"keep", "task"}),
        keeps_names=False,
        poll_seconds=0.5,
    ),
}
"""The targets by name; the first is the default."""


def elsewhere() -> list[str]:
    """The targets that `trainer submit` offers."""
    return [name for name in TARGETS if name != LOCAL]


def entry(name: str) -> Entry:
    """
    Raises:
        UserError: there is no target of this name.
    """
    if name not in TARGETS:
        raise UserError(f"target: {name!r}: must be one of {', '.join(TARGETS)}{nearest(name, TARGETS)}")
    return TARGETS[name]


def lacking(name: str, asked: Collection[str]) -> Iterator[tuple[str, list[str]]]:
    """The options among those asked for that a target does not have, each with the targets that have it."""
    for option in OPTIONS:
        if option in asked and option not in entry(name).options:
            yield option, [other for other, row in TARGETS.items() if option in row.options]


def load(name: str, **settings: str | bool) -> Target:
    """Imports a target of the registry and creates it with its own settings.

    Raises:
        UserError: there is no such target, or a package is missing.
    """
    row = entry(name)
    for package in sorted(row.packages):
        if importlib.util.find_spec(package) is None:
            raise UserError(f"{package}: is not installed; {how_to_install('deploy')}")
    module, _, attribute = row.path.partition(":")
    target: Target = getattr(importlib.import_module(module), attribute)(**settings)
    return target
