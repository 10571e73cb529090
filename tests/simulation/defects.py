"""Defects to plant in the supervisors, one at a time: mistakes that somebody could make, all of which must be found.

A defect is a function in the place of one of trainer's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

from trainer.job.errors import Exit
from trainer.job.spec import JobSpec
from trainer.model_dir import checkpoint, lease, result
from trainer.model_dir.files import write_json
from trainer.protocol.reports import Reply
from trainer.supervisor.chief import earlier_run, last_replies
from trainer.supervisor.chief.chief import Chief
from trainer.supervisor.chief.saved_state import Record
from trainer.supervisor.children.child import Child
from trainer.supervisor.rendezvous import policy
from trainer.supervisor.rendezvous.membership import Membership
from trainer.supervisor.rendezvous.state_machine import Rendezvous
from trainer.supervisor.task import follower
from trainer.supervisor.task.agent import Agent


@dataclass(frozen=True)
class Defect:
    name: str
    where: object
    what: str
    instead: Any


async def _says_nothing(*_: object) -> None:
    """Returns at once."""


async def _keeps_its_child(self: Agent, reply: Reply) -> None:
    """`act`, but a generation that is over does not end the child."""
    if reply.phase != "forming":
        await _act(self, reply)
    else:
        self.phase = reply.phase
        await self.look_after_children()


async def _starts_two(self: Agent, generation: int, resume_step: int) -> None:
    """`go`, but another child trains beside the first one."""
    await _go(self, generation, resume_step)
    (await self.start_child(generation)).go(generation, resume_step)


def _forms_without_counting(self: Rendezvous, now: float) -> None:
    count = self.progress.generations_without_progress
    _form(self, now)
    self.progress.generations_without_progress = count


def _saves_the_old_number(self: Record, generation: int) -> None:
    _save(self, 0)
    self.state.generation = generation


def _ends_again(self: Rendezvous, code: Any, message: str, step: Any = None, **more: Any) -> None:
    self.phase = "running" if self.over else self.phase
    _end(self, code, message, step, **more)


def _every_task_is_ready(self: Membership, now: float) -> bool:
    return len(self.members) >= len(self.required) - 1 and all(
        name not in self.members or self._why_missing(name, now) is None for name in self.required
    )


def _without_sync(path: Path, value: Mapping[str, object], **_: object) -> None:
    write_json(path, value)


def _one_checkpoint_too_early(spec: JobSpec) -> int | None:
    steps = checkpoint.steps(spec.directory)
    return steps[-2] if len(steps) > 1 else None


_act, _go, _form, _save, _end = Agent.act, Agent.go, Rendezvous._form, Record.save, Rendezvous.end
_reply, _save_state = Rendezvous.reply, Record._save

DEFECTS = (
    Defect("a lease is taken twice", lease, "is_held", lambda *_: True),
    Defect("replies have no term", Rendezvous, "reply", lambda self, task=None: replace(_reply(self, task), term=0)),
    Defect("a restart is not counted", Rendezvous, "_form", _forms_without_counting),
    Defect("a generation's number is not saved", Record, "save", _saves_the_old_number),
    Defect("a generation's number is lost with the power", Record, "_save", lambda self, **_: _save_state(self)),
    Defect("a later verdict replaces the first", Rendezvous, "end", _ends_again),
    Defect("a result is lost with the power", result, "write_json", _without_sync),
    Defect("who lost its place gets it back", Membership, "place", lambda *_: "free"),
    Defect("nobody is ever silent", Membership, "newly_silent", lambda *_: []),
    Defect("a cluster forms without its last task", Membership, "all_ready", _every_task_is_ready),
    Defect("the chief leaves before all are told", last_replies, "until_all_are_notified", _says_nothing),
    Defect("a child outlives its generation", Agent, "act", _keeps_its_child),
    Defect("a task starts two children", Agent, "go", _starts_two),
    Defect("a child that hangs is not noticed", Child, "hangs", lambda *_: False),
    Defect("a stop is not passed on", Child, "stop", lambda _: None),
    Defect("the deadline of a stop never passes", Agent, "stop_deadline_passed", False),
    Defect("a lost worker ends the generation", policy, "restarts_alone", lambda *_: False),
    Defect("a generation begins one checkpoint too early", earlier_run, "newest_step", _one_checkpoint_too_early),
    Defect("every task ends well", follower, "_exit_code", lambda _: Exit.OK),
    Defect("a chief leaves before it has saved", Chief, "_may_leave", lambda _: True),
    Defect("the next chief does not wait", lease.Predecessor, "saves", lambda _: False),
)


@contextlib.contextmanager
def planted(defect: Defect) -> Iterator[None]:
    with mock.patch.object(defect.where, defect.what, defect.instead):
        yield
