"""Histories that have broken a promise. With the defect that each has found put back, it is found again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tests.simulation import history, search
from tests.simulation.faults import Fault
from tests.simulation.history import Case
from trainer.job.load import build
from trainer.model_dir import result
from trainer.model_dir.files import write_json
from trainer.supervisor.chief.chief import Chief
from trainer.supervisor.chief.saved_state import Record
from trainer.supervisor.rendezvous.state_machine import Rendezvous
from trainer.supervisor.task import figures, follower

SCHEDULES = 40
SPEC: dict[str, Any] = {
    "name": "j",
    "page": "none",
    "model_dir": "/simulated",
    "max_restarts": 3,
    "train": {"steps": 6, "checkpoint_steps": 3},
    "deadlines": {"start": 20, "rejoin": 20, "hang": 4, "progress": 25, "task_lost": 4, "chief_lost": 20,
                  "evaluation": 10, "stop": 3},
}  # fmt: skip
MIRRORED = {"strategy": "multi_worker_mirrored", "tasks": {"chief": 1, "worker": 2}}
_reply, _save, _phases, _end = Rendezvous.reply, Record._save, figures.phases, follower._end
_take_place = Chief._take_place


def fault(kind: str, task: str = "chief:0", at: float = 1.0, seconds: float = 2.0, amount: float = 0.9) -> Fault:
    return Fault(at, kind, task, seconds, amount)


def cases(plan: Iterable[Fault], *, on_kubernetes: bool = True, **spec: Any) -> list[Case]:
    """The same history with other times of messages, steps and disks."""
    made = build({**SPEC, **MIRRORED, **spec})
    return [Case(0, made, on_kubernetes, tuple(plan), (), schedule=schedule) for schedule in range(SCHEDULES)]


def broken(histories: list[Case]) -> list[str]:
    return [line for each in histories for line in search.look(each).broken]


def before(name: str, place: object, old: Any) -> Any:
    return mock.patch.object(place, name, old)


def _reply_to_all(self: Any, task: str | None = None) -> Any:
    return replace(_reply(self), following=self.tasks.following(task) if task else 0)


def _end_of_generation_0(agent: Any, reply: Any) -> Any:
    return _end(agent, reply if reply.version else replace(reply, generation=0))


def _answers_at_once(self: Any, *, waits: bool) -> None:
    _take_place(self, waits=waits)
    self._ready.set()


def _unsynced_result(path: Path, value: Any, **_: object) -> None:
    write_json(path, value)


FOUND = {
    "a generation's number was lost with the power": (
        cases([fault("host", at=0.6, seconds=1.0), fault("kill", "worker:0", at=9)]),
        before("_save", Record, lambda self, **_: _save(self)),
        "begins twice",
    ),
    "a result was lost with the power": (
        cases([fault("lose", at=1.0, seconds=12, amount=1.0), fault("host", at=6.0)], on_kubernetes=False),
        before("write_json", result, _unsynced_result),
        "had written the result of 0",
    ),
    "a task joined a generation that was about to end": (
        cases([fault("kill", "worker:1", at=1.2), fault("stop", at=1.25)]),
        before("reply", Rendezvous, _reply_to_all),
        "begins twice",
    ),
    "an event of a step before the imports were done ended the chief": (
        cases([fault("lie", at=0.05)]),
        before("phases", figures, lambda started, times: {"first_step": times["step"] - times["warm"]}),
        "KeyError",
    ),
    "a chief answered before it knew how the job had ended": (
        cases(
            [fault("zombie", at=0.8, seconds=7), fault("errors", at=0.93), fault("disk slow", at=1.23, seconds=16)],
            on_kubernetes=False,
        ),
        before("_take_place", Chief, _answers_at_once),
        "had written to the journal an end with",
    ),
    "a chief was killed between the words and the deed of its job's end": (
        [replace(history.case(44007575), plan=history.case(44007575).plan[:2])],
        before("_end_that_was_told", Record, lambda _: None),
        "had written to the journal an end with 14",
    ),
    "an evaluator whose chief had left scored in generation 0": (
        cases(
            [fault("cut", "evaluator:0", at=1.5, seconds=15), fault("crash", "evaluator:0", at=2.5)],
            tasks={"chief": 1, "worker": 1, "evaluator": 1},
        ),
        before("_end", follower, _end_of_generation_0),
        "generation 0 begins after generation 1",
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_a_history_that_broke_a_promise_keeps_it(name: str) -> None:
    histories, defect, words = FOUND[name]
    with defect:
        assert any(words in line for line in broken(histories)), "the history no longer shows the defect"
    assert broken(histories) == []


def test_a_complete_job_on_a_read_only_disk_is_complete() -> None:
    plan = [
        fault("lose", at=1.0, seconds=12, amount=1.0),
        fault("disk read-only", at=6, seconds=3),
        fault("kill", at=7),
    ]
    assert broken(cases(plan)) == []


def test_a_late_write_of_the_result_is_no_other_chief_s() -> None:
    assert broken(cases([fault("disk slow", at=1, seconds=6), fault("stop", at=4, amount=0.1)])) == []


def test_a_question_that_fails_while_it_is_given_up_is_no_error() -> None:
    assert broken([history.case(46079095)]) == []


def test_a_history_is_the_same_each_time() -> None:
    first, second = (search.look(history.case(7)).history for _ in range(2))
    assert first is not None
    assert second is not None
    assert first.events == second.events
    assert search.look(history.case(8)).history != first


def test_the_shortest_history_has_only_the_faults_that_it_needs() -> None:
    plan = [fault("clock", "worker:0", at=0.1), fault("kill", "worker:1", at=1.2), fault("stop", at=1.25),
            fault("garbage", "worker:1", at=3)]  # fmt: skip
    histories, defect, _ = FOUND["a task joined a generation that was about to end"]
    with defect:
        whole = (search.look(replace(each, plan=tuple(plan))) for each in histories)
        found = next(each for each in whole if each.broken)
        assert {each.kind for each in search.shortest(found).what.plan} <= {"kill", "stop"}
