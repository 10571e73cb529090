"""What a target is: where jobs are submitted. The registry knows each by name, and imports it when it is wanted."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from trainer.job.errors import UserError

if TYPE_CHECKING:
    from trainer.job.spec import JobSpec


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
    """False: the job was there already."""
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
class TaskStatus:
    """What the target knows of one task."""

    state: str
    code: int = 0
    """The exit code of a container that has ended."""
    node: str | None = None
    restarts: int = 0
    why: str | None = None
    """Why it does not run, or how it ended."""


@dataclass(frozen=True)
class JobStatus:
    """What is known of a job; None: this target does not know it."""

    name: str
    namespace: str | None = field(default=None, kw_only=True)
    phase: str
    code: int = 0
    """The job's exit code, once it is over."""
    said: str | None = None
    """The last line of a chief that has ended."""
    tasks: Mapping[str, TaskStatus] = field(default_factory=dict)
    job: Mapping[str, Any] = field(default_factory=dict)
    """The chief's /status while it runs, afterwards result.json where the target can read it; may be empty."""


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
    """Where jobs run. Every method raises TrainerError, Exit.TARGET, if the target refuses, is missing or too old, and
    UserError for what only the user can mend."""

    def check(self, spec: JobSpec) -> None:
        """Refuses what the target would refuse, as far as the spec alone tells."""

    def render(self, jobs: Sequence[tuple[str, JobSpec]], command: str) -> str:
        """What the target runs, as text: of (profile, spec) pairs. `command` wrote it, says its first line."""

    def submit(self, spec: JobSpec, command: str, dry_run: bool = False) -> Submitted:
        """Starts a job and returns; all or nothing. With `dry_run` the target checks all and changes nothing."""

    def jobs(self) -> Sequence[Listed]:
        """All jobs, the oldest first."""

    def status(self, job: Job) -> JobStatus:
        """What is known of a job now."""

    def logs(self, job: Job, task: str | None = None, follow: bool = False) -> Iterator[LogLine]:
        """What the tasks, or one of them, have printed; with `follow` until the job is over."""

    def delete(self, job: Job, volumes: bool = False) -> Deleted:
        """Stops a job and removes it, its volume only with `volumes`."""


class Entry(NamedTuple):
    """What the registry knows of a target without importing it."""

    path: str
    """`module:class`."""
    packages: frozenset[str] = frozenset()
    """What it imports that not every installation has."""
    options: frozenset[str] = frozenset()
    """Those of OPTIONS that mean something to it."""


OPTIONS = ("profile", "namespace", "dry_run", "task")
"""What only some targets have: profiles to render several jobs into one file; a namespace, with which the target is
made; and arguments of its methods."""
TARGETS = {
    "kubernetes": Entry(
        "trainer.targets.kubernetes.target:Kubernetes",
        frozenset({"jinja2", "kubernetes"}),
        frozenset({"namespace", "dry_run", "task"}),
    ),
    "compose": Entry("trainer.targets.compose.target:Compose", frozenset({"jinja2", "docker"}), frozenset({"profile"})),
}
"""By name; the first is the default."""


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
