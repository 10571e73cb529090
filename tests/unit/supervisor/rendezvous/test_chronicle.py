"""What has happened to a job, which outlives its chief."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.supervisor.jobs import KILLED, PS, Job
from trainer.job.errors import Exit
from trainer.model_dir import layout
from trainer.model_dir import state as job_state
from trainer.model_dir.files import read_json, write_json
from trainer.model_dir.result import JobEvent
from trainer.model_dir.state import End
from trainer.protocol.facts import LABELS, Began, Cause, Checkpoint, Formed, Loss, Lost, Note, entry
from trainer.supervisor.chief.chief import Chief
from trainer.supervisor.chief.saved_state import Record
from trainer.supervisor.rendezvous import chronicle
from trainer.supervisor.rendezvous.chronicle import EVENTS_KEPT

LOST = Lost("worker:1", KILLED, "others_continue")
EARLIER = [entry(1.0, Formed(1, 3), 1), entry(2.0, LOST, 1)]


def test_a_chief_that_takes_over_adds_its_own_loss_to_what_it_was_left() -> None:
    job = Job(PS, generation=1)
    job.core.chronicle = chronicle.of(EARLIER, {"killed": 1})
    job.core.take_over(job.now)
    job.run()
    assert [(event.text, event.kind, event.task) for event in job.core.chronicle.events[1:]] == [
        ("worker:1 lost (killed by SIGKILL); the others continue", "lost", "worker:1"),
        ("chief:0 lost (its supervisor was restarted), re-forming", "lost", "chief:0"),
        ("generation 2 formed: 4 tasks", "formed", None),
    ]
    assert {name: count for name, count in job.core.chronicle.restarts.items() if count} == {
        "killed": 1, "supervisor_restarted": 1,
    }  # fmt: skip
    restarted = Loss(Cause.SUPERVISOR_RESTARTED)
    new = [Lost("chief:0", restarted, "re_forming"), Formed(2, 4)]
    assert job.facts == new, "the chief before has noted the others"


def test_of_files_the_newest_events_are_taken_and_the_causes_that_this_version_knows() -> None:
    notes = [entry(float(number), Note(str(number))) for number in range(EVENTS_KEPT + 3)]
    found = chronicle.of([entry(0.0, Began("run")), *notes, entry(99.0, Checkpoint(500))], {"killed": 2, "eaten": 5})
    assert [event.text for event in found.events] == [str(number) for number in range(3, EVENTS_KEPT + 3)]
    assert found.restarts == dict.fromkeys(LABELS, 0) | {"killed": 2}
    assert found.since(0) == []


def again(chief: Chief) -> Record:
    """What the next chief of that job begins with."""
    chief._record.lock.close()
    chief._record = Record(chief._spec, chief._clock, "the next")
    return chief._record


def lose_a_worker(chief: Chief) -> None:
    chief._record.accept(9000, "first")
    chief._rendezvous.generation = 1
    chief._rendezvous.note(Formed(1, 3))
    chief._record.save(1)
    chief._rendezvous.phase = "running"
    chief._rendezvous._lost("worker:1", KILLED, 1.0)
    chief._announce()
    chief._record.save_progress(1, 0.0)


def test_events_and_restarts_outlive_a_chief_that_was_killed(chief: Chief) -> None:
    lose_a_worker(chief)
    record = again(chief)
    assert record.continues
    assert [event.text for event in record.chronicle.events] == [
        "generation 1 formed: 3 tasks", "worker:1 lost (killed by SIGKILL), re-forming",
    ]  # fmt: skip
    assert record.chronicle.news[-1].fact == Lost("worker:1", KILLED, "re_forming")
    assert record.chronicle.restarts["killed"] == 1


def test_events_that_version_0_2_kept_in_its_state_are_before_those_of_the_journal(chief: Chief) -> None:
    lose_a_worker(chief)
    earlier = JobEvent(1.0, "worker:2 lost (killed by SIGKILL), re-forming", "lost", "worker:2")
    chief._record.state.events = [earlier]
    chief._record.save(1)
    first, *others = again(chief).chronicle.events
    assert first == earlier
    assert [event.text for event in others] == [
        "generation 1 formed: 3 tasks", "worker:1 lost (killed by SIGKILL), re-forming",
    ]  # fmt: skip


@pytest.mark.parametrize("code", [Exit.STOPPED, Exit.GAVE_UP])
def test_a_job_that_is_started_again_after_its_end_begins_its_events_anew(chief: Chief, code: Exit) -> None:
    lose_a_worker(chief)
    chief._record.close(End("j", int(code), "the end"), 1)
    record = again(chief)
    assert (record.state.generation, record.continues) == (1, False)
    assert (record.chronicle.events, record.chronicle.restarts.total()) == ([], 0)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"events": [{"time": "now", "text": "x"}]},
        {"events": {}},
        {"events": [7] * 9},
        {"restarts": {"killed": -1}},
        {"restarts": {"killed": 1.5}},
        {"restarts": [1]},
    ],
)
def test_a_state_of_an_earlier_version_or_of_no_sense_has_no_events(tmp_path: Path, fields: dict[str, Any]) -> None:
    path = layout.state(tmp_path)
    job_state.save(str(tmp_path), job_state.State(generation=3, started=5.0))
    saved = {name: value for name, value in read_json(path).items() if name not in ("events", "restarts")}
    write_json(path, {**saved, **fields})
    found = job_state.load(str(tmp_path), 9.0)
    assert (found.events, found.restarts) == ([], {})
    assert found.generation == (0 if fields else 3)
