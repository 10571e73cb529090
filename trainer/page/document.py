"""The document of a job's page, which GET /page/state answers with and history.json keeps. docs/seeing.md describes it.

It has no secret: the spec only names where those are, and a value that looks like one is hidden.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields

from trainer.debug.redaction import Redactor
from trainer.job.cluster import Task
from trainer.job.names import task_name
from trainer.job.spec import JobSpec
from trainer.model_dir.files import json_text
from trainer.model_dir.history import VERSION, History

MOST_CONFIGS = 32
"""A job of more tasks shows the TF_CONFIG of the first of each type only: those of a thousand tasks are 37 MB."""


@dataclass
class View:
    """What a page shows besides the history."""

    live: bool
    status: Mapping[str, object]
    """The document of GET /status."""
    job: Mapping[str, object]
    """What the function `job`, below, returns."""
    eta: float | None = None
    """Seconds until the job's last step, as far as that is known."""
    goodput: float | None = None
    """Share of the job's time in which it made new steps."""
    outcome: Mapping[str, object] | None = None
    """How the job ended (outcome.py); None while it runs."""
    now: float = field(default_factory=time.time)


def text(view: View, history: History) -> str:
    """The document as JSON."""
    return "".join(pieces(view, history))


def pieces(view: View, history: History) -> Iterator[str]:
    """The document as JSON, task by task."""
    own = {each.name: getattr(view, each.name) for each in fields(view)}
    head = {"version": VERSION, **own, "counters": asdict(history.counters())}
    yield f'{json_text(head)[:-1]}, "history": '
    yield from history.pieces()
    yield "}"


def job(spec: JobSpec, task: Task | None, started: float | None) -> dict[str, object]:
    """The job's own part of the document.

    Args:
        task: one of the job's, whose cluster is that of all; None if it is not known any more.
        started: seconds since the epoch.
    """
    written = Redactor().document(spec.model_dump(mode="json", exclude_defaults=True))
    return {"spec": written, "tf_config": _configs(task) if task else {}, "started": started}


def _configs(task: Task) -> dict[str, object]:
    members = task.members()
    if len(members) > MOST_CONFIGS:
        members = [(task_type, index) for task_type, index in members if index == 0]
    return {
        task_name(task_type, index): {"cluster": task.cluster, "task": {"type": task_type, "index": index}}
        for task_type, index in members
    }
