"""What observers of a job get at each beat, and what /status says of its pace."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from trainer.job.cluster import tasks_of
from trainer.job.errors import Exit
from trainer.job.load import build
from trainer.model_dir import journal
from trainer.protocol.events import Start, Step
from trainer.protocol.facts import Entry, Note
from trainer.protocol.status import JobStatus, read
from trainer.supervisor.chief.chief import Chief
from trainer.supervisor.children.child import Child
from trainer.supervisor.children.child_status import take
from trainer.supervisor.task.agent import Agent
from trainer.supervisor.views.snapshot import Snapshot


class Kept:
    """Keeps what it observes."""

    def __init__(self) -> None:
        self.snapshots: list[Snapshot] = []
        self.facts: list[str] = []

    def observe(self, snapshot: Snapshot, facts: Sequence[Entry]) -> None:
        self.snapshots.append(snapshot)
        self.facts += [each.text for each in facts]


class Defect:
    def observe(self, snapshot: Snapshot, facts: Sequence[Entry]) -> None:
        raise KeyError("x")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the time that the chief's snapshots have."""
    now = [time.time()]
    monkeypatch.setattr("trainer.clocks.wall", lambda: now[0])

    def advance(seconds: float) -> None:
        now[0] += seconds

    return advance


def test_an_observer_that_raises_ends_no_job_and_keeps_no_other_from_observing(
    chief: Chief, clock: Callable[[float], None], capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = Kept(), Kept()
    chief._reporter.observers = [before, Defect(), after]
    for number in range(3):
        chief._rendezvous.note(Note(str(number)))
        chief._reporter.observe(chief._clock())
        clock(1.0)
    assert before.facts == after.facts == ["0", "1", "2"]
    assert before.snapshots == after.snapshots
    assert len(after.snapshots) == 3
    assert not chief._rendezvous.over
    assert capsys.readouterr().out == "warning: Defect: KeyError: 'x'\n", "once, not at each beat"


def test_there_is_one_snapshot_a_second_and_one_of_the_end(chief: Chief, clock: Callable[[float], None]) -> None:
    kept = Kept()
    chief._reporter.observers = [kept]
    for _ in range(5):
        chief._reporter.observe(chief._clock())
        clock(0.25)
    assert len(kept.snapshots) == 2
    chief._rendezvous.end(Exit.DIVERGED, "the loss is nan")
    chief._reporter.observe(chief._clock())
    assert kept.snapshots[-1].job.end is not None
    assert kept.facts == ["the loss is nan; there is no checkpoint yet"]


def test_a_snapshot_does_not_change_with_the_job(chief: Chief, clock: Callable[[float], None]) -> None:
    kept, child = Kept(), Child(chief._task, lambda *_: None)
    chief._reporter.observers, chief._agent.running = [kept], child
    take(child.status, Step(step=3, figures={"loss": 0.5}))
    chief._reporter.observe(chief._clock())
    before = json.dumps(kept.snapshots[0].job.document())
    take(child.status, Step(step=4, figures={"loss": 0.25}))
    chief.warn("the job has no secret")
    chief._rendezvous.note(Note("something"))
    assert json.dumps(kept.snapshots[0].job.document()) == before


def steps(chief: Chief, clock: Callable[[float], None], *numbers: int) -> JobStatus:
    """The chief's child makes these steps, one in ten seconds; the status after them, as another program reads it."""
    rendezvous = chief._rendezvous
    rendezvous.phase, rendezvous.generation = "running", rendezvous.generation + 1
    child = chief._agent.running = Child(chief._task, lambda *_: None)
    take(child.status, Start(step=0, steps=100, line="x"))
    for number in numbers:
        take(child.status, Step(step=number))
        clock(10.0)
        chief._reporter.observe(chief._clock())
    return read(json.dumps(chief.status().document()))


def test_status_has_the_time_left_and_the_goodput_also_after_the_chief_was_restarted(
    tmp_path: Path, clock: Callable[[float], None]
) -> None:
    spec = build({"name": "j", "strategy": "one_device", "model_dir": str(tmp_path)})

    def new_chief() -> Chief:
        return Chief(Agent(spec, tasks_of(spec)[0], Path(os.devnull)))

    first = new_chief()
    status = first.status()
    assert (status.seconds_left, status.goodput) == (None, None)
    found = steps(first, clock, 1, 2, 3, 4, 5)
    assert found.seconds_left == pytest.approx(950, rel=0.01)
    assert found.goodput == pytest.approx(40 / 50, rel=0.01), "before the first step it began"
    first._record.save(1)
    first._record.lock.close()  # it is killed
    clock(50.0)
    second = new_chief()
    assert second._record.continues
    assert second.status().seconds_left is None, "no step was made yet"
    found = steps(second, clock, 3, 4, 5, 6, 7)
    second._record.lock.close()
    assert found.seconds_left == pytest.approx(930, rel=0.01)
    assert found.goodput == pytest.approx(60 / 150, rel=0.01), "steps 6 and 7 are new"


def test_a_job_that_is_over_has_no_time_left(chief: Chief, clock: Callable[[float], None]) -> None:
    assert steps(chief, clock, 1, 2, 3).seconds_left is not None
    chief._rendezvous.end(Exit.OK, "")
    assert chief.status().seconds_left is None


def test_what_is_noted_is_in_the_journal_once_the_job_has_begun(chief: Chief, tmp_path: Path) -> None:
    chief._rendezvous.note(Note("of a start that may be refused"))
    chief._announce()
    assert journal.read(str(tmp_path)) == []
    chief._record.accepted = True
    chief._rendezvous.note(Note("it has begun"))
    chief._announce()
    chief._announce()
    found = [line["text"] for line in journal.read(str(tmp_path))]
    assert found == ["of a start that may be refused", "it has begun"], "a task may have ended the job before"
