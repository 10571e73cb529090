"""What has happened in a history, as the world saw it, whatever the supervisors believe. With the spec it is all that
the auditor knows.

All times are of the world, in seconds since the history began. The clocks of the hosts may differ from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from trainer.job.spec import JobSpec


@dataclass(frozen=True, slots=True)
class Event:
    at: float
    task: str
    """Such as `worker:1`; empty if the event is of the whole world."""
    process: int
    """Number of the supervisor's process: each start of a task has another one, and later ones a higher one. 0 if the
    event is of no process."""


@dataclass(frozen=True, slots=True)
class Started(Event):
    """The target has started a task: its supervisor runs."""

    host: str
    run: str
    """The job's run: another one after it was submitted again."""


@dataclass(frozen=True, slots=True)
class Exited(Event):
    """A supervisor has ended by itself."""

    code: int


@dataclass(frozen=True, slots=True)
class Killed(Event):
    """The world has ended a supervisor, by SIGKILL or with its host. Children that it had end within two seconds."""


@dataclass(frozen=True, slots=True)
class AskedToStop(Event):
    """SIGTERM to a supervisor."""


@dataclass(frozen=True, slots=True)
class ChildStarted(Event):
    """A process of TensorFlow, or the program, has started. Of TensorFlow it does nothing until it is ordered to."""

    child: int
    """Number of the child in this history."""


@dataclass(frozen=True, slots=True)
class ChildOrdered(Event):
    """The child begins to train, or to serve, in a generation, from the checkpoint of a step."""

    child: int
    generation: int
    step: int


@dataclass(frozen=True, slots=True)
class ChildEnded(Event):
    child: int
    code: int
    """Exit code; of a child ended by a signal its negative number."""
    by: str
    """`itself`, `supervisor` or `world`."""


@dataclass(frozen=True, slots=True)
class StepMade(Event):
    """A child has applied a step. Under multi_worker_mirrored each chief and worker does so for each step; under
    parameter_server only the chief's child does, for the steps of all workers."""

    child: int
    generation: int
    step: int


@dataclass(frozen=True, slots=True)
class CheckpointWritten(Event):
    """The chief's child has completed a checkpoint: it is on disk."""

    child: int
    generation: int
    step: int


@dataclass(frozen=True, slots=True)
class Wrote(Event):
    """A supervisor has changed a file of model_dir."""

    file: str
    """Its name in the folder of trainer's own files, such as lease.json, state.json, journal.jsonl or result.json."""
    content: bytes
    """Its content afterwards; of the journal what was appended; empty if the file was removed."""


@dataclass(frozen=True, slots=True)
class Logged(Event):
    """A line that a supervisor has written for the user."""

    line: str
    error: bool
    """Whether it is an error: on stderr."""


@dataclass(frozen=True, slots=True)
class Fault(Event):
    """The world has begun to disturb the job."""

    kind: str
    """See faults.py."""
    until: float
    """When it is over; for a fault of one moment that moment."""


Any: TypeAlias = (
    Started
    | Exited
    | Killed
    | AskedToStop
    | ChildStarted
    | ChildOrdered
    | ChildEnded
    | StepMade
    | CheckpointWritten
    | Wrote
    | Logged
    | Fault
)


@dataclass
class History:
    spec: JobSpec
    tasks: tuple[str, ...]
    """All tasks, the one that leads first."""
    events: list[Any] = field(default_factory=list)
    """In order of time."""
    on_kubernetes: bool = False
    """Whether the tasks run as on Kubernetes: one that is not the chief exits with 0 once it knows how the job ended; a
    chief that is asked to stop leaves the job to the next one."""
    faults_over: float = 0.0
    """From here on the world disturbs nothing more."""
    asked_to_stop: bool = False
    """Whether somebody stopped the whole job, by SIGTERM to all tasks."""
    ended: float = 0.0
    """When nothing ran any more, or the world lost its patience."""
    outcome: dict[str, int | None] = field(default_factory=dict)
    """The last exit code of each task; None if its last process still runs, or was killed and never came back."""
    left: list[str] = field(default_factory=list)
    """What was still there at the end, and should not: `process 4`, `child 7`."""
    files: dict[str, bytes] = field(default_factory=dict)
    """The folder of trainer's own files at the end."""
